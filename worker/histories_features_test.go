package worker_test

import (
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// feature is one way to use Lockstep, as a workflow whose histories are kept. A workflow that a release has recorded
// never changes: it stands for those that users have in flight.
type feature struct {
	name     string
	workflow func(ctx workflow.Context) error
	// commands are what its histories have; see the function commands.
	commands []string
	// without says that it is recorded by a worker without Lockstep.
	without bool
	// drive starts it and does what it meets. Defaults to starting it.
	drive func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun
	// work starts its worker. Defaults to one with all of it.
	work func(b *bundle, t *testing.T)
}

var features = []feature{
	{name: "unguarded", without: true, workflow: twoSteps, commands: []string{"Do", "Do", "completed"}},
	{name: "guarded-step", workflow: guarded(twoSteps), commands: []string{"Do", "Do", "completed"}},
	{
		name: "run-scope", workflow: runScope,
		commands: []string{"Do", "local lockstep.Release", "completed"},
	},
	{name: "saga", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Do"), commands: []string{"Do", "Do", "local lockstep.Release", "completed"}},
	{
		name: "compensation", workflow: keptSaga(workflows.SagaOptions{}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "Undo", "Undo", "failed: Refused"},
	},
	{
		name: "parallel-compensation", workflow: keptSaga(workflows.SagaOptions{ParallelCompensation: true}, "Do", "Refuse"),
		commands: []string{"Do", "Refuse", "Undo", "Undo", "failed: Refused"},
	},
	{
		name: "lost", workflow: stopsBetweenSteps, drive: lostBetweenSteps,
		commands: []string{"Do", "Do", "Undo", "failed: lockstep.Lost"},
	},
	{
		name: "cancelled", workflow: stopsBetweenSteps, drive: cancelledBetweenSteps,
		commands: []string{"Do", "Undo", "cancelled"},
	},
	{name: "continue-as-new", workflow: continuesOnce, commands: []string{"Do", "local lockstep.Release", "continued as new"}},
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
		commands: []string{"Do", "lockstep.Wait", "Do", "Do", "local lockstep.Release", "completed"},
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
			"Do", "lockstep.Wait", "lockstep.Leave", "Undo", "failed: TooLate",
		},
	},
	{
		name: "deadlock", workflow: locksOneAfterTheOther, drive: inACircle,
		commands: []string{"Do", "Do", "lockstep.Wait", "Do", "Undo", "failed: lockstep.Deadlock"},
	},
	{
		name: "deadlock-retried", workflow: beginsAgain, drive: inACircle,
		commands: []string{
			"Do", "Do", "lockstep.Wait", "Do", "Undo", "lockstep.Release", "timer", "Do", "Do", "local lockstep.Release", "completed",
		},
	},
	{name: "lock", workflow: locked(workflows.Locks{}), commands: []string{"lockstep.Acquire", "Do", "local lockstep.Release", "completed"}},
	{
		name: "lock-waited", workflow: locked(workflows.Locks{}), drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
	{name: "handed-over", workflow: handsItsLocksOver, commands: []string{"Do", "local lockstep.Keep", "continued as new"}},
	{
		name: "reset", workflow: stopsBetweenSteps, drive: resetBetweenSteps(1),
		commands: []string{"Do", "reset", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "lock-reset-often", workflow: stopsUnderALock(workflows.Locks{}, 3), drive: resetBetweenSteps(3),
		commands: []string{
			"lockstep.Acquire", "Do", "reset", "Do", "reset", "Do", "reset", "Do", "local lockstep.Release", "completed",
		},
	},
	{
		name: "waited-in-vain-reset", workflow: waitsInVain, drive: resetAfterAWait,
		commands: []string{"Do", "lockstep.Wait", "lockstep.Leave", "lockstep.Release", "reset", "Do", "completed"},
	},
	{name: "lock-handed-over", workflow: handsALockOver, commands: []string{"lockstep.Acquire", "Do", "local lockstep.Keep", "continued as new"}},
	{
		name: "lock-of-the-next-run", workflow: handsALockOver, drive: nextRun,
		commands: []string{"lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
}
