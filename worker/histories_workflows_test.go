package worker_test

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// The workflows whose histories are kept: see feature.

var account2 = lockcore.Exclusive("account/2")

func withOptions(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
}

func twoSteps(ctx workflow.Context) error {
	ctx = withOptions(ctx)
	if err := do(ctx, "Do"); err != nil {
		return err
	}
	return do(ctx, "Do")
}

func guarded(fn func(workflow.Context) error) func(workflow.Context) error {
	return func(ctx workflow.Context) error { return fn(workflows.Guard(ctx, account)) }
}

func guardedBy(l workflows.Locks) func(workflow.Context) error {
	l.Resources = []lockcore.Resource{account}
	return func(ctx workflow.Context) error { return do(workflows.WithLocks(withOptions(ctx), l), "Do") }
}

func runScope(ctx workflow.Context) error {
	return guardedBy(workflows.Locks{Scope: workflows.ScopeSaga})(ctx)
}

func keptSaga(o workflows.SagaOptions, steps ...string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		return workflows.RunSaga(withOptions(ctx), o, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			for _, step := range steps {
				s.CompensateWith(ctx, "Undo")
				if err := do(ctx, step); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// endsWhileAStepWaits fails, after a signal, while its step waits.
func endsWhileAStepWaits(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(workflows.Unguarded(ctx), "Undo")
		workflow.ExecuteActivity(workflows.Guard(ctx, account), "Do")
		workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
		return temporal.NewNonRetryableApplicationError("too late", "TooLate", nil)
	})
}

// stopsBetweenSteps waits for a signal.
func stopsBetweenSteps(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		s.CompensateWith(ctx, "Undo")
		if err := do(ctx, "Do"); err != nil {
			return err
		}
		if err := workflow.Await(ctx, func() bool { return workflow.GetSignalChannel(ctx, "go").Len() > 0 }); err != nil {
			return err
		}
		return do(ctx, "Do")
	})
}

func continuesOnce(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		return nil
	}
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := do(workflows.Guard(ctx, account), "Do"); err != nil {
			return err
		}
		return workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name)
	})
}

func updatable(ctx workflow.Context) error {
	done := false
	err := workflow.SetUpdateHandler(ctx, "do", func(ctx workflow.Context) error {
		err := do(workflows.Guard(withOptions(ctx), account), "Do")
		done = true
		return err
	})
	return errors.Join(err, workflow.Await(ctx, func() bool { return done }))
}

func locksOneAfterTheOther(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{DeadlockRetries: -1}, func(ctx workflow.Context, s *workflows.Saga) error {
		first := workflows.Guard(ctx, account)
		s.CompensateWith(first, "Undo")
		if err := do(first, "Do"); err != nil {
			return err
		}
		return do(workflows.Guard(ctx, account2), "Do")
	})
}

// beginsAgain is a saga that a deadlock ends once.
func beginsAgain(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{DeadlockRetries: 3}, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Step(workflows.Guard(ctx, account), "Do", "Undo").Get(ctx, nil); err != nil {
			return err
		}
		return s.Step(workflows.Guard(ctx, account2), "Do", "Undo").Get(ctx, nil)
	})
}

func locked(l workflows.Locks) func(workflow.Context) error {
	l.Resources = []lockcore.Resource{account}
	return func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, l)
		if err != nil {
			return err
		}
		return released(ctx, hold, do(withOptions(ctx), "Do"))
	}
}

// released releases a Hold, and returns the first of the errors as it is.
func released(ctx workflow.Context, hold *workflows.Hold, err error) error {
	if lost := hold.Release(ctx); err == nil {
		err = lost
	}
	return err
}

func handsItsLocksOver(ctx workflow.Context) error {
	again := workflow.GetInfo(ctx).ContinuedExecutionRunID != ""
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := do(workflows.Guard(ctx, account), "Do"); err != nil || again {
			return err
		}
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name))
	})
}

// stopsUnderALock waits for signals between steps under a lock.
func stopsUnderALock(l workflows.Locks, times int) func(ctx workflow.Context) error {
	l.Resources = []lockcore.Resource{account}
	return func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, l)
		if err != nil {
			return err
		}
		err = do(withOptions(ctx), "Do")
		for i := 0; i < times && err == nil; i++ {
			workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
			err = do(withOptions(ctx), "Do")
		}
		return released(ctx, hold, err)
	}
}

// waitsInVain is a saga whose step, and so its undoing, never runs; then it waits for a signal.
func waitsInVain(ctx workflow.Context) error {
	err := workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second})
		return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
	})
	if !lockcoreBusy(err) {
		return errors.Join(err, errors.New("it was not busy"))
	}
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return do(withOptions(ctx), "Do")
}

func handsALockOver(ctx workflow.Context) error {
	again := workflow.GetInfo(ctx).ContinuedExecutionRunID != ""
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{account}})
	if err != nil {
		return err
	}
	if err := do(withOptions(ctx), "Do"); err != nil {
		return err
	}
	if !again {
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name))
	}
	return hold.Release(ctx)
}

func triesInASaga(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true})
		return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
	})
}
