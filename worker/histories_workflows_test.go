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

// sleepsAfter lets a step fail, and goes on for long.
func sleepsAfter(step string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		return errors.Join(endsAfter(step)(ctx), workflow.Sleep(ctx, time.Hour))
	}
}

// endsAfter lets a step fail, and does not mind.
func endsAfter(step string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		err := do(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		}), step)
		if err == nil {
			return errors.New("the step did not fail")
		}
		return nil
	}
}

func guarded(fn func(workflow.Context) error) func(workflow.Context) error {
	return func(ctx workflow.Context) error { return fn(workflows.Guard(ctx, account)) }
}

func guardedBy(l workflows.Locks) func(workflow.Context) error {
	l.Resources = []lockcore.Resource{account}
	return func(ctx workflow.Context) error { return do(workflows.WithLocks(withOptions(ctx), l), "Do") }
}

func localStep(ctx workflow.Context) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
	return workflow.ExecuteLocalActivity(workflows.Guard(ctx, account), "Do").Get(ctx, nil)
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

// stopsBetweenSteps waits for a signal.
func endsWhileAStepWaits(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(workflows.Unguarded(ctx), "Undo")
		workflow.ExecuteActivity(workflows.Guard(ctx, account), "Do")
		workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
		return temporal.NewNonRetryableApplicationError("too late", "TooLate", nil)
	})
}

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
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
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
		err = do(withOptions(ctx), "Do")
		hold.Release(ctx)
		return err
	}
}

func upgradesAndDowngrades(ctx workflow.Context) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Shared(account.Name)}})
	if err != nil {
		return err
	}
	if err := hold.Upgrade(ctx); err != nil {
		return err
	}
	if err := do(withOptions(ctx), "Do"); err != nil {
		return err
	}
	err = hold.Downgrade(ctx)
	hold.Release(ctx)
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

// Two attempts, of which both find the lock busy.
func twice(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2},
	})
}

func guardedTwice(ctx workflow.Context) error {
	return do(workflows.Guard(twice(ctx), account), "Do")
}

func sagaTwice(ctx workflow.Context) error {
	return workflows.RunSaga(twice(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		free := workflows.Guard(ctx, account2)
		s.CompensateWith(free, "Undo")
		if err := do(free, "Do"); err != nil {
			return err
		}
		return do(workflows.Guard(ctx, account), "Do")
	})
}

// guardDo is a rule for the step that the recorded workflows do.
var guardDo = workflows.RuleFor("Do", func(any) workflows.Locks { return workflows.Locks{Resources: []lockcore.Resource{account}} })

func ruledSaga(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		for range 2 {
			if err := workflow.ExecuteActivity(ctx, "Do", "").Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
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
		for range times {
			workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
			err = errors.Join(err, do(withOptions(ctx), "Do"))
		}
		hold.Release(ctx)
		return err
	}
}

// startsAChildUnderALock starts itself as a child, which does nothing, and signals nobody, after a signal.
func startsAChildUnderALock(ctx workflow.Context) error {
	info := workflow.GetInfo(ctx)
	if info.ParentWorkflowExecution != nil {
		return nil
	}
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{account}})
	if err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	err = workflow.ExecuteChildWorkflow(ctx, info.WorkflowType.Name).Get(ctx, nil)
	if workflow.SignalExternalWorkflow(ctx, "nobody", "", "done", nil).Get(ctx, nil) == nil {
		err = errors.Join(err, errors.New("somebody was there"))
	}
	hold.Release(ctx)
	return err
}

// locksAfterASignal does its step under a lock, after a signal.
func locksAfterASignal(ctx workflow.Context) error {
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return locked(workflows.Locks{})(ctx)
}

// waitsInVain is a saga whose step, and so its undoing, never runs; then it waits for a signal.
func waitsInVain(ctx workflow.Context) error {
	err := workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second, Scope: workflows.ScopeStep})
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
	hold.Release(ctx)
	return nil
}

func triesInASaga(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true})
		return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
	})
}

func registersAndTries(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true})
		s.CompensateWith(ctx, "Undo")
		return do(ctx, "Do")
	})
}
