package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A process stops its worker and closes its Locker while a step still runs. The next step, on another process, runs after it.
func TestShutdown_StepStillRuns_NextStepWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"Slow", "Next"} {
		b.workflow(name, func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), name) })
	}
	ends := make(chan struct{})
	stopping := b.work(t, sdkworker.Options{}, map[string]any{
		"Next": nothing,
		"Slow": func(ctx context.Context) error {
			b.write("slow begins")
			<-ctx.Done()
			b.write("slow stops")
			<-ends
			b.write("slow ends")
			return ctx.Err()
		},
	})
	slow := b.start(t, "Slow")
	b.untilWritten(t, 1)
	stopping.Stop()
	closed := make(chan error, 1)
	go func() { closed <- b.locker.Close(context.Background()) }()
	b.untilWritten(t, 2)

	locker, err := lockcore.New(b.lockCollection(t), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	other := b.on(b.queue)
	other.locker, other.plugin = locker.Steps(), newPlugin(t, worker.Options{Locker: locker})
	other.work(t, sdkworker.Options{}, map[string]any{"Next": b.writer("next"), "Slow": nothing})
	next := other.start(t, "Next")
	other.untilParked(t, next)
	require.Equal(t, []string{"slow begins", "slow stops"}, b.read())
	require.Empty(t, closed)
	close(ends)
	require.NoError(t, <-closed)
	other.succeed(t, next)
	require.Equal(t, []string{"slow begins", "slow stops", "slow ends", "next"}, b.read())
	err = other.client.TerminateWorkflow(t.Context(), slow.GetID(), "", "for the test")
	if gone := new(serviceerror.NotFound); !errors.As(err, &gone) { // the other process may have run its step
		require.NoError(t, err)
	}
}

// Code that hangs after Temporal has given up its attempt does not keep its lock.
func TestStep_HangsPastItsTimeout_LockExpires(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{TTL: 3 * time.Second}, payments())
	options := workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}
	b.workflow("guard", func(ctx workflow.Context) error {
		return do(workflows.Guard(workflow.WithActivityOptions(ctx, options), account2), "Hang")
	})
	b.workflow("rule", func(ctx workflow.Context) error {
		return pay(workflow.WithActivityOptions(ctx, options), payment{account.Name})
	})
	ends := make(chan struct{})
	hang := func(context.Context) error {
		b.write("it hangs")
		<-ends
		return nil
	}
	b.work(t, sdkworker.Options{}, map[string]any{"Hang": hang, "Look": func(ctx context.Context, _ payment) error { return hang(ctx) }})
	defer close(ends)
	for _, name := range []string{"guard", "rule"} {
		_, err := b.end(t, b.start(t, name))
		var timeout *temporal.TimeoutError
		require.ErrorAs(t, err, &timeout)
	}
	require.Equal(t, slices.Repeat([]string{"it hangs"}, 2), b.read())
	b.requireFree(t, account2.Name)
	b.requireFree(t, account.Name)
}
