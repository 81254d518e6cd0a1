//go:build unix

package worker_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// watched is the account, for a worker that may be silent for four seconds.
var watched = workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 4 * time.Second}

// A worker is stopped for longer than its TTL while it runs a step of a saga. The hold lasts, so others stay out; the next attempt
// supersedes the stopped one, which gets the error when it runs again.
func TestStoppedWorker_StepIsRetried_OthersStayOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		err := do(workflows.WithLocks(workflow.WithHeartbeatTimeout(ctx, 4*time.Second), watched), "Watch")
		receive(ctx, "go on") // the other one is queued
		return err
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	cmd, out := startChild(t, b)
	run := b.start(t, "saga")
	var paused, next int64
	_, err := fmt.Sscan(untilLine(t, out, enteredLine), &paused)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{
		"Watch": func(ctx context.Context) error {
			next, _ = activities.Fence(ctx, account.Name)
			b.write("attempt %d", activity.GetInfo(ctx).Attempt)
			return nil
		},
		"Other": b.writer("other"),
	})
	other := b.start(t, "other")
	b.untilParked(t, other)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	b.succeed(t, other)
	require.Equal(t, []string{"attempt 2", "other"}, b.read())
	require.Greater(t, next, paused)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Contains(t, untilLine(t, out, endedLine), "lost its lock")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

// In scope step the part is all there is: after the TTL others acquire the lock with a greater fence, and the step gets the error
// when its worker wakes up, and fails.
func TestStoppedWorker_LongerThanTTL_StepFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, watched), "Watch") })
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	cmd, out := startChild(t, b)
	run := b.start(t, "W")
	var paused, next int64
	_, err := fmt.Sscan(untilLine(t, out, enteredLine), &paused)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{
		"Other": func(ctx context.Context) error { next, _ = activities.Fence(ctx, account.Name); return nil },
	})
	b.succeed(t, b.start(t, "other"))
	t.Logf("others were done %v after the pause began", time.Since(began))
	require.Greater(t, next, paused)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Contains(t, untilLine(t, out, endedLine), "lost its lock")
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}
