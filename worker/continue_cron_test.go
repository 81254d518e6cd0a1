package worker_test

import (
	"testing"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// All runs of a cron schedule have the same first run. Each locks in its own name; one that continues as new hands its
// locks to the run that continues it, which leaves the schedule behind; and the janitor tells whose they are.
func TestARunOfACronScheduleHandsItsLocksOver(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"completed", "terminated"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflows["W"] = func(ctx workflow.Context, heir bool) (string, error) {
				ctx = withOptions(ctx)
				again := workflow.HasLastCompletionResult(ctx)
				return "done", saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					guarded := workflows.WithLocks(ctx, lasting(account))
					switch {
					case heir:
						receive(ctx, "go on")
						return call(guarded, "third")
					case again:
						if err := call(guarded, "second"); err != nil {
							return err
						}
						return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W", true))
					default:
						return call(guarded, "first")
					}
				})
			}
			b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
			first, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, CronSchedule: "@every 1s"}, "W", false)
			require.NoError(t, err)
			b.untilWritten(t, 2)
			own := b.client.GetWorkflow(t.Context(), first.GetID(), entries[1].run)
			heir := b.untilContinued(t, own)
			require.NotEqual(t, first.GetRunID(), own.GetRunID())
			require.Equal(t, first.GetRunID(), entries[0].lease.Run)
			b.requireHolds(t, own, account)
			require.Equal(t, janitor.Result{Listed: 1, Asked: 1, Open: 1}, b.round(t))
			b.requireHolds(t, own, account)
			if end == "terminated" {
				b.terminate(t, heir)
				require.Equal(t, janitor.Result{Listed: 1, Asked: 1, Closed: 1, Released: 1}, b.round(t))
				b.requireFree(t, account.Name)
				return
			}
			b.signal(t, heir, "go on")
			require.NoError(t, b.last(t, heir)) // the workflow's last run
			require.Equal(t, []string{"first", "second", "third"}, b.read())
			require.Equal(t, heir.GetRunID(), entries[2].lease.Run)
			require.True(t, entries[2].lease.Joined)
			b.requireFree(t, account.Name)
			for _, run := range []client.WorkflowRun{own, heir} {
				b.replayRun(t, run)
			}
		})
	}
}
