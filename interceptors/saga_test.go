package interceptors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestCompensationsReacquireWithANewFenceAndReleaseIsLast(t *testing.T) {
	t.Parallel()
	r, l := &releases{}, &fakeLocker{}
	l.enter = func(context.Context, int, party.Request) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.released) > 0 {
			return errors.New("entered after the release")
		}
		return nil
	}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Credit")
			if err := step(ctx, "Debit"); err != nil {
				return err
			}
			return step(ctx, "Refuse")
		})
	})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, "No", app.Type())
	asked := l.asked()
	require.Len(t, asked, 3)
	require.False(t, asked[1].Reacquire)
	require.False(t, asked[1].NewFence)
	require.Equal(t, "default-test-run-id/3/Credit", asked[2].Part)
	require.True(t, asked[2].Reacquire)
	require.True(t, asked[2].NewFence)
	require.True(t, asked[2].Persist)
	require.True(t, asked[2].Resources[0].Held)
	require.Len(t, l.released, 1)
	require.Equal(t, party.LastAttempt(3), l.released[0].Order)
}

func TestALostLockCompensatesByDefault(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{enter: func(_ context.Context, n int, req party.Request) error {
		if n == 1 && !req.Reacquire {
			return &lockcore.LostError{Resource: "account/1", By: "another"}
		}
		return nil
	}}
	r := &releases{}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Credit")
			if err := step(ctx, "Debit"); err != nil {
				return err
			}
			err := step(ctx, "Debit")
			if !errors.Is(err, lockcore.ErrLost) {
				return errors.New("the loss did not reach the function")
			}
			return err
		})
	})
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Len(t, l.asked(), 3)
	require.Len(t, l.released, 1)
}

func TestAStepWithoutAnUndoIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	for _, undo := range []any{nil, 7, (func() error)(nil)} {
		l := &fakeLocker{}
		err := runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
				return s.Step(workflows.Guard(ctx, account), "Debit", undo).Get(ctx, nil)
			})
		})
		require.ErrorContains(t, err, "an undo of type")
		require.Empty(t, l.asked())
	}
}

func TestASagaMayGoOnAfterALoss(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{CommitAfterLoss: true}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return step(workflows.Guard(ctx, account), "Debit")
		})
	}))
	require.True(t, l.asked()[0].Reacquire)
	require.False(t, l.asked()[0].NewFence)
}

func TestASagaInASagaLeavesItsLocksToTheOuterOne(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return step(workflows.Guard(ctx, account), "Debit")
			})
			if err != nil {
				return err
			}
			if len(r.seen) > 0 {
				return errors.New("the inner saga released")
			}
			return step(workflows.Guard(ctx, account), "Credit")
		})
	}))
	require.True(t, l.asked()[1].Resources[0].Held)
	require.Len(t, r.seen, 1)
}

func TestSagasSideBySideReleaseWhatTheOtherDoesNotWant(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		start := func(name string, until workflow.Future) workflow.Future {
			future, settable := workflow.NewFuture(ctx)
			workflow.Go(ctx, func(ctx workflow.Context) {
				settable.Set(nil, workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
					if err := step(workflows.Guard(ctx, account, lockcore.Exclusive(name)), "Debit"); err != nil {
						return err
					}
					return until.Get(ctx, nil)
				}))
			})
			return future
		}
		now, set := workflow.NewFuture(ctx)
		later, setLater := workflow.NewFuture(ctx)
		first, second := start("a", now), start("b", later)
		// Both must have asked before the first one ends.
		if err := workflow.Sleep(ctx, 1); err != nil {
			return err
		}
		set.Set(nil, nil)
		err := first.Get(ctx, nil)
		setLater.Set(nil, nil)
		return errors.Join(err, second.Get(ctx, nil))
	}))
	require.Len(t, r.released, 1)
	require.Equal(t, []string{"a"}, r.released[0].Resources)
	require.Len(t, l.released, 1, "the run ends with the second one")
	require.Equal(t, []string{"account/1", "b"}, l.released[0].Resources)
}

func TestASagaThatContinuesAsNewReleasesAndDoesNotCompensate(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			guarded := workflows.Guard(ctx, account)
			s.CompensateWith(guarded, "Credit")
			if err := step(guarded, "Debit"); err != nil {
				return err
			}
			return workflow.NewContinueAsNewError(ctx, "W")
		})
	})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)
	require.Len(t, l.asked(), 1)
	require.Len(t, r.seen, 1)
}

func TestASagaWithoutLocksReleasesNothing(t *testing.T) {
	t.Parallel()
	r := &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return step(ctx, "Debit")
		})
	}))
	require.Empty(t, r.seen)
}

func TestLocksAskedForAfterTheSagaBelongToTheRun(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		var leaked workflow.Context
		if err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			leaked = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga})
			return step(leaked, "Debit")
		}); err != nil {
			return err
		}
		return step(leaked, "Credit")
	}))
	require.False(t, l.asked()[1].Resources[0].Held)
	require.Len(t, r.seen, 2)
	require.Len(t, l.released, 1)
	require.Equal(t, party.LastAttempt(2), l.released[0].Order)
}

// The options of the workflow's steps must not leak into the release: it has to run, where Lockstep's activities are.
func TestSaga_CheckFailsOnce_IsMadeByAnActivityWithItsOwnOptions(t *testing.T) {
	t.Parallel()
	var options []workflow.ActivityOptions
	seen := &spy{scheduled: func(ctx workflow.Context, name string) {
		if name == wire.ActivityRelease {
			options = append(options, workflow.GetActivityOptions(ctx))
		}
	}}
	r := &releases{fail: 1}
	require.NoError(t, runWorkflow(t, workflowEnv(t, seen, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Nanosecond, ActivityID: "mine", TaskQueue: "elsewhere", RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			own := workflow.WithActivityOptions(workflows.Guard(ctx, account), workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return step(own, "Debit")
		})
	}))
	require.Len(t, r.seen, 1)
	require.Len(t, options, 1)
	o := options[0]
	require.Equal(t, "default-test-taskqueue", o.TaskQueue)
	require.Empty(t, o.ActivityID)
	require.Equal(t, 10*time.Second, o.StartToCloseTimeout)
	require.Zero(t, o.RetryPolicy.MaximumAttempts)
	require.Equal(t, "check account/1", o.Summary)
}
