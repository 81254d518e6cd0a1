package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope is the lifetime of a guarded step's locks.
type Scope string

const (
	// ScopeStep releases the locks when the step returns. Each such step has locks of its own: two steps of one workflow exclude each other,
	// and count separately under a limit. Locks that the workflow holds by a saga or [Lock] do not block them. [Saga.Step] refuses it.
	ScopeStep Scope = wire.ScopeStep
	// ScopeSaga keeps the locks after the step has returned, until the saga around it has committed or has finished compensating. Outside a
	// saga it keeps them until the workflow function has returned.
	ScopeSaga Scope = wire.ScopeSaga
)

// Locks describes the locks of a step, or of [Lock]. Only Resources is required.
type Locks struct {
	// Resources lists 1 to 100 resources, which are acquired in the order of their names. If several have the same name, one lock is
	// acquired, in the stronger mode and with the lower limit.
	Resources []lockcore.Resource
	// Scope is the lifetime of the locks. Defaults to ScopeSaga inside [RunSaga], and to ScopeStep elsewhere.
	Scope Scope
	// TTL is the time after which others may take the step's locks if its process does not renew them: 100 ms to ten years, or
	// lockcore.Forever. Defaults to the TTL of the activity worker's Locker.
	TTL time.Duration
	// HoldTTL is the time for which locks of ScopeSaga, and those of [Lock], last between two steps if nothing extends them: 15 min to ten years, or
	// lockcore.Forever, and not less than TTL. A shorter one is refused, because a saga that has used its locks within the last five minutes commits
	// without asking the database. Defaults to the HoldTTL of the activity worker's Locker.
	HoldTTL time.Duration
	// MaxWait bounds the time for which the step waits after it has given up its worker slot, without the time in which it ran. After that
	// the step fails with a *lockcore.BusyError. Each wait in a slot is bounded by MaxWait separately. For [Lock] it bounds the whole wait.
	// 0 or more. Defaults to 0, which means as long as it takes.
	//
	// A wait in a slot takes at most two seconds and at most a quarter of the attempt's time, and is part of the attempt. If no worker polls
	// the task queue, the wait ends 10 s after MaxWait. Compensations ignore MaxWait, because they must run. If a [Saga.Step] gave up waiting,
	// its compensation does not run.
	MaxWait time.Duration
	// Try fails the step at once with a *lockcore.BusyError if its locks are busy, and leaves no request in a queue. A retry policy whose
	// NonRetryableErrorTypes contain "lockstep.Busy" does the same. Compensations ignore both, as they ignore MaxWait. A previous ScopeStep
	// step of the workflow, on another worker, may still hold the lock for a moment after its result has arrived. Defaults to false.
	Try bool
}

// guard returns the prototype of the guards of steps with these locks, with each name once.
func (l Locks) guard() *wire.Guard {
	return &wire.Guard{
		Resources: wire.Resources(wire.Merge(nil, l.Resources...)...), Scope: string(l.Scope), Try: l.Try,
		TTL: wire.Duration(l.TTL), HoldTTL: wire.Duration(l.HoldTTL), MaxWait: wire.Duration(l.MaxWait),
	}
}

// installed returns the state of the run. It panics, and so fails the workflow task, if the worker runs without Lockstep's interceptor.
func installed(ctx workflow.Context) *runstate.State {
	state := runstate.StateFrom(ctx)
	if state == nil {
		panic("lockstep: this workflow asks for locks, but its worker runs without Lockstep's interceptor: " +
			"add worker.NewPlugin(…) to client.Options.Plugins or to worker.Options.Plugins, " +
			"or worker.Interceptor(…) to worker.Options.Interceptors")
	}
	return state
}

// Guard is [WithLocks] with resources only. A Guard on a guarded context adds to it:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.Shared("rates"))
//	printing := workflows.Guard(ctx, lockcore.SharedLimit("printer", 2)) // all three
func Guard(ctx workflow.Context, resources ...lockcore.Resource) workflow.Context {
	return WithLocks(ctx, Locks{Resources: resources})
}

// WithLocks returns a context under which every activity is a guarded step: its worker acquires the locks before the activity's function
// runs, renews them while it runs, and releases them according to l.Scope. WithLocks itself acquires no lock, and adds no event to the history.
// Local activities under the context are refused with a *lockcore.InvalidError. Child workflows and timers are not guarded.
//
// WithLocks on a guarded context adds to it: a step holds the resources of both, in the stronger mode if both name the same one. If either
// has ScopeSaga, both have. Other options that the inner one sets replace those of the outer one. [Unguarded] removes all of them.
//
// A step whose locks cannot be acquired fails with an error that matches [lockcore.ErrBusy], [lockcore.ErrLost], [lockcore.ErrDeadlock],
// [lockcore.ErrSuperseded] or [lockcore.ErrInvalid], and the types that go with them, or [lockcore.ErrEnded] if its saga is undone, or ends while it
// waits. If the step's own code fails because another workflow has lost its locks, or the like, the error does not match: read it with
// [LockError]. Cancelling ctx also cancels the wait for locks. A step that has waited is scheduled as another activity: it begins with attempt 1,
// fewer attempts and less time left, and no heartbeat details. The future of a guarded step becomes ready slightly later within the workflow
// task than that of an unguarded one, so a Selector may prefer a timer that fires in the same workflow task.
//
// WithLocks panics, and so fails the workflow task and not the workflow, if the worker that runs the workflow does not have the plugin. If
// only the activity's worker does not have it, the step runs without locks: see package worker.
func WithLocks(ctx workflow.Context, l Locks) workflow.Context {
	installed(ctx)
	return runstate.WithLocks(ctx, l.guard())
}

// Unguarded returns a context whose activities are not guarded, for a step that needs no locks. The saga's locks remain held.
func Unguarded(ctx workflow.Context) workflow.Context {
	return runstate.WithLocks(ctx, nil)
}

// WithOwner returns a context whose steps belong to the given owner: the deadlock search treats all that belongs to one owner as one party.
// Child workflows under the context inherit the owner, and so do the runs that continue or retry them. An empty
// owner restores the run's default: the inherited owner, or the workflow. Owners are cut to 512 bytes.
//
// A child that waits for a lock of its parent is not detected if both have one owner. WithOwner adds no event, and needs no plugin if nothing is
// guarded.
func WithOwner(ctx workflow.Context, owner string) workflow.Context {
	return runstate.WithOwner(ctx, owner)
}
