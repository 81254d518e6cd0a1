package worker_test

import (
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// feature is one way to use Lockstep, as a workflow whose histories are kept. A workflow that a release has recorded
// never changes: it stands for those that users have in flight.
type feature struct {
	name     string
	workflow func(ctx workflow.Context) error
	// commands are what its histories have; see the function commands.
	commands []string
	// before, where it is given, is recorded instead, by a worker without Lockstep.
	before func(ctx workflow.Context) error
	// drive starts it and does what it meets. Defaults to starting it.
	drive func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun
	// open says that it is recorded when it sleeps, and not when it has ended.
	open bool
	// until is the last version that did this. Defaults to empty: the code still does.
	until string
}

var features = []feature{
	{name: "unguarded", before: twoSteps, workflow: guarded(twoSteps), commands: []string{"Do", "Do", "completed"}},
	{
		name: "unguarded-timed-out", before: sleepsAfter("Stall"), workflow: guarded(sleepsAfter("Stall")), open: true,
		commands: []string{"Stall", "timer"},
	},
	{
		name: "unguarded-timed-out-and-ended", before: endsAfter("Stall"), workflow: guarded(endsAfter("Stall")),
		commands: []string{"Stall", "completed"},
	},
	{
		name: "timed-out", workflow: guarded(endsAfter("Stall")),
		commands: []string{"Stall", "version lockstep.traces", "local lockstep.Release", "completed"},
	},
	// The failure that is answered by waiting, in a run that did not.
	{
		name: "unguarded-busy", before: sleepsAfter("Park"), workflow: guarded(sleepsAfter("Park")), open: true,
		commands: []string{"Park", "timer"},
	},
	{name: "guarded-step", workflow: guarded(twoSteps), commands: []string{"Do", "Do", "completed"}},
	{name: "local-activity", workflow: localStep, commands: []string{"local Do", "completed"}},
	{
		name: "run-scope", workflow: runScope,
		commands: []string{"Do", "local lockstep.Release", "completed"},
	},
	{name: "saga", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Do"), commands: []string{"Do", "Do", "local lockstep.Release", "completed"}},
	{
		name: "compensation", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "Undo", "Undo", "local lockstep.Release", "failed: Refused"},
	},
	{
		name: "parallel-compensation", workflow: keptSaga(workflows.SagaOptions{ParallelCompensation: true}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "Undo", "Undo", "local lockstep.Release", "failed: Refused"},
	},
	{
		name: "lost", workflow: stopsBetweenSteps, drive: lostBetweenSteps,
		commands: []string{"Do", "Do", "Undo", "local lockstep.Release", "failed: lockstep.Lost"},
	},
	{
		name: "cancelled", workflow: stopsBetweenSteps, drive: cancelledBetweenSteps,
		commands: []string{"Do", "Undo", "local lockstep.Release", "cancelled"},
	},
	{name: "continue-as-new", workflow: continuesOnce, commands: []string{"Do", "local lockstep.Release", "continued as new"}},
	{name: "update", workflow: updatable, drive: updated, commands: []string{"update", "Do", "completed"}},
	{
		name: "tried", workflow: guardedBy(workflows.Locks{Try: true}), drive: whileTaken(nil),
		commands: []string{"Do", "failed: lockstep.Busy"},
	},
	{
		name: "waited", workflow: guarded(twoSteps), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"Do", "version lockstep.wait", "lockstep.Wait", "Do", "Do", "completed"},
	},
	{
		name: "saga-waited", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Do"), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"Do", "version lockstep.wait", "lockstep.Wait", "Do", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "local-activity-waited", workflow: localStep, drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"local Do", "version lockstep.wait", "lockstep.Wait", "local Do", "completed"},
	},
	{
		name: "wait-cancelled", workflow: guarded(twoSteps), drive: whileTaken((*bundle).cancelWhenParked),
		commands: []string{"Do", "version lockstep.wait", "lockstep.Wait", "local lockstep.Leave", "cancelled"},
	},
	{
		name: "wait-ended", workflow: guardedBy(workflows.Locks{MaxWait: time.Second}), drive: whileTaken(nil),
		commands: []string{"Do", "version lockstep.wait", "lockstep.Wait", "local lockstep.Leave", "failed: lockstep.Busy"},
	},
	{
		name: "deadlock", workflow: locksOneAfterTheOther, drive: inACircle,
		commands: []string{"Do", "Do", "version lockstep.wait", "lockstep.Wait", "Undo", "local lockstep.Release", "failed: lockstep.Deadlock"},
	},
	{
		name: "deadlock-retried", workflow: beginsAgain, drive: inACircle,
		commands: []string{
			"Do", "Do", "version lockstep.wait", "lockstep.Wait", "Undo", "local lockstep.Release", "timer", "Do", "Do", "local lockstep.Release", "completed",
		},
	},
	{name: "lock", workflow: locked(workflows.Locks{}), commands: []string{"local lockstep.Acquire", "Do", "local lockstep.Release", "completed"}},
	{
		name: "lock-waited", workflow: locked(workflows.Locks{}), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"local lockstep.Acquire", "lockstep.Wait", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "lock-kept-alive", workflow: locked(workflows.Locks{KeepAlive: true}),
		commands: []string{"local lockstep.Acquire", "lockstep.Keep", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "lock-upgraded", workflow: upgradesAndDowngrades,
		commands: []string{
			"local lockstep.Acquire", "local lockstep.Acquire", "Do", "local lockstep.Acquire", "local lockstep.Release", "completed",
		},
	},
	{
		name: "from-workflow", workflow: guardedBy(workflows.Locks{FromWorkflow: true}),
		commands: []string{"local lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
	{name: "handed-over", workflow: handsItsLocksOver, commands: []string{"Do", "continued as new"}},
	// Before steps waited outside of their own attempts, these were used up.
	{name: "attempts-used-up", workflow: guardedTwice, commands: []string{"Do", "local lockstep.Release", "failed: lockstep.Busy"}, until: "v0.0"},
	{
		name: "saga-attempts-used-up", workflow: sagaTwice, until: "v0.0",
		commands: []string{"Do", "Do", "Undo", "local lockstep.Release", "failed: lockstep.Busy"},
	},
}

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

type driver = func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun

// whileTaken starts the workflow while somebody else holds its lock; then does what comes then, and lets go.
func whileTaken(then func(*bundle, *testing.T, client.WorkflowRun, *lockcore.Session)) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		other := b.taken(t, account)
		run := start()
		if then != nil {
			then(b, t, run, other)
		} else {
			_ = run.Get(t.Context(), nil) // how it ends stands in its history
		}
		require.NoError(t, other.Leave(t.Context()))
		return run
	}
}

func (b *bundle) leaveWhenParked(t *testing.T, run client.WorkflowRun, other *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
}

func (b *bundle) cancelWhenParked(t *testing.T, run client.WorkflowRun, _ *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_ = run.Get(t.Context(), nil) // how it ends stands in its history
}

func lostBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{
		LockID: lockID(run), Resources: []string{account.Name}, Reason: "an operator wanted it",
	})
	require.NoError(t, err)
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

// inACircle lets somebody older wait for what the workflow holds, and hold what it waits for.
func inACircle(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	older := lockcore.Request{
		LockID: "somebody", Owner: "somebody", Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2},
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
