package worker_test

import (
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
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
	// before, where it is given, is recorded instead, by a worker without Lockstep.
	before func(ctx workflow.Context) error
	// rules are those of its worker. Defaults to none.
	rules []workflows.Rule
	// drive starts it and does what it meets. Defaults to starting it.
	drive func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun
	// work starts its worker. Defaults to one with all of it.
	work func(b *bundle, t *testing.T)
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
		name: "saga-step-tried", workflow: triesInASaga, drive: whileTaken(nil),
		commands: []string{"Do", "local lockstep.Release", "failed: lockstep.Busy"},
	},
	{
		name: "saga-tried", workflow: registersAndTries, drive: whileTaken(nil),
		commands: []string{"Do", "version lockstep.vain", "local lockstep.Release", "failed: lockstep.Busy"},
	},
	{
		name: "saga-tried-and-undone", until: unreleased, workflow: registersAndTries, drive: whileTaken((*bundle).leaveWhenParked),
		commands: []string{"Do", "Undo", "version lockstep.wait", "lockstep.Wait", "Undo", "local lockstep.Release", "failed: lockstep.Busy"},
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
		name: "saga-ended-waiting", workflow: endsWhileAStepWaits, drive: whileTaken((*bundle).goOnWhenParked),
		commands: []string{
			"Do", "version lockstep.wait", "lockstep.Wait", "version lockstep.ended", "local lockstep.Leave", "Undo", "local lockstep.Release", "failed: TooLate",
		},
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
	{
		name: "rule-in-a-saga", workflow: ruledSaga, rules: []workflows.Rule{guardDo},
		commands: []string{"version lockstep.rules/Do", "Do", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "reset", workflow: stopsBetweenSteps, drive: resetBetweenSteps(1),
		commands: []string{"Do", "reset", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "lock-reset-at-once", workflow: stopsUnderALock(workflows.Locks{}, 1), drive: resetAndTakenAnew,
		commands: []string{
			"local lockstep.Acquire", "Do", "reset", "version lockstep.anew", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed",
		},
	},
	{
		name: "lock-reset-often-at-once", workflow: stopsUnderALock(workflows.Locks{}, 3), drive: resetBetweenSteps(3),
		commands: []string{
			"local lockstep.Acquire", "Do", "reset", "version lockstep.anew", "local lockstep.Acquire", "Do", "reset", "local lockstep.Acquire", "Do",
			"reset", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed",
		},
	},
	{
		name: "lock-kept-alive-reset-at-once", workflow: stopsUnderALock(workflows.Locks{KeepAlive: true}, 1), drive: resetAndTakenAnew,
		commands: []string{
			"local lockstep.Acquire", "lockstep.Keep", "Do", "reset", "version lockstep.anew", "local lockstep.Acquire", "lockstep.Keep", "Do",
			"local lockstep.Release", "completed",
		},
	},
	{
		name: "lock-reset-child", workflow: startsAChildUnderALock, drive: resetBehindSomebody,
		commands: []string{
			"local lockstep.Acquire", "reset", "version lockstep.anew", "local lockstep.Acquire", "lockstep.Wait", "local lockstep.Acquire",
			"child", "signal", "local lockstep.Release", "completed",
		},
	},
	{
		name: "from-workflow-reset", workflow: guardedBy(workflows.Locks{FromWorkflow: true}), drive: resetWhileAStepIsPending,
		work: func(b *bundle, t *testing.T) { b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil) },
		commands: []string{
			"local lockstep.Acquire", "Do", "reset", "version lockstep.anew", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed",
		},
	},
	// Before locks were taken anew at once after a reset, the next activity found out, or the end of a keep-alive.
	{
		name: "lock-reset", until: unreleased, workflow: stopsUnderALock(workflows.Locks{}, 1), drive: resetBetweenSteps(1),
		commands: []string{"local lockstep.Acquire", "Do", "reset", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
	{
		name: "lock-reset-often", until: unreleased, workflow: stopsUnderALock(workflows.Locks{}, 3), drive: resetBetweenSteps(3),
		commands: []string{
			"local lockstep.Acquire", "Do", "reset", "local lockstep.Acquire", "Do", "reset", "local lockstep.Acquire", "Do",
			"reset", "local lockstep.Acquire", "Do", "local lockstep.Release", "completed",
		},
	},
	{
		name: "lock-kept-alive-reset-sleeps", until: unreleased, workflow: stopsUnderALock(workflows.Locks{KeepAlive: true}, 1), drive: resetAndTakenAnew,
		commands: []string{
			"local lockstep.Acquire", "lockstep.Keep", "Do", "reset", "version lockstep.keep", "local lockstep.Acquire", "lockstep.Keep", "Do",
			"local lockstep.Release", "completed",
		},
	},
	// Before the end of a keep-alive told of a reset, the next activity found out.
	{
		name: "lock-kept-alive-reset", until: unreleased, workflow: stopsUnderALock(workflows.Locks{KeepAlive: true}, 1), drive: resetBetweenSteps(1),
		commands: []string{
			"local lockstep.Acquire", "lockstep.Keep", "Do", "reset", "local lockstep.Acquire", "lockstep.Keep", "Do", "local lockstep.Release", "completed",
		},
	},
	{
		name: "lock-asked-for-between-resets", workflow: locksAfterASignal, work: (*bundle).workWithoutADatabase, drive: resetWhileItAsks,
		commands: []string{"reset", "local lockstep.Acquire", "lockstep.Acquire", "reset", "Do", "local lockstep.Release", "lockstep.Release", "completed"},
	},
	{
		name: "waited-in-vain-reset", workflow: waitsInVain, drive: resetAfterAWait,
		commands: []string{"Do", "version lockstep.wait", "lockstep.Wait", "local lockstep.Leave", "reset", "Do", "completed"},
	},
	{name: "lock-handed-over", workflow: handsALockOver, commands: []string{"local lockstep.Acquire", "Do", "continued as new"}},
	{
		name: "lock-of-the-next-run", workflow: handsALockOver, drive: nextRun,
		commands: []string{"local lockstep.Acquire", "Do", "local lockstep.Release", "completed"},
	},
	// Before steps waited outside of their own attempts, these were used up.
	{name: "attempts-used-up", workflow: guardedTwice, commands: []string{"Do", "local lockstep.Release", "failed: lockstep.Busy"}, until: "v0.0"},
	{
		name: "saga-attempts-used-up", workflow: sagaTwice, until: "v0.0",
		commands: []string{"Do", "Do", "Undo", "local lockstep.Release", "failed: lockstep.Busy"},
	},
}
