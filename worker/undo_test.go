package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

type bill struct{ Account string }

// A workflow uses one variable for the arguments of all its steps.
func TestUndo_ArgumentsChangedLater_GetsThoseOfItsStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			in := &bill{}
			for _, name := range []string{"a", "b"} {
				in.Account = name
				if err := s.Step(ctx, "Pay", "Undo", in, []string{name}).Get(ctx, nil); err != nil {
					return err
				}
			}
			in.Account = "c"
			s.CompensateWith(ctx, "Undo", in, []string{"c"})
			in.Account = "d"
			return do(ctx, "Refuse")
		})
	})
	step := func(what string) any {
		return func(_ context.Context, in bill, names []string) error {
			b.write("%s %s %v", what, in.Account, names)
			return nil
		}
	}
	b.work(t, sdkworker.Options{}, map[string]any{"Pay": step("pay"), "Undo": step("undo"), "Refuse": refuse})
	_, err := b.end(t, b.start(t, "W"))
	_ = failedAs(t, err, "NoMoney")
	require.Equal(t, []string{"pay a [a]", "pay b [b]", "undo c [c]", "undo b [b]", "undo a [a]"}, b.read())
}

// A step that waits for its locks is scheduled again, with the arguments of its first scheduling.
func TestStep_ArgumentsChangedWhileItWaits_GetsThoseOfItsScheduling(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		in := &bill{Account: "a"}
		step := workflow.ExecuteActivity(workflows.Guard(ctx, account), "Pay", in)
		in.Account = "b"
		return step.Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Pay": func(_ context.Context, in bill) error {
		b.write("pay %s", in.Account)
		return nil
	}})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"pay a"}, b.read())
}

// What did not run is not undone: its undo would fail as it did.
func TestSagaStep_DidNotRun_IsNotUndone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		context func(ctx workflow.Context) workflow.Context
		arg     any
		refused bool
	}{
		"Cancelled": {context: func(ctx workflow.Context) workflow.Context {
			ctx, cancel := workflow.WithCancel(ctx)
			cancel()
			return ctx
		}},
		"CancelledUnderLocks": {context: func(ctx workflow.Context) workflow.Context {
			ctx, cancel := workflow.WithCancel(workflows.Guard(ctx, account))
			cancel()
			return ctx
		}},
		"RefusedByTheWorkflow": {refused: true, context: func(ctx workflow.Context) workflow.Context {
			return workflows.Guard(ctx, lockcore.Exclusive("\xff"))
		}},
		"RefusedByTheWorker": {refused: true, context: func(ctx workflow.Context) workflow.Context {
			return workflows.Guard(ctx, lockcore.SharedLimit("places", -1))
		}},
		"ArgumentsThatCannotBeEncoded": {refused: true, arg: make(chan int), context: func(ctx workflow.Context) workflow.Context { return ctx }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					return s.Step(c.context(ctx), "Pay", "Undo", c.arg).Get(ctx, nil)
				})
				var failed *workflows.SagaError
				if err == nil || errors.As(err, &failed) || errors.Is(err, lockcore.ErrInvalid) != c.refused {
					return fmt.Errorf("the saga ended with %w", err)
				}
				return nil
			})
			write := func(what string) any {
				return func(context.Context, any) error { b.write("%s", what); return nil }
			}
			b.work(t, sdkworker.Options{}, map[string]any{"Pay": write("pay"), "Undo": write("undo")})
			_, err := b.end(t, b.start(t, "W"))
			require.NoError(t, err)
			require.Empty(t, b.read())
		})
	}
}

func TestUndo_StepHasAnActivityID_HasAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			o := workflow.GetActivityOptions(ctx)
			o.ActivityID = "pay"
			err := s.Step(workflow.WithActivityOptions(workflows.Guard(ctx, account), o), "Note", "Undo", "paid").Get(ctx, nil)
			return errors.Join(err, do(ctx, "Refuse"))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes, "Refuse": refuse})
	events, err := b.end(t, b.start(t, "W"))
	require.Error(t, err)
	ids := map[string]string{}
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			ids[a.GetActivityType().GetName()] = a.GetActivityId()
		}
	}
	require.Equal(t, "pay", ids["Note"])
	require.NotEqual(t, "pay", ids["Undo"])
}

// The steps of a saga run in a session, and the session's worker dies.
func TestUndo_SessionFailed_RunsOutsideOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	there := b.queue + "-there"
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			session, err := workflow.CreateSession(workflow.WithTaskQueue(workflows.Guard(ctx, account), there), &workflow.SessionOptions{
				CreationTimeout: time.Minute, ExecutionTimeout: time.Hour, HeartbeatTimeout: 3 * time.Second,
			})
			if err != nil {
				return err
			}
			err = s.Step(session, "Note", "Undo", "paid").Get(ctx, nil)
			return errors.Join(err, do(session, "Block"))
		})
	})
	b.work(t, sdkworker.Options{}, nil)
	block := make(chan struct{})
	activities := map[string]any{
		"Note": b.note, "Undo": b.undoes,
		"Block": func(ctx context.Context) error { b.write("blocked"); <-block; return ctx.Err() },
	}
	dies := sdkworker.New(b.client, there, sdkworker.Options{
		EnableSessionWorker: true, DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}, WorkerStopTimeout: time.Millisecond,
	})
	for name, fn := range activities {
		dies.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, dies.Start())
	run := b.start(t, "W")
	b.untilWritten(t, 2)
	dies.Stop()
	unblock := sync.OnceFunc(func() { close(block) })
	t.Cleanup(unblock)
	survives := sdkworker.New(b.client, there, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range activities {
		survives.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, survives.Start())
	t.Cleanup(survives.Stop)
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"paid", "blocked", "undid paid"}, b.read(), "%v", err)
	unblock() // it heeds no cancellation
	b.requireFree(t, account.Name)
}
