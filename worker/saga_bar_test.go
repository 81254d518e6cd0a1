package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step that timed out or ignores its cancellation still runs. Each kind of compensation waits for its end.
func TestSaga_StepRunsOn_IsUndoneAfterIt(t *testing.T) {
	t.Parallel()
	once := func(ctx workflow.Context, timeout time.Duration) workflow.Context {
		return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: timeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
	}
	late := func(ctx workflow.Context) error { return do(once(ctx, 2*time.Second), "Slow") }
	cancelled := func(ctx workflow.Context) error {
		own, cancel := workflow.WithCancel(ctx)
		slow := workflow.ExecuteActivity(own, "Slow")
		receive(ctx, "cancel")
		cancel()
		return slow.Get(ctx, nil)
	}
	left := func(ctx workflow.Context) error {
		workflow.ExecuteActivity(ctx, "Slow")
		receive(ctx, "cancel")
		return errors.New("the saga does not wait for its step")
	}
	with := func(ctx workflow.Context, s *workflows.Saga) { s.CompensateWith(ctx, "Undo") }
	byFunction := func(ctx workflow.Context, s *workflows.Saga) {
		s.Compensate(ctx, func(ctx workflow.Context) error { return do(ctx, "Undo") })
	}
	for name, tc := range map[string]struct {
		scope    workflows.Scope
		register func(ctx workflow.Context, s *workflows.Saga)
		run      func(ctx workflow.Context) error
	}{
		"timed out, CompensateWith":  {"", with, late},
		"timed out, Compensate":      {"", byFunction, late},
		"timed out, scope step":      {workflows.ScopeStep, with, late},
		"cancelled, CompensateWith":  {"", with, cancelled},
		"not waited for, Compensate": {"", byFunction, left},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l := workflows.Locks{Resources: []lockcore.Resource{account}, Scope: tc.scope}
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					ctx = workflows.WithLocks(ctx, l)
					tc.register(ctx, s)
					return tc.run(ctx)
				})
			})
			running, letGo := make(chan struct{}), make(chan struct{})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Slow": func(context.Context) error { close(running); <-letGo; b.write("step"); return nil },
				"Undo": func(context.Context) error { b.write("undo"); return nil },
			})
			run := b.start(t, "W")
			<-running
			b.signal(t, run, "cancel")
			b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "lockstep.Bar" && a.GetLastFailure() != nil
			}, "the saga does not wait for its step")
			close(letGo)
			_, err := b.end(t, run)
			require.Error(t, err)
			require.Equal(t, []string{"step", "undo"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// A step that is still scheduled when its saga fails is refused when a worker takes it.
func TestSaga_StepComesLate_DoesNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Undo")
			workflow.ExecuteActivity(workflow.WithTaskQueue(ctx, b.queue+"-later"), "Do")
			return errors.New("the saga does not wait for its step")
		})
		receive(ctx, "end")
		return err
	})
	b.work(t, sdkworker.Options{}, b.writes())
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	later := &bundle{client: b.client, plugin: b.plugin, locker: b.locker, queue: b.queue + "-later"}
	later.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Do": func(context.Context) error { b.write("late"); return nil }})
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, 1) // it is refused
	b.signal(t, run, "end")
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"undo"}, b.read())
	b.requireFree(t, account.Name)
}
