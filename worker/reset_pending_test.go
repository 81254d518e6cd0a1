package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step whose locks the workflow takes is pending when its run is reset. The server starts it again at once, in the new run: it
// is refused there, and done when the new run has the locks, after whoever got in between.
func TestAStepWhoseLocksTheWorkflowTakesWaitsForThemAfterAReset(t *testing.T) {
	t.Parallel()
	scopes := map[string]func(ctx workflow.Context, fn func(workflow.Context) error) error{
		"of scope step": func(ctx workflow.Context, fn func(workflow.Context) error) error { return fn(ctx) },
		"of scope saga": func(ctx workflow.Context, fn func(workflow.Context) error) error {
			return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return fn(ctx) })
		},
	}
	for name, scope := range scopes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			b.workflow("W", func(ctx workflow.Context) error {
				l := lasting(account)
				l.FromWorkflow = true
				return scope(ctx, func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, l), "Step") })
			})
			var attempts atomic.Int32
			b.work(t, sdkworker.Options{}, map[string]any{"Step": func(ctx context.Context) error {
				if attempts.Add(1) == 1 {
					close(entered)
					<-leave // it does not look at its context
					return nil
				}
				b.write("in run %s, held by %v", runID(ctx), b.holders(t, account.Name))
				return nil
			}})
			t.Cleanup(func() { close(leave) })
			old := b.start(t, "W")
			<-entered
			tasks := b.tasks(t, old) + 1
			b.signal(t, old, "noise")
			b.completed(t, old, tasks)
			queued := b.queues(t)
			run := b.reset(t, old, tasks)
			somebody := <-queued
			b.untilParked(t, run)
			require.Empty(t, b.read(), "it ran without its lock")
			require.NoError(t, somebody.Leave(t.Context()))
			_, err := b.end(t, run)
			require.NoError(t, err)
			require.Equal(t, []string{fmt.Sprintf("in run %s, held by [%s]", run.GetRunID(), lockID(run))}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// A guarded step under a lock is pending when its run is reset: it is done again after the old attempt has left, and after whoever
// got in between.
func TestAGuardedStepUnderALockWaitsForItAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error { return do(workflows.Guard(ctx, account), "Step") })
	})
	var attempts atomic.Int32
	b.work(t, sdkworker.Options{}, map[string]any{"Step": func(ctx context.Context) error {
		if attempts.Add(1) == 1 {
			close(entered)
			<-leave // it does not look at its context
			return nil
		}
		b.write("in run %s, held by %v", runID(ctx), b.holders(t, account.Name))
		return nil
	}})
	old := b.start(t, "W")
	<-entered
	tasks := b.tasks(t, old) + 1
	b.signal(t, old, "noise")
	b.completed(t, old, tasks)
	queued := b.queues(t)
	run := b.reset(t, old, tasks)
	b.untilParked(t, run)
	require.Empty(t, queued, "the old attempt still runs")
	close(leave)
	somebody := <-queued
	require.Empty(t, b.read(), "it ran without its lock")
	require.NoError(t, somebody.Leave(t.Context()))
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("in run %s, held by [%s]", run.GetRunID(), lockID(run))}, b.read())
	b.requireFree(t, account.Name)
}
