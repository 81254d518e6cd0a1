package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step that the run before a reset has scheduled may have run there, after the reset: where it finds its lock busy in the new
// run it is undone all the same. That it is follows from its failure, also after a second reset.
func TestAStepThatARunBeforeAResetHasScheduledIsUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{"tried": {Try: true}, "waited": {MaxWait: time.Second}} {
		l.Resources = []lockcore.Resource{account}
		for _, resets := range []int{1, 2} {
			t.Run(name+map[int]string{1: " once", 2: " twice"}[resets], func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.workflow("W", func(ctx workflow.Context) error {
					err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
						o := workflow.GetActivityOptions(ctx)
						o.TaskQueue = b.queue + "-later"
						ctx = workflow.WithActivityOptions(ctx, o)
						return s.Step(workflows.WithLocks(ctx, l), "Do", "Undo").Get(ctx, nil)
					})
					if !errors.Is(err, lockcore.ErrBusy) {
						return errors.Join(err, errors.New("it was not busy"))
					}
					return nil
				})
				b.work(t, sdkworker.Options{}, nil)
				run := b.start(t, "W")
				for range resets {
					b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
					tasks := b.tasks(t, run)
					b.signal(t, run, "noise")
					b.completed(t, run, tasks+1)
					run = b.reset(t, run, tasks+1)
				}
				other := b.taken(t, account)
				later := sdkworker.New(b.client, b.queue+"-later", sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}, DisableWorkflowWorker: true})
				later.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: "Do"})
				later.RegisterActivityWithOptions(func(context.Context) error {
					b.write("undone")
					return nil
				}, activity.RegisterOptions{Name: "Undo"})
				require.NoError(t, later.Start())
				t.Cleanup(later.Stop)
				b.untilUndoing(t, run)
				require.NoError(t, other.Leave(t.Context()))
				_, err := b.end(t, run)
				require.NoError(t, err)
				require.Equal(t, []string{"undone"}, b.read())
				b.requireFree(t, account.Name)
			})
		}
	}
}

// untilUndoing waits until the run has scheduled the undoing of its step.
func (b *bundle) untilUndoing(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
			if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == "Undo" {
				return true
			}
		}
		return false
	}, within, lookEvery, "it is not undone")
}

// heldInBetween is a saga that takes account/2 only after the first reset, and nothing after the second.
func heldInBetween(t *testing.T, b *bundle) (between, last client.WorkflowRun) {
	t.Helper()
	var entries []entry
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := call(workflows.Guard(ctx, account), "first"); err != nil {
				return err
			}
			receive(ctx, "go on")
			if err := call(workflows.Guard(ctx, second), "second"); err != nil {
				return err
			}
			receive(ctx, "end")
			return nil
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	_, between = b.startAndReset(t)
	b.signal(t, between, "go on")
	b.untilWritten(t, 2)
	last = b.reset(t, between, b.untilIdle(t, between))
	b.requireHolds(t, between, second)
	return between, last
}

// What the runs before the last reset hold is released at the end of the last, though no step of it asked for it.
func TestWhatARunBetweenResetsHeldIsReleasedAtTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, last := heldInBetween(t, b)
	b.signal(t, last, "end")
	_, err := b.end(t, last)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The janitor lets it stand as long as the last run is open, which goes on with it, and no longer.
func TestWhatARunBeforeAResetHeldIsReleasedWithTheLast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	between, last := heldInBetween(t, b)
	result := b.round(t)
	require.Equal(t, []int{2, 2, 0}, []int{result.Asked, result.Open, result.Released})
	b.requireHolds(t, between, second)
	b.terminate(t, last)
	result = b.round(t)
	require.Equal(t, []int{2, 2, 2}, []int{result.Asked, result.Closed, result.Released})
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// Of a lock that a run before the last reset has lost the last one is told, if it has the step that used it in its history: also
// if the run between has taken the lock anew, and if that is the run that lost it, which only its own history names.
func TestALossBeforeTheLastResetIsFound(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string][]lockcore.Resource{"of the first run": {account, account}, "of the run between": {second, account}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					for i, then := range []string{"go on", "end"} {
						if err := call(workflows.Guard(ctx, guarded[i]), "step"); err != nil {
							return err
						}
						receive(ctx, then)
					}
					return nil
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
			run := b.start(t, "W")
			for step := range 2 {
				b.untilWritten(t, step+1)
				tasks := b.untilIdle(t, run)
				if guarded[step] == account && len(b.holders(t, account.Name)) == 1 && (step == 1) == (guarded[0] != account) {
					b.forceRelease(t, run)
				}
				run = b.reset(t, run, tasks)
				if step == 0 {
					b.signal(t, run, "go on")
				}
			}
			b.signal(t, run, "end")
			_, err := b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
			b.requireFree(t, account.Name)
		})
	}
}
