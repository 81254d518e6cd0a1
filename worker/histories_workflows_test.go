package worker_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
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
				if err := s.CompensateWith(ctx, "Undo"); err != nil {
					return err
				}
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
		if err := s.CompensateWith(workflows.Unguarded(ctx), "Undo"); err != nil {
			return err
		}
		workflow.ExecuteActivity(workflows.Guard(ctx, account), "Do")
		workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
		return temporal.NewNonRetryableApplicationError("too late", "TooLate", nil)
	})
}

// stopsBetweenSteps waits for a signal.
func stopsBetweenSteps(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := s.CompensateWith(ctx, "Undo"); err != nil {
			return err
		}
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
		if err := s.CompensateWith(first, "Undo"); err != nil {
			return err
		}
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

// handsOverAfterASaga hands a lock over in the workflow task in which a saga has released another one.
func handsOverAfterASaga(ctx workflow.Context) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{account}})
	if err != nil {
		return err
	}
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		return released(ctx, hold, do(withOptions(ctx), "Do"))
	}
	err = workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		return do(workflows.Guard(ctx, account2), "Do")
	})
	if err != nil {
		return err
	}
	return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name))
}

func verifies(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := do(workflows.Guard(ctx, account), "Do"); err != nil {
			return err
		}
		return s.Verify(ctx)
	})
}

func sleepsInASaga(d time.Duration) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := do(workflows.Guard(ctx, account), "Do"); err != nil {
				return err
			}
			return workflow.Sleep(ctx, d)
		})
	}
}

func triesInASaga(ctx workflow.Context) error {
	return workflows.RunSaga(withOptions(ctx), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true})
		return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
	})
}

// driver does what a workflow meets whose history is recorded.
type driver = func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun

// whileTaken starts the workflow while another party holds its lock, calls then, and releases the lock.
func whileTaken(then func(*bundle, *testing.T, client.WorkflowRun, *lockcore.Session)) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		other := b.taken(t, account)
		run := start()
		if then != nil {
			then(b, t, run, other)
		} else {
			_ = run.Get(t.Context(), nil) // its history shows how it ended
		}
		require.NoError(t, other.Leave(t.Context()))
		return run
	}
}

func (b *bundle) leaveWhenParked(t *testing.T, run client.WorkflowRun, other *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
}

func (b *bundle) goOnWhenParked(t *testing.T, run client.WorkflowRun, _ *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	_ = run.Get(t.Context(), nil) // its history shows how it ended
}

func (b *bundle) cancelWhenParked(t *testing.T, run client.WorkflowRun, _ *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_ = run.Get(t.Context(), nil) // its history shows how it ended
}

func lostBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	b.forceRelease(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	return run
}

func cancelledBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	return run
}

func updated(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		UpdateID: "update", WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "do", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	return run
}

// resetBetweenSteps resets a workflow as often as it waits for a signal, where it waits.
func resetBetweenSteps(times int) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		run := start()
		for range times {
			run = b.reset(t, run, b.untilIdle(t, run))
			b.signal(t, run, "go")
		}
		return run
	}
}

// untilHeldBy waits until a run holds the account, alone.
func (b *bundle) untilHeldBy(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Equal(b.runs(t, account.Name), []string{run.GetRunID()})
	}, within, lookEvery, "the account is not held")
}

// resetAfterAWait lets the workflow wait for its lock in vain, and resets it after that.
func resetAfterAWait(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	other := b.taken(t, account)
	old := start()
	b.untilParked(t, old)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	tasks := b.untilIdle(t, old)
	b.signal(t, old, "noise")
	b.completed(t, old, tasks+1)
	run := b.reset(t, old, tasks+1)
	b.signal(t, run, "go")
	return run
}

// nextRun is the run that continues the one which is started.
func nextRun(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	return b.untilContinued(t, start())
}

// inACircle makes an older party wait for what the workflow holds, and hold what the workflow waits for.
func inACircle(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	older := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "somebody"}, Owner: "somebody", Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2},
	}
	holds, err := b.locker.TryAcquire(t.Context(), older)
	require.NoError(t, err)
	run := start()
	b.untilParked(t, run)
	older.Resources = []lockcore.Resource{account}
	got, err := b.locker.Acquire(t.Context(), older)
	require.NoError(t, err)
	require.NoError(t, errors.Join(got.Leave(t.Context()), holds.Leave(t.Context())))
	return run
}

// feature is one way to use Lockstep, as a workflow whose histories are kept. A workflow that a release has recorded
// never changes: it represents the workflows that users have in flight.
type feature struct {
	name     string
	workflow func(ctx workflow.Context) error
	// commands are those in its histories; see the function commands.
	commands []string
	// without is set if it is recorded by a worker without Lockstep.
	without bool
	// drive starts it and does what it meets. Defaults to starting it.
	drive func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun
	// work starts its worker. Defaults to one with all of it.
	work func(b *bundle, t *testing.T)
}

var features = []feature{
	{name: "unguarded", without: true, workflow: twoSteps, commands: []string{"Do", "Do", "completed"}},
	{name: "guarded-step", workflow: guarded(twoSteps), commands: []string{"Do", "Do", "completed"}},
	{name: "run-scope", workflow: runScope, commands: []string{"Do", "completed"}},
	{name: "saga", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Do"), commands: []string{"Do", "Do", "completed"}},
	{name: "verified", workflow: verifies, commands: []string{"Do", "lockstep.Verify", "completed"}},
	{name: "commit-after-4m59s", workflow: sleepsInASaga(4*time.Minute + 59*time.Second), commands: []string{"Do", "timer", "completed"}},
	{name: "commit-after-5m01s", workflow: sleepsInASaga(5*time.Minute + time.Second), commands: []string{"Do", "timer", "lockstep.Verify", "completed"}},
	{
		name: "compensation", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "lockstep.Bar", "Undo", "Undo", "failed: Refused"},
	},
	{
		name: "parallel-compensation", workflow: keptSaga(workflows.SagaOptions{ParallelCompensation: true}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "lockstep.Bar", "Undo", "Undo", "failed: Refused"},
	},
	{
		name: "lost", workflow: stopsBetweenSteps, drive: lostBetweenSteps,
		commands: []string{"Do", "Do", "lockstep.Bar", "Undo", "failed: lockstep.Lost"},
	},
	{
		name: "cancelled", workflow: stopsBetweenSteps, drive: cancelledBetweenSteps,
		commands: []string{"Do", "lockstep.Bar", "Undo", "cancelled"},
	},
	{name: "continue-as-new", workflow: continuesOnce, commands: []string{"Do", "continued as new"}},
	{name: "update", workflow: updatable, drive: updated, commands: []string{"update", "Do", "completed"}},
	{
		name: "tried", workflow: guardedBy(workflows.Locks{Try: true}), drive: whileTaken(nil),
		commands: []string{"Do", "failed: lockstep.Busy"},
	},
	{
		name: "saga-tried", workflow: triesInASaga, drive: whileTaken(nil),
		commands: []string{"Do", "failed: lockstep.Busy"},
	},
	{
		name: "waited", workflow: guarded(twoSteps), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"Do", "lockstep.Wait", "Do", "Do", "completed"},
	},
	{
		name: "saga-waited", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Do"), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"Do", "lockstep.Wait", "Do", "Do", "completed"},
	},
	{
		name: "wait-cancelled", workflow: guarded(twoSteps), drive: whileTaken((*bundle).cancelWhenParked),
		commands: []string{"Do", "lockstep.Wait", "cancelled"},
	},
	{
		name: "wait-ended", workflow: guardedBy(workflows.Locks{MaxWait: time.Second}), drive: whileTaken(nil),
		commands: []string{"Do", "lockstep.Wait", "failed: lockstep.Busy"},
	},
	{
		name: "saga-ended-waiting", workflow: endsWhileAStepWaits, drive: whileTaken((*bundle).goOnWhenParked),
		commands: []string{
			"Do", "lockstep.Wait", "lockstep.Bar", "lockstep.Leave", "Undo", "failed: TooLate",
		},
	},
	{
		name: "deadlock", workflow: locksOneAfterTheOther, drive: inACircle,
		commands: []string{"Do", "Do", "lockstep.Wait", "Do", "lockstep.Bar", "Undo", "failed: lockstep.Deadlock"},
	},
	{
		name: "deadlock-retried", workflow: beginsAgain, drive: inACircle,
		commands: []string{
			"Do", "Do", "lockstep.Wait", "Do", "lockstep.Bar", "Undo", "lockstep.Release", "timer", "Do", "Do", "completed",
		},
	},
	{name: "lock", workflow: locked(workflows.Locks{}), commands: []string{"lockstep.Acquire", "Do", "completed"}},
	{
		name: "lock-waited", workflow: locked(workflows.Locks{}), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"lockstep.Acquire", "Do", "completed"},
	},
	{name: "handed-over", workflow: handsItsLocksOver, commands: []string{"Do", "continued as new"}},
	{
		name: "reset", workflow: stopsBetweenSteps, drive: resetBetweenSteps(1),
		commands: []string{"Do", "reset", "Do", "completed"},
	},
	{
		name: "lock-reset-often", workflow: stopsUnderALock(workflows.Locks{}, 3), drive: resetBetweenSteps(3),
		commands: []string{
			"lockstep.Acquire", "Do", "reset", "Do", "reset", "Do", "reset", "Do", "completed",
		},
	},
	{
		name: "waited-in-vain-reset", workflow: waitsInVain, drive: resetAfterAWait,
		commands: []string{"Do", "lockstep.Wait", "lockstep.Leave", "lockstep.Release", "reset", "Do", "completed"},
	},
	{name: "lock-handed-over", workflow: handsALockOver, commands: []string{"lockstep.Acquire", "Do", "continued as new"}},
	{
		name: "released-by-the-next-run", workflow: handsOverAfterASaga, drive: nextRun,
		commands: []string{"lockstep.Acquire", "lockstep.Release", "Do", "completed"},
	},
	{
		name: "lock-of-the-next-run", workflow: handsALockOver, drive: nextRun,
		commands: []string{"lockstep.Acquire", "Do", "completed"},
	},
}
