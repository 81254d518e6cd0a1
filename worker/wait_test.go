package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	sdkpb "go.temporal.io/api/sdk/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// taken is somebody else who holds a resource until the test says so.
func (b *bundle) taken(t *testing.T, resource lockcore.Resource) *party.Session {
	t.Helper()
	s, err := b.locker.Core().TryAcquire(t.Context(), party.Request{LockID: "somebody", Resources: []lockcore.Resource{resource}})
	require.NoError(t, err)
	return s
}

// untilQueued waits until n requests stand in the queue of a resource.
func (b *bundle) untilQueued(t *testing.T, resource string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting := 0
		for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateWaiting}}) {
			if err != nil {
				return false
			}
			_ = s
			waiting++
		}
		return waiting == n
	}, within, 20*time.Millisecond, "%d do not wait for %s", n, resource)
}

// untilParked waits until an attempt of the activity by which the run waits has failed.
func (b *bundle) untilParked(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		waits := a.GetActivityType().GetName() == "lockstep.Wait" || a.GetActivityType().GetName() == "lockstep.Acquire"
		return waits && isBusy(a)
	}, "the workflow does not wait")
}

func TestABusyStepWaitsWithoutSlotAndIsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 1}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	first := b.start(t, "W")
	b.untilParked(t, first)
	var runs []client.WorkflowRun
	for i := range 5 {
		runs = append(runs, b.start(t, "W"))
		b.untilQueued(t, account.Name, i+2)
	}
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range append(runs, first) {
		events, err := b.end(t, run)
		require.NoError(t, err)
		require.LessOrEqual(t, countEvents(events), 24)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: false", "free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

func TestWaitingKeepsTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Note") })
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.noteRun})
	other := b.taken(t, account)
	var want []string
	var runs []client.WorkflowRun
	for i := range 8 {
		run := b.start(t, "W")
		runs, want = append(runs, run), append(want, run.GetRunID())
		b.untilQueued(t, account.Name, i+1)
	}
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, want, b.read())
}

func (b *bundle) noteRun(ctx context.Context) error {
	b.write("%s", runID(ctx))
	return nil
}

func TestCancellingAWaitLeavesTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Nothing") })
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_, err := b.end(t, run)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

func TestAWaitEndsAfterItsTimeAndSaysWhoHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second}), "Nothing")
		var busy *lockcore.BusyError
		if !asError(err, &busy) {
			return fmt.Errorf("not busy: %w", err)
		}
		b.write("%s at %d", busy.Holders[0].LockID, busy.Position)
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Contains(t, b.read(), "somebody at 1")
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
}

func TestWhoWaitsIsSeenInTheRunsDetails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		workflow.SetCurrentDetails(ctx, "mine")
		err := do(workflows.Guard(ctx, account), "Nothing")
		b.write("after: %s", workflow.GetCurrentDetails(ctx))
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	meta, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "__temporal_workflow_metadata")
	require.NoError(t, err)
	var details sdkpb.WorkflowMetadata
	require.NoError(t, meta.Get(&details))
	require.Contains(t, details.GetCurrentDetails(), "mine")
	require.Contains(t, details.GetCurrentDetails(), account.Name)
	require.Contains(t, details.GetCurrentDetails(), "somebody")
	require.NoError(t, other.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Contains(t, b.read(), "after: mine")
}

func runID(ctx context.Context) string { return activity.GetInfo(ctx).WorkflowExecution.RunID }

func asError[T error](err error, target *T) bool { return errors.As(err, target) }
