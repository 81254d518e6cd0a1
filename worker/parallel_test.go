package worker_test

import (
	"context"
	"errors"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func asItIs(ctx workflow.Context) workflow.Context { return ctx }

func underGuard(ctx workflow.Context) workflow.Context {
	return workflows.Guard(ctx, lockcore.Shared(account.Name))
}

// branches runs two coroutines, of which each schedules another activity when its step has ended. The first step is under guard.
func branches(guard func(workflow.Context) workflow.Context) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		wait := workflow.NewWaitGroup(ctx)
		var all [2]error
		branch := func(i int, step func(workflow.Context) error, after string) {
			wait.Add(1)
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer wait.Done()
				if all[i] = step(ctx); all[i] == nil {
					all[i] = do(ctx, after)
				}
			})
		}
		branch(0, func(ctx workflow.Context) error { return pay(guard(ctx), payment{account.Name}) }, "After1")
		branch(1, func(ctx workflow.Context) error { return do(ctx, "Other") }, "After2")
		wait.Wait(ctx)
		return errors.Join(all[:]...)
	}
}

// fanOut waits for two guarded steps by a selector, and does something after each, in the order in which it gives them out.
func fanOut(guard func(workflow.Context) workflow.Context) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		wait := workflow.NewWaitGroup(ctx)
		ended := workflow.NewNamedSelector(ctx, "steps")
		for _, after := range []string{"After1", "After2"} {
			ended.AddFuture(workflow.ExecuteActivity(guard(ctx), "Look", payment{account.Name}), func(workflow.Future) {
				wait.Add(1)
				workflow.Go(ctx, func(ctx workflow.Context) {
					defer wait.Done()
					_ = do(ctx, after)
				})
			})
		}
		ended.Select(ctx)
		_ = do(ctx, "Other")
		ended.Select(ctx)
		wait.Wait(ctx)
		return nil
	}
}

// together tells whether the first activities that ended did so in one workflow task, the one that was scheduled last before the other.
func together(events []*historypb.HistoryEvent) bool {
	var ended []int64
	for _, e := range events {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			ended = append(ended, e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId())
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED:
			if len(ended) > 0 {
				return len(ended) == 2 && ended[0] > ended[1]
			}
		}
	}
	return false
}

// untilTogether runs W until its first two steps have ended together: only one worker of the two has workflows, and how
// soon the server asks it is the server's.
func (b *bundle) untilTogether(t *testing.T) *historypb.History {
	t.Helper()
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{
		"Look": func(context.Context, payment) error { return nil }, "Other": nothing, "After1": nothing, "After2": nothing,
	})
	for range 200 {
		events, err := b.end(t, b.start(t, "W"))
		require.NoError(t, err)
		if together(events) {
			return &historypb.History{Events: events}
		}
	}
	require.FailNow(t, "the steps of no run ended together")
	return nil
}

func TestAGuardComesToParallelBranchesInFlightAndGoes(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]func(func(workflow.Context) workflow.Context) func(workflow.Context) error{"branches": branches, "selector": fanOut} {
		for _, before := range []func(workflow.Context) workflow.Context{asItIs, underGuard} {
			b := setup(t)
			b.workflow("W", code(before))
			history := b.untilTogether(t)
			b.replay(t, history)
			b.workflow("W", code(underGuard))
			require.NoError(t, b.tryReplay(t, history), name)
			b.workflow("W", code(asItIs))
			require.NoError(t, b.tryReplay(t, history), name)
			b.rules = []workflows.Rule{payments("")}
			require.NoError(t, b.tryReplay(t, history), name)
		}
	}
}
