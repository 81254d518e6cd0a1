package interceptors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// The context around a saga would give its step the scope step, and the saga would not be isolated.
func TestSagaStep_ContextFromOutside_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(outside workflow.Context) error {
		outside = workflows.Guard(outside, account)
		return workflows.RunSaga(outside, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			err := s.Step(outside, "Debit", "Credit").Get(ctx, nil)
			var invalid *lockcore.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "Saga.Step" {
				return fmt.Errorf("it was not refused: %w", err)
			}
			return nil
		})
	}))
	require.Empty(t, l.asked(), "neither the step nor its undoing")
}

// A user's activity is guarded even if its name begins with "lockstep.".
func TestIsNeverGuarded_SimilarName_IsGuarded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"internalSessionAudit", "internalSession", "lockstep.Audit", "lockstepAudit", "lockstep."} {
		l := &fakeLocker{}
		env := workflowEnv(t, with(l))
		env.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: name})
		require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
			return step(workflows.Guard(ctx, account), name)
		}))
		require.Len(t, l.asked(), 1, name)
	}
}

// A guard inside another adds its resources, and the step takes all of them together.
func TestGuard_InsideAnother_AddsToIt(t *testing.T) {
	t.Parallel()
	exclusive, shared := lockcore.Exclusive, lockcore.Shared
	limited := lockcore.SharedLimit
	for name, tc := range map[string]struct {
		outer, inner workflows.Locks
		want         []lockcore.Resource
		inSaga, keep bool
	}{
		"another resource": {
			outer: workflows.Locks{Resources: []lockcore.Resource{exclusive("b")}}, inner: workflows.Locks{Resources: []lockcore.Resource{exclusive("a")}},
			want: []lockcore.Resource{exclusive("b"), exclusive("a")},
		},
		"the stronger mode": {
			outer: workflows.Locks{Resources: []lockcore.Resource{exclusive("a"), shared("b"), limited("c", 3)}},
			inner: workflows.Locks{Resources: []lockcore.Resource{shared("a"), exclusive("b"), limited("c", 2)}},
			want:  []lockcore.Resource{exclusive("a"), exclusive("b"), limited("c", 2)},
		},
		"the longer scope outside": {
			outer: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga}, inner: workflows.Locks{Resources: []lockcore.Resource{account}},
			want: []lockcore.Resource{account}, keep: true,
		},
		"the longer scope inside": {
			outer: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep},
			inner: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga},
			want:  []lockcore.Resource{account}, keep: true,
		},
		"the scope of a saga": {
			outer: workflows.Locks{Resources: []lockcore.Resource{account}}, inner: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep},
			want: []lockcore.Resource{account}, inSaga: true, keep: true,
		},
		"no more than the step": {
			outer: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep},
			inner: workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep},
			want:  []lockcore.Resource{account}, inSaga: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &fakeLocker{}
			run := func(ctx workflow.Context) error {
				return step(workflows.WithLocks(workflows.WithLocks(ctx, tc.outer), tc.inner), "Debit")
			}
			require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
				if !tc.inSaga {
					return run(ctx)
				}
				return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error { return run(ctx) })
			}))
			require.Len(t, l.asked(), 1)
			require.Equal(t, tc.want, l.asked()[0].Resources)
			require.Equal(t, tc.keep, l.asked()[0].Within == "", "for the workflow, or for the step")
		})
	}
}

// A saga's step can be undone only while its locks are held, so it cannot have scope step.
func TestSagaStep_ScopeStep_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			short := workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep})
			err := s.Step(short, "Debit", "Debit").Get(ctx, nil)
			var invalid *lockcore.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "Locks.Scope" {
				return errors.Join(errors.New("not refused"), err)
			}
			return err
		})
	})
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrInvalid)
	require.Empty(t, l.asked(), "neither the step nor its undo ran")
}

// A guarded step whose context comes from outside the saga would not hold its locks for the saga.
func TestStep_InASagaWithOuterContext_IsRefused(t *testing.T) {
	t.Parallel()
	outside := func(outer workflow.Context, l workflows.Locks) func(workflow.Context) error {
		l.Resources = resources(account)
		return func(workflow.Context) error { return step(workflows.WithLocks(outer, l), "Debit") }
	}
	for name, tc := range map[string]struct {
		fn      func(outer workflow.Context) func(ctx workflow.Context) error
		refused bool
	}{
		"outer": {func(outer workflow.Context) func(workflow.Context) error { return outside(outer, workflows.Locks{}) }, true},
		"a coroutine of the outer": {func(outer workflow.Context) func(workflow.Context) error {
			return func(ctx workflow.Context) error {
				future, settable := workflow.NewFuture(ctx)
				workflow.Go(outer, func(own workflow.Context) { settable.Set(nil, outside(own, workflows.Locks{})(own)) })
				return future.Get(ctx, nil)
			}
		}, true},
		"a saga of the outer": {func(outer workflow.Context) func(workflow.Context) error {
			return func(workflow.Context) error {
				return workflows.RunSaga(outer, workflows.SagaOptions{}, func(workflow.Context, *workflows.Saga) error { panic("it runs") })
			}
		}, true},
		"said": {func(outer workflow.Context) func(workflow.Context) error {
			return outside(outer, workflows.Locks{Scope: workflows.ScopeStep})
		}, false},
		"not guarded": {func(outer workflow.Context) func(workflow.Context) error {
			return func(workflow.Context) error { return step(outer, "Debit") }
		}, false},
	} {
		l := &fakeLocker{}
		require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(outer workflow.Context) error {
			err := workflows.RunSaga(outer, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error { return tc.fn(outer)(ctx) })
			if !tc.refused {
				return err
			}
			if !errors.Is(err, lockcore.ErrInvalid) || !strings.Contains(err.Error(), "outside the saga") {
				return fmt.Errorf("it was not refused: %w", err)
			}
			return step(workflows.Guard(outer, account), "Credit") // the saga has ended
		}), name)
	}
}

// A coroutine that an earlier saga started does not belong to a later one.
func TestRunSaga_CoroutineOfAnEarlierSaga_IsNotRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(outer workflow.Context) error {
		beside, settable := workflow.NewFuture(outer)
		debit := func(ctx workflow.Context, _ *workflows.Saga) error {
			return step(workflows.Guard(ctx, account), "Debit")
		}
		first := workflows.RunSaga(outer, workflows.SagaOptions{}, func(workflow.Context, *workflows.Saga) error {
			workflow.Go(outer, func(ctx workflow.Context) {
				err := workflow.Sleep(ctx, time.Second)
				settable.Set(nil, errors.Join(err, workflows.RunSaga(ctx, workflows.SagaOptions{}, debit)))
			})
			return nil
		})
		return errors.Join(first, workflows.RunSaga(outer, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return errors.Join(beside.Get(ctx, nil), debit(ctx, s))
		}))
	}))
	require.Len(t, l.asked(), 2)
}

// A step in another coroutine, or in a handler, does not belong to the saga.
func TestStep_OutsideTheSagasCoroutine_IsNotRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		beside, settable := workflow.NewFuture(ctx)
		workflow.Go(ctx, func(ctx workflow.Context) {
			err := workflow.Sleep(ctx, time.Second)
			settable.Set(nil, errors.Join(err, step(workflows.Guard(ctx, account), "Credit")))
		})
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return errors.Join(beside.Get(ctx, nil), step(workflows.Guard(ctx, account), "Debit"))
		})
	}))
	require.Len(t, l.asked(), 2)
	require.False(t, l.asked()[0].Keep)
	require.True(t, l.asked()[1].Keep)
}

// A saga that hands over has returned, although its locks are still held.
func TestStep_AfterASagaHandsOver_IsNotRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		})
		if failed := step(workflows.Guard(ctx, account), "Debit"); failed != nil {
			return failed
		}
		return err
	})
	require.ErrorContains(t, err, "continue as new")
	require.Len(t, l.asked(), 1)
}

// An error of lockcore names the field as the user wrote it.
func TestInvalidLocks_Refusal_NamesTheFieldOrTheRule(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error {
		return &lockcore.InvalidError{Field: "Request.Resources[0].Limit", Value: "-1", Bound: "1 or more"}
	}}
	fields := map[string]string{"Debit": "Locks.Resources[0].Limit", "Credit": `what the rule of "Credit" returns: Resources[0].Limit`}
	i := New(Options{Rules: []Rule{{Activity: "Credit", Resources: func([]any) ([]lockcore.Resource, error) { return resources(account), nil }}}})
	i.locker = l
	require.NoError(t, runWorkflow(t, workflowEnv(t, i), &releases{}, func(ctx workflow.Context) error {
		for name, ctx := range map[string]workflow.Context{"Debit": workflows.Guard(ctx, account), "Credit": ctx} {
			err := step(ctx, name)
			var refused *lockcore.InvalidError
			if !errors.As(workflows.LockError(err), &refused) || refused.Field != fields[name] {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}))
}
