package workflows_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var once = &temporal.RetryPolicy{MaximumAttempts: 1}

func do(ctx workflow.Context, name, what string) error {
	return workflow.ExecuteActivity(ctx, name, what).Get(ctx, nil)
}

func TestRunSaga_Succeeds_UndoesNothing(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	require.NoError(t, execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Do", "undo 1"); err != nil {
				return err
			}
			return do(ctx, "Do", "1")
		})
	}))
	require.Equal(t, []string{"1"}, j.read())
}

func TestRunSaga_Fails_UndoesInReverseOrder(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Do", "undo 1"); err != nil {
				return err
			}
			if err := do(ctx, "Do", "1"); err != nil {
				return err
			}
			if err := s.Compensate(ctx, func(ctx workflow.Context) error { return do(ctx, "Do", "undo 2") }); err != nil {
				return err
			}
			if err := do(ctx, "Do", "2"); err != nil {
				return err
			}
			if err := s.CompensateWith(ctx, "Do", "undo 3"); err != nil {
				return err
			}
			return do(ctx, "Fail", "3")
		})
		var failed *workflows.SagaError
		if errors.As(err, &failed) {
			return errors.New("a saga that was undone is reported as one that was not")
		}
		return err
	})
	require.ErrorContains(t, err, errStep.Error())
	require.Equal(t, []string{"1", "2", "3", "undo 3", "undo 2", "undo 1"}, j.read())
}

func TestSaga_CompensationFails_OthersRun(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Do", "undo 1"); err != nil {
				return err
			}
			if err := s.CompensateWith(ctx, "Fail", "undo 2"); err != nil {
				return err
			}
			if err := s.Compensate(ctx, func(workflow.Context) error { return temporal.NewApplicationError("undo 3", "Undo3") }); err != nil {
				return err
			}
			return temporal.NewApplicationError("no", "No")
		})
		var failed *workflows.SagaError
		if !errors.As(err, &failed) || len(failed.Compensations) != 2 ||
			failed.Compensations[0].Number != 3 || failed.Compensations[1].Number != 2 || failed.Compensations[1].Activity != "Fail" {
			return errors.New("the failures of compensations are not told")
		}
		return err
	})
	require.Equal(t, []string{"undo 2", "undo 1"}, j.read())
	// The history has all texts, and the original failure as the cause.
	require.ErrorContains(t, err, "undo 3")
	require.ErrorContains(t, err, errStep.Error())
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, "SagaError", app.Type())
	require.ErrorAs(t, app.Unwrap(), &app)
	require.Equal(t, "No", app.Type())
}

func TestRunSaga_ParallelCompensation_AllRun(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	var together bool
	err := execute(t, env, func(ctx workflow.Context) error {
		running := 0
		err := workflows.RunSaga(ctx, workflows.SagaOptions{ParallelCompensation: true}, func(ctx workflow.Context, s *workflows.Saga) error {
			for _, name := range []string{"Fail", "Fail", "Do"} {
				err := s.Compensate(ctx, func(ctx workflow.Context) error {
					running++
					together = together || running == 3
					defer func() { running-- }()
					return do(ctx, name, "undo")
				})
				if err != nil {
					return err
				}
			}
			return errStep
		})
		if failed := (*workflows.SagaError)(nil); !errors.As(err, &failed) || failed.Compensations[0].Number != 2 || failed.Compensations[1].Number != 1 {
			return errors.New("the failures are not told, the last registered first")
		}
		return err
	})
	require.ErrorContains(t, err, "compensation 2")
	require.True(t, together)
	require.Len(t, j.read(), 3)
}

func TestCompensate_OptionsOfItsRegistration_Apply(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			patient := workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{MaximumAttempts: 3})
			if err := s.CompensateWith(patient, "Fail", "undo"); err != nil {
				return err
			}
			return errStep
		})
	})
	require.Error(t, err)
	require.Len(t, j.read(), 3)
}

func TestCompensate_CoroutineHasEnded_Runs(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	require.ErrorContains(t, execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			future, settable := workflow.NewFuture(ctx)
			workflow.Go(ctx, func(ctx workflow.Context) {
				settable.Set(nil, cmp.Or(s.CompensateWith(ctx, "Do", "undo"), do(ctx, "Fail", "1")))
			})
			return future.Get(ctx, nil)
		})
	}), errStep.Error())
	require.Equal(t, []string{"1", "undo"}, j.read())
}

func TestCompensate_RegistersAnother_BothRun(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	require.ErrorContains(t, execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Do", "undo 1"); err != nil {
				return err
			}
			err := s.Compensate(ctx, func(ctx workflow.Context) error {
				if err := s.CompensateWith(ctx, "Do", "undo 2b"); err != nil {
					return err
				}
				return do(ctx, "Do", "undo 2a")
			})
			if err != nil {
				return err
			}
			return errStep
		})
	}), errStep.Error())
	require.Equal(t, []string{"undo 2a", "undo 2b", "undo 1"}, j.read())
}

func TestRunSaga_Cancelled_IsUndoneAndReturnsTheCancellation(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Minute)
	err := execute(t, env, func(ctx workflow.Context) error {
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Do", "undo"); err != nil {
				return err
			}
			return workflow.Sleep(ctx, time.Hour)
		})
		if !temporal.IsCanceledError(err) {
			return errors.New("the cancellation did not come through")
		}
		return err
	})
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, []string{"undo"}, j.read())
}

// A cancelled workflow whose compensation failed must not look as if it had been undone.
func TestRunSaga_CancelledAndNotUndone_Fails(t *testing.T) {
	t.Parallel()
	env, _ := newEnv()
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Minute)
	err := execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Fail", "undo"); err != nil {
				return err
			}
			return workflow.Sleep(ctx, time.Hour)
		})
	})
	require.False(t, temporal.IsCanceledError(err), "%v", err)
	require.ErrorContains(t, err, errStep.Error())
	require.ErrorContains(t, err, "canceled")
}

// A coroutine may use a saga after its end.
func TestSaga_HasEnded_EveryCallReturnsErrEnded(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	require.NoError(t, execute(t, env, func(ctx workflow.Context) error {
		var leaked *workflows.Saga
		_ = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(_ workflow.Context, s *workflows.Saga) error {
			leaked = s
			return nil
		})
		for name, err := range map[string]error{
			"CompensateWith": leaked.CompensateWith(ctx, "Do", "undo"),
			"Compensate":     leaked.Compensate(ctx, func(workflow.Context) error { return nil }),
			"Step":           leaked.Step(ctx, "Do", "Undo", "step").Get(ctx, nil),
			"Verify":         leaked.Verify(ctx),
		} {
			if !errors.Is(err, lockcore.ErrEnded) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}))
	require.Empty(t, j.read())
}

func TestWithLocks_NoInterceptor_PanicsWithAdvice(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		return do(workflows.Guard(ctx, lockcore.Exclusive("account/1")), "Do", "1")
	})
	var panicked *temporal.PanicError
	require.ErrorAs(t, err, &panicked)
	require.ErrorContains(t, err, "worker.NewPlugin")
	require.Empty(t, j.read())
}

func TestSagaError_Is_MatchesItsErrors(t *testing.T) {
	t.Parallel()
	lost := &lockcore.LostError{Resource: "r"}
	err := error(&workflows.SagaError{
		Err:           temporal.NewCanceledError(),
		Compensations: []*workflows.CompensationError{{Number: 2, Err: errStep}, {Number: 1, Activity: "Undo", Err: lost}},
	})
	require.ErrorIs(t, err, errStep)
	require.ErrorIs(t, err, lockcore.ErrLost)
	var got *lockcore.LostError
	require.ErrorAs(t, err, &got)
	var compensation *workflows.CompensationError
	require.ErrorAs(t, err, &compensation)
	require.Equal(t, 2, compensation.Number)
	require.False(t, temporal.IsCanceledError(err))
	require.ErrorContains(t, err, "compensation 1 (Undo)")
	require.Equal(t, lost, workflows.LockError(err))

	both := &workflows.SagaError{Err: temporal.NewCanceledError(), Compensations: []*workflows.CompensationError{{Number: 1, Err: temporal.NewCanceledError()}}}
	require.False(t, temporal.IsCanceledError(both))
	require.NoError(t, errors.Unwrap(both))
}

func TestNestedSaga_InACompensation_IsNotUndone(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			err := s.Compensate(ctx, func(ctx workflow.Context) error {
				return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					if err := s.CompensateWith(ctx, "Do", "undo of an undo"); err != nil {
						return err
					}
					return do(ctx, "Do", "undo")
				})
			})
			if err != nil {
				return err
			}
			return errStep
		})
	})
	require.ErrorContains(t, err, errStep.Error())
	require.Equal(t, []string{"undo"}, j.read())
}

func TestCompensateWith_ArgumentsThatCannotBeEncoded_Panics(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.CompensateWith(ctx, "Do", make(chan int))
		})
	})
	require.ErrorContains(t, err, "the arguments of the compensation Do cannot be encoded")
	require.Empty(t, j.read())
}

// A codec that fails once must not decide: the workflow task fails, and is repeated.
func TestSagaStep_ArgumentsThatCannotBeEncoded_Panics(t *testing.T) {
	t.Parallel()
	env, j := newEnv()
	err := execute(t, env, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(ctx, "Do", "Undo", make(chan int)).Get(ctx, nil)
		})
	})
	var panicked *temporal.PanicError
	require.ErrorAs(t, err, &panicked)
	require.ErrorContains(t, err, "the arguments of Saga.Step cannot be encoded")
	require.Empty(t, j.read())
}
