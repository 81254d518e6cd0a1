package interceptors

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// The step of the second saga takes the account again if the first one has lost it, so its success does not prove that the first one
// still held the lock.
func TestCommit_AnotherSagaUsedTheLockLater_Asks(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{lost: true}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		first, settable := workflow.NewFuture(ctx)
		workflow.Go(ctx, func(ctx workflow.Context) {
			settable.Set(nil, sagaThatTakes(20*time.Minute)(ctx))
		})
		return cmp.Or(after(ctx, 19*time.Minute), sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			return after(ctx, 4*time.Minute)
		})(ctx), first.Get(ctx, nil))
	})
	require.Empty(t, l.asked()[1].HeldSince, "the second saga's step does not ask whether the first one lost the lock")
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
}

// A compensation takes a lost lock again, so its success does not prove that the lock was held before.
func TestCommit_InnerCompensationTookTheLockAgain_Asks(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{lost: true}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
		err := after(ctx, 20*time.Minute)
		_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			_ = s.CompensateWith(ctx, "Credit")
			return errors.New("the inner saga fails")
		})
		return err
	}))
	require.True(t, l.asked()[1].Reacquire)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
}

// failsBecause is a step's own failure, because of a lock of another workflow that it waited for.
func failsBecause(cause error) func(context.Context) error {
	return func(context.Context) error {
		return temporal.NewNonRetryableApplicationError("the other workflow failed", "Other", wire.Failure(cause))
	}
}

func TestSaga_StepReportsTheLossOfAnotherWorkflow_Commits(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	env.RegisterActivityWithOptions(failsBecause(&lockcore.LostError{Resource: account.Name, LockID: "other"}), activity.RegisterOptions{Name: "Ask"})
	require.NoError(t, runWorkflow(t, env, &releases{}, sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
		_ = step(workflows.Guard(ctx, account), "Ask") // the saga can do without
		return nil
	})))
}

func TestSaga_StepReportsTheDeadlockOfAnotherWorkflow_IsNotCalledAgain(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	env.RegisterActivityWithOptions(failsBecause(&lockcore.DeadlockError{Resource: "other", LockID: "other"}), activity.RegisterOptions{Name: "Ask"})
	calls := 0
	_ = runWorkflow(t, env, &releases{}, sagaWith(func(ctx workflow.Context, s *workflows.Saga) error {
		calls = s.Attempt()
		return step(workflows.Guard(ctx, account), "Ask")
	}))
	require.Equal(t, 1, calls)
}

// The step would belong to the outer saga: the bar of the inner one does not match it, so its undo could run at the same time.
func TestSagaStep_ContextOfTheOuterSaga_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	var bars []string
	seen := &spy{scheduled: func(_ workflow.Context, name string) { bars = append(bars, name) }}
	var refused error
	_ = runWorkflow(t, workflowEnv(t, seen, with(l)), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(outer workflow.Context, _ *workflows.Saga) error {
			return workflows.RunSaga(outer, workflows.SagaOptions{}, func(_ workflow.Context, s *workflows.Saga) error {
				refused = s.Step(workflows.Guard(outer, account), "Debit", "Credit").Get(outer, nil)
				return errors.New("the inner saga fails")
			})
		})
	})
	t.Log("activities in order:", bars)
	if refused == nil {
		require.Contains(t, bars, wire.ActivityBar, "the undo ran without a bar")
	} else {
		require.ErrorIs(t, refused, lockcore.ErrInvalid)
	}
}

// While a saga verifies, another coroutine's step can still be scheduled: it is undone if the verification finds a loss.
func TestSagaStep_SagaCommits_HoldsForTheSagaOrIsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	var late error
	_ = runWorkflow(t, workflowEnv(t, with(l)), &releases{fail: 3}, func(ctx workflow.Context) error {
		return errors.Join(workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			workflow.Go(ctx, func(ctx workflow.Context) {
				_ = after(ctx, old+2*time.Second)
				late = s.Step(ctx, "Credit", "Debit").Get(ctx, nil)
			})
			return errors.Join(step(ctx, "Debit"), after(ctx, old))
		}), after(ctx, time.Hour))
	})
	t.Log("late:", late)
	if late == nil {
		require.Len(t, l.asked(), 2)
		require.True(t, l.asked()[1].Keep, "%+v", l.asked()[1])
		require.Empty(t, l.asked()[1].Within, "it runs under a lock of its own")
	}
}

// A run that has learned of a loss does not commit, also if a step's wait has told it.
func TestCommit_WaitFoundTheLoss_IsRefused(t *testing.T) {
	t.Parallel()
	lost := &lockcore.LostError{Resource: account.Name, LockID: "w"}
	l := &fakeLocker{enter: func(_ context.Context, n int, _ lockcore.StepRequest) error {
		if n == 1 {
			return &lockcore.BusyError{Resource: account.Name, LockID: "w"}
		}
		return nil
	}}
	env := workflowEnv(t, with(l))
	register(env, &releases{}, sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := step(workflows.Guard(ctx, account), "Credit"); !errors.Is(err, lockcore.ErrLost) { // an upgrade, perhaps
			return errors.Join(errors.New("the step did not fail"), err)
		}
		return nil // the saga can do without
	}))
	env.OnActivity(wire.ActivityWait, mock.Anything, mock.Anything).Return(wire.Failure(lost))
	require.ErrorIs(t, workflows.LockError(executed(t, env)), lockcore.ErrLost)
}

// A Lock of two resources was granted one and waited for the other. The worker that gets the next request refuses it, because its own HoldTTL
// is shorter.
func TestLock_RefusedAfterAWait_ReleasesWhatItGot(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	env := workflowEnv(t, with(l))
	register(env, r, func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(account, lockcore.Exclusive("b")), TTL: 20 * time.Minute})
		if !errors.Is(err, lockcore.ErrInvalid) {
			return errors.Join(errors.New("the lock was not refused"), err)
		}
		return after(ctx, 24*time.Hour)
	})
	env.OnActivity(wire.ActivityAcquire, mock.Anything, mock.Anything).Return(wire.AcquireResult{}, nil).Once() // woken: "b" is free
	env.OnActivity(wire.ActivityAcquire, mock.Anything, mock.Anything).Return(wire.AcquireResult{}, wire.Failure(&lockcore.InvalidError{Field: "HoldTTL"})).Once()
	require.NoError(t, executed(t, env))
	require.NotEmpty(t, append(r.released, l.released...), "account/1 remains held")
}

// refuses is a context propagator that refuses every activity.
type refuses struct{ workflow.ContextPropagator }

func (refuses) InjectFromWorkflow(workflow.Context, workflow.HeaderWriter) error {
	return errors.New("there is no tenant")
}

func (refuses) ExtractToWorkflow(ctx workflow.Context, _ workflow.HeaderReader) (workflow.Context, error) {
	return ctx, nil
}

// Without a guard the step fails with the propagator's error, and the workflow continues.
func TestStep_PropagatorRefuses_Fails(t *testing.T) {
	t.Parallel()
	for name, guard := range map[string]func(workflow.Context, ...lockcore.Resource) workflow.Context{
		"unguarded": func(ctx workflow.Context, _ ...lockcore.Resource) workflow.Context { return ctx }, "guarded": workflows.Guard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := workflowEnv(t, with(&fakeLocker{}))
			env.SetContextPropagators([]workflow.ContextPropagator{refuses{}})
			require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
				if err := workflow.ExecuteActivity(guard(ctx, account), "Debit", "argument").Get(ctx, nil); err == nil {
					return errors.New("the step did not fail")
				}
				return nil
			}))
		})
	}
}

// continues is an interceptor of a third party that lets handlers end before the workflow continues as new.
type continues struct {
	interceptor.WorkerInterceptorBase
	calls *[]any
}

func (c *continues) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &continuesInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, c.calls}
}

type continuesInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	calls *[]any
}

func (c *continuesInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return c.Next.Init(&continuesOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, c.calls})
}

type continuesOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	calls *[]any
}

func (c *continuesOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	*c.calls = append(*c.calls, fn) // it would wait here for the handlers of updates, one of which may have called
	return c.Next.NewContinueAsNewError(ctx, fn, args...)
}

func TestStep_InterceptorWatchesContinueAsNew_SeesNone(t *testing.T) {
	t.Parallel()
	var calls []any
	require.NoError(t, runWorkflow(t, workflowEnv(t, &continues{calls: &calls}, with(&fakeLocker{})), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return errors.Join(s.CompensateWith(ctx, "Credit", "argument"), step(workflows.Guard(ctx, account), "Debit"))
		})
	}))
	require.Empty(t, calls)
}

// A saga under the context of one that has been undone is a saga of its own, as it is under that of one that has committed.
func TestSaga_ContextOfAnUndoneSaga_IsItsOwn(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, errors.New("it fails")} {
		require.NoError(t, runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), &releases{}, func(ctx workflow.Context) error {
			var leaked workflow.Context
			_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				leaked = ctx
				return end
			})
			return sagaThatTakes(time.Second)(leaked)
		}), "after a saga that returned %v", end)
	}
}
