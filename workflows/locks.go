package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope says how long a guarded step's locks are held.
type Scope string

const (
	// ScopeStep lets the locks go when the step returns. Each such step is a party of its own within its workflow: two of
	// one workflow exclude each other, and count separately under a limit. What the workflow itself keeps, by a saga or
	// [Lock], does not block them. [Saga.Step] refuses it.
	ScopeStep Scope = wire.ScopeStep
	// ScopeSaga keeps the locks after the step has returned, until the saga around it has committed or
	// has finished compensating. Outside a saga it keeps them until the workflow function has returned.
	ScopeSaga Scope = wire.ScopeSaga
)

// Locks is what a step must hold before it runs. The zero value of every field but Resources is the
// usual choice.
type Locks struct {
	// Resources are taken together, in the order of their names: 1 to 100. If several have the same name, one lock is taken, in the
	// stronger mode and with the lower limit.
	Resources []lockcore.Resource
	// Scope says how long they are held. Defaults to ScopeSaga inside [RunSaga], to ScopeStep elsewhere.
	Scope Scope
	// TTL is how long the process that runs the step may be silent before others may displace it:
	// 100 ms to ten years, or lockcore.Forever. Defaults to the TTL of the activity worker's Locker.
	TTL time.Duration
	// HoldTTL, with ScopeSaga, is how long the locks stand between two steps with no sign of life:
	// 100 ms to ten years, or lockcore.Forever, and not less than TTL. ScopeStep ignores it. Defaults to
	// the HoldTTL of the activity worker's Locker.
	HoldTTL time.Duration
	// Owner is who waits and holds, for people and for deadlock detection. Defaults to the workflow, as its namespace's ID,
	// "/" and its workflow ID.
	Owner string
	// MaxWait is how long the step may wait for its locks, all its schedulings together, before it fails with a
	// *lockcore.BusyError. It counts from the first attempt that gives up its slot, without the time in which the step ran, and
	// no attempt waits longer in one. It is no part of the step's own timeouts and attempts: after a wait the step is scheduled
	// again with what is left of them. What an attempt waits for a turn that is near is part of its own time, up to a quarter
	// of it. If no worker takes the activity that waits, it ends 10 s later. Compensations do not heed it: they have to run.
	// That of a [Saga.Step] which gave up its wait is dropped. 0 or more. Defaults to 0, which is as long as it takes.
	MaxWait time.Duration
	// Try fails the step at once with a *lockcore.BusyError if its locks are busy, and leaves no place in a queue. A
	// retry policy whose NonRetryableErrorTypes name "lockstep.Busy" does the same. Compensations do not heed either, as with MaxWait.
	// The workflow's own step before may still hold the lock for a moment after its result has come, if another worker ran it.
	Try bool
}

// WithLocks returns a context under which every activity is a guarded step: its locks are taken when
// it is entered, renewed while it runs, and let go as l.Scope says. It takes nothing by itself, adds
// no event to the history, and does not change ctx. Local activities are refused, with a
// *lockcore.InvalidError; child workflows and timers are not guarded.
//
// A WithLocks inside another adds to it: a step holds what both name, on a resource of both in the stronger mode, and all of it
// for the longer scope. Of the other options those of the inner one count, if it sets them. [Unguarded] starts over.
//
// A step whose locks cannot be had fails with an error that matches [lockcore.ErrBusy],
// [lockcore.ErrLost], [lockcore.ErrDeadlock], [lockcore.ErrSuperseded] or [lockcore.ErrInvalid], and the
// types that go with them, or [lockcore.ErrEnded] if its saga ends while it waits. Cancelling ctx cancels the step, also while
// it waits for its locks. A step that has waited is scheduled as
// another activity: it begins with attempt 1, and no heartbeat details. The future of a guarded step becomes ready one round of
// coroutines later than that of an unguarded one, so a Selector may prefer a timer that fires in the same workflow task.
//
// WithLocks panics, and so fails the workflow task and not the workflow, if the worker runs
// without Lockstep's interceptor: a step is never run unguarded by mistake. See the package worker.
func WithLocks(ctx workflow.Context, l Locks) workflow.Context {
	if runstate.StateFrom(ctx) == nil {
		panic(notInstalled)
	}
	locks := l.asked()
	return runstate.WithLocks(ctx, &locks)
}

func (l Locks) asked() runstate.Locks {
	return runstate.Locks{
		Resources: wire.Merge(nil, l.Resources...),
		Scope:     string(l.Scope),
		TTL:       l.TTL,
		HoldTTL:   l.HoldTTL,
		Owner:     wire.Owner{Name: l.Owner},
		MaxWait:   l.MaxWait,
		Try:       l.Try,
	}
}

const notInstalled = "lockstep: this workflow asks for locks, but its worker runs without Lockstep's interceptor: " +
	"add worker.NewPlugin(…) to client.Options.Plugins or to worker.Options.Plugins, " +
	"or worker.Interceptor(…) to worker.Options.Interceptors"

// Guard is [WithLocks] with nothing but resources. A Guard inside another adds to it:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.Shared("rates"))
func Guard(ctx workflow.Context, resources ...lockcore.Resource) workflow.Context {
	return WithLocks(ctx, Locks{Resources: resources})
}

// Unguarded returns a context whose activities are not guarded, for a step in between that needs no
// locks. What the saga holds stays held.
func Unguarded(ctx workflow.Context) workflow.Context {
	return runstate.WithLocks(ctx, nil)
}
