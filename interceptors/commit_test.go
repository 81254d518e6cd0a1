package interceptors

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// after lets the workflow's time pass.
func after(ctx workflow.Context, d time.Duration) error { return workflow.Sleep(ctx, d) }

const (
	young = 4*time.Minute + 59*time.Second
	old   = 5*time.Minute + time.Second
)

// sagaWith is a saga with one step under the account, and more.
func sagaWith(more func(ctx workflow.Context, s *workflows.Saga) error) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return errors.Join(step(workflows.Guard(ctx, account), "Debit"), more(ctx, s))
		})
	}
}

func sagaThatTakes(d time.Duration) func(ctx workflow.Context) error {
	return sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error { return after(ctx, d) })
}

func lockFor(ctx workflow.Context, d time.Duration) (*workflows.Hold, error) {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(account)})
	if err == nil {
		err = after(ctx, d)
	}
	return hold, err
}

// A commit asks the database if a lock was last used over five minutes ago, and only then. No activity is awaited after the workflow function
// has returned.
func TestCommit_AsksOnlyAboutOldLocks(t *testing.T) {
	t.Parallel()
	continues := func(ctx workflow.Context) error { return workflow.NewContinueAsNewError(ctx, "W") }
	for name, tc := range map[string]struct {
		fn    func(ctx workflow.Context) error
		asked int
	}{
		"saga, young": {sagaThatTakes(young), 0},
		"saga, old":   {sagaThatTakes(old), 1},
		"saga whose last step is young": {sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			return errors.Join(after(ctx, old), step(workflows.Guard(ctx, account), "Credit"), after(ctx, young))
		}), 0},
		"saga, one of two locks is old": {sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			return errors.Join(after(ctx, old), step(workflows.Guard(ctx, lockcore.Exclusive("b")), "Credit"))
		}), 1},
		"saga whose last step failed": {sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			err := after(ctx, old)
			_ = step(workflows.Guard(ctx, account), "Refuse")
			return err
		}), 1},
		"saga that verified": {sagaWith(func(ctx workflow.Context, s *workflows.Saga) error {
			return errors.Join(after(ctx, old), s.Verify(ctx), after(ctx, young))
		}), 1},
		"saga that continues as new": {sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			return errors.Join(after(ctx, old), continues(ctx))
		}), 1},
		"saga that fails": {func(ctx workflow.Context) error {
			_ = sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
				return errors.Join(after(ctx, old), errors.New("fails"))
			})(ctx)
			return nil
		}, 0},
		"inner saga": {func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return errors.Join(sagaThatTakes(old)(ctx), step(workflows.Guard(ctx, account), "Credit"))
			})
		}, 0},
		"Lock, young": {func(ctx workflow.Context) error {
			hold, err := lockFor(ctx, young)
			return errors.Join(err, hold.Release(ctx))
		}, 0},
		"Lock, old": {func(ctx workflow.Context) error {
			hold, err := lockFor(ctx, old)
			return errors.Join(err, hold.Release(ctx))
		}, 1},
		"Lock that a step uses": {func(ctx workflow.Context) error {
			hold, err := lockFor(ctx, old)
			use := workflows.WithLocks(ctx, workflows.Locks{Resources: resources(account), Scope: workflows.ScopeSaga})
			return errors.Join(err, step(use, "Debit"), hold.Release(ctx))
		}, 0},
		"Lock that is left held": {func(ctx workflow.Context) error {
			_, err := lockFor(ctx, old)
			return err
		}, 0},
		"step of scope saga outside a saga": {func(ctx workflow.Context) error {
			use := workflows.WithLocks(ctx, workflows.Locks{Resources: resources(account), Scope: workflows.ScopeSaga})
			return errors.Join(step(use, "Debit"), after(ctx, old))
		}, 0},
		"HandOver, young": {func(ctx workflow.Context) error {
			_, err := lockFor(ctx, young)
			return errors.Join(err, workflows.HandOver(ctx, continues(ctx)))
		}, 0},
		"HandOver, old": {func(ctx workflow.Context) error {
			_, err := lockFor(ctx, old)
			return errors.Join(err, workflows.HandOver(ctx, continues(ctx)))
		}, 1},
		"HandOver of a saga, old": {sagaWith(func(ctx workflow.Context, _ *workflows.Saga) error {
			return errors.Join(after(ctx, old), workflows.HandOver(ctx, continues(ctx)))
		}), 1},
	} {
		r := &releases{}
		r.activitySteps = &doors{releases: r}
		err := runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), r, tc.fn)
		var next *workflow.ContinueAsNewError
		if !errors.As(err, &next) {
			require.NoError(t, err, name)
		}
		require.Len(t, r.seen, tc.asked, name)
	}
}

// While a hand-over asks, another coroutine releases a Lock, or a step of it finds that a lock was lost.
func TestHandOver_LocksChangeWhileItAsks_CountsThoseThatAreLeft(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"released": false, "lost": true} {
		env := workflowEnv(t, with(&fakeLocker{enter: func(_ context.Context, _ int, req lockcore.StepRequest) error {
			if lost && req.Order.Schedule == 3 {
				return &lockcore.LostError{Resource: account.Name}
			}
			return nil
		}}))
		r := &releases{}
		r.activitySteps = &doors{releases: r}
		register(env, r, func(ctx workflow.Context) error {
			if _, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(lockcore.Exclusive("b"))}); err != nil {
				return err
			}
			_ = after(ctx, old)
			young, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(account)})
			if err != nil {
				return err
			}
			workflow.Go(ctx, func(ctx workflow.Context) {
				_ = after(ctx, time.Minute)
				if lost {
					_ = step(workflows.WithLocks(ctx, workflows.Locks{Resources: resources(account), Scope: workflows.ScopeSaga}), "Debit")
					return
				}
				_ = young.Release(ctx)
			})
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		})
		env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).After(2*time.Minute).Return(wire.VerifyResult{}, nil)
		err := executed(t, env)
		if lost {
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost, name)
			continue
		}
		var next *workflow.ContinueAsNewError
		require.ErrorAs(t, err, &next, name)
	}
}

// An answer may come long after its question, for instance if no worker polled in between.
func TestVerify_LateAnswer_IsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"commit": sagaThatTakes(old),
		"Verify": sagaWith(func(ctx workflow.Context, s *workflows.Saga) error { return s.Verify(ctx) }),
	} {
		env := workflowEnv(t, with(&fakeLocker{}))
		register(env, &releases{}, fn)
		env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).After(old).Return(wire.VerifyResult{}, nil).Once()
		env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).After(young).Return(wire.VerifyResult{}, nil).Once()
		require.NoError(t, executed(t, env), name)
		env.AssertExpectations(t)
	}
}

// An operator fails an own activity while an attempt runs. It is scheduled again.
func TestOwnActivity_OperatorFailsIt_IsScheduledAgain(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	register(env, &releases{}, sagaWith(func(ctx workflow.Context, s *workflows.Saga) error { return s.Verify(ctx) }))
	byHand := temporal.NewNonRetryableApplicationError("failed by hand", "", nil)
	env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).Return(wire.VerifyResult{}, byHand).Once()
	env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).Return(wire.VerifyResult{}, nil).Once()
	require.NoError(t, executed(t, env))
	env.AssertExpectations(t)
}

// The SDK's test environment gives up after ten attempts. A saga must not take that for an answer.
func TestOwnActivity_TenAttemptsFail_Panics(t *testing.T) {
	t.Parallel()
	err := runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), &releases{fail: 10}, sagaWith(func(ctx workflow.Context, s *workflows.Saga) error {
		return s.Verify(ctx)
	}))
	var panicked *temporal.PanicError
	require.ErrorAs(t, err, &panicked)
	require.ErrorContains(t, err, "lockstep.Verify failed ten times")
}

// A lost lock undoes the saga, whether a step, a Verify or the commit notices it.
func TestSaga_LockIsLost_IsUndone(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context, s *workflows.Saga) error{
		"commit": func(ctx workflow.Context, _ *workflows.Saga) error { return after(ctx, old) },
		"Verify": func(ctx workflow.Context, s *workflows.Saga) error { return s.Verify(ctx) },
		"continue": func(ctx workflow.Context, _ *workflows.Saga) error {
			return cmp.Or(after(ctx, old), workflow.NewContinueAsNewError(ctx, "W"))
		},
		"HandOver": func(ctx workflow.Context, _ *workflows.Saga) error {
			return cmp.Or(after(ctx, old), workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W")))
		},
		"HandOver after a Verify whose error was ignored": func(ctx workflow.Context, s *workflows.Saga) error {
			_ = s.Verify(ctx)
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		},
		"commit after a Verify whose error was ignored": func(ctx workflow.Context, s *workflows.Saga) error {
			_ = s.Verify(ctx)
			return nil
		},
		"HandOver that waits for an inner saga": func(ctx workflow.Context, _ *workflows.Saga) error {
			workflow.Go(ctx, func(ctx workflow.Context) {
				_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					return errors.Join(s.Compensate(ctx, func(ctx workflow.Context) error { return after(ctx, old) }), errors.New("it fails"))
				})
			})
			return cmp.Or(after(ctx, time.Second), workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W")))
		},
		"HandOver of an inner saga": func(ctx workflow.Context, _ *workflows.Saga) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return cmp.Or(after(ctx, old), workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W")))
			})
		},
	} {
		l := &fakeLocker{}
		err := runWorkflow(t, workflowEnv(t, with(l)), &releases{lost: true}, func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
				return cmp.Or(s.Step(workflows.Guard(ctx, account), "Debit", "Credit").Get(ctx, nil), fn(ctx, s))
			})
		})
		require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost, name)
		require.Len(t, l.asked(), 2, "%s: the compensation did not run", name)
	}
}

// An inner saga has handed its compensations to the outer one, also if it continues as new.
func TestInnerSaga_ContinuesAsNewAndOuterFails_IsUndone(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			next := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
				return errors.Join(s.Step(workflows.Guard(ctx, account), "Debit", "Credit").Get(ctx, nil), workflow.NewContinueAsNewError(ctx, "W"))
			})
			var continued *workflow.ContinueAsNewError
			if !errors.As(next, &continued) {
				return next
			}
			return temporal.NewApplicationError("the outer saga fails", "Fails")
		})
	})
	require.ErrorContains(t, err, "the outer saga fails")
	require.Len(t, l.asked(), 2)
}

// An outer saga keeps its locks until the sagas inside it, in other coroutines, have been undone under them, also if one fails late.
func TestOuterSaga_InnerSagaIsBeingUndone_Waits(t *testing.T) {
	t.Parallel()
	failed := temporal.NewApplicationError("the outer saga fails", "Fails")
	for name, tc := range map[string]struct {
		innerFails time.Duration // the compensation of the inner saga takes a minute, then runs a step
		outer      func(ctx workflow.Context, s *workflows.Saga) error
	}{
		"commit": {0, func(ctx workflow.Context, _ *workflows.Saga) error { return after(ctx, time.Second) }},
		"commit, while it verifies": {old + time.Second, func(ctx workflow.Context, _ *workflows.Saga) error {
			return after(ctx, old)
		}},
		"hand-over": {0, func(ctx workflow.Context, _ *workflows.Saga) error {
			return cmp.Or(after(ctx, time.Second), workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W")))
		}},
		"undo": {0, func(ctx workflow.Context, _ *workflows.Saga) error { return cmp.Or(after(ctx, time.Second), failed) }},
		"undo, while it compensates": {time.Minute, func(ctx workflow.Context, s *workflows.Saga) error {
			err := s.Compensate(ctx, func(ctx workflow.Context) error { return after(ctx, 90*time.Second) })
			return cmp.Or(err, after(ctx, time.Second), failed)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &fakeLocker{}
			env := workflowEnv(t, with(l))
			register(env, &releases{}, func(ctx workflow.Context) error {
				undone := false
				_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					workflow.Go(ctx, func(ctx workflow.Context) {
						_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
							err := s.Compensate(ctx, func(ctx workflow.Context) error {
								return errors.Join(after(ctx, time.Minute), step(workflows.Guard(ctx, account), "Credit"))
							})
							return errors.Join(err, step(workflows.Guard(ctx, account), "Debit"), after(ctx, tc.innerFails), failed)
						})
						undone = true
					})
					return tc.outer(ctx, s)
				})
				if !undone {
					return errors.New("the outer saga has ended before the inner one was undone")
				}
				return nil
			})
			env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).After(10*time.Second).Return(wire.VerifyResult{}, nil)
			require.NoError(t, executed(t, env))
			asked := l.asked()
			require.Len(t, asked, 2)
			require.Equal(t, asked[0].LockID, asked[1].LockID)
		})
	}
}
