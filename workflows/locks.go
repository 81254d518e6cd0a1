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
	// ScopeStep releases the locks when the step returns. Each such step is a party of its own within its workflow: two steps of one
	// workflow exclude each other, and count separately under a limit. What the workflow itself keeps, by a saga or [Lock], does not block
	// them. [Saga.Step] refuses it.
	ScopeStep Scope = wire.ScopeStep
	// ScopeSaga keeps the locks after the step has returned, until the saga around it has committed or has finished compensating. Outside a
	// saga it keeps them until the workflow function has returned.
	ScopeSaga Scope = wire.ScopeSaga
)

// Locks are the locks that a step must hold before it runs. The zero value of every field except Resources is the usual choice.
type Locks struct {
	// Resources are taken together, in the order of their names: 1 to 100. If several have the same name, one lock is taken, in the
	// stronger mode and with the lower limit.
	Resources []lockcore.Resource
	// Scope is the lifetime of the locks. Defaults to ScopeSaga inside [RunSaga], and to ScopeStep elsewhere.
	Scope Scope
	// TTL is the time after which others may displace the step if its process does not renew the locks: 100 ms to ten years, or
	// lockcore.Forever. Defaults to the TTL of the activity worker's Locker.
	TTL time.Duration
	// HoldTTL, with ScopeSaga, is the time for which the locks last between two steps if nothing extends them: 100 ms to ten years, or
	// lockcore.Forever, and not less than TTL. ScopeStep ignores it. Defaults to the HoldTTL of the activity worker's Locker.
	HoldTTL time.Duration
	// Owner is the party that waits and holds, for people and for deadlock detection. Defaults to the workflow, as its namespace's ID, "/"
	// and its workflow ID.
	Owner string
	// MaxWait bounds the time for which the step waits for its locks, all its schedulings together. After that the step fails with a
	// *lockcore.BusyError. It counts from the first attempt that gives up its slot, without the time in which the step ran, and also bounds
	// each wait in a slot. It does not count against the step's own timeouts and attempts: after a wait the step is scheduled again with the
	// rest of them. Only a short wait in the slot, of at most a quarter of the attempt's time, is part of the attempt. If no worker takes
	// the activity that waits, it ends 10 s later. Compensations ignore MaxWait, because they must run; that of a [Saga.Step] which gave up
	// its wait is dropped. 0 or more. Defaults to 0, which means as long as it takes.
	MaxWait time.Duration
	// Try fails the step at once with a *lockcore.BusyError if its locks are busy, and leaves no request in a queue. A retry policy whose
	// NonRetryableErrorTypes contain "lockstep.Busy" does the same. Compensations ignore both, as they ignore MaxWait. If another worker ran
	// the workflow's previous step, that step may still hold the lock for a moment after its result has arrived. Defaults to false.
	Try bool
}

// internal returns the locks as package runstate keeps them, with each name once.
func (l Locks) internal() runstate.Locks {
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

// Guard is [WithLocks] with resources only. A Guard inside another adds to it:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.Shared("rates"))
func Guard(ctx workflow.Context, resources ...lockcore.Resource) workflow.Context {
	return WithLocks(ctx, Locks{Resources: resources})
}

// WithLocks returns a context under which every activity is a guarded step: its locks are taken when it is entered, renewed while it runs,
// and released according to l.Scope. WithLocks itself takes no lock, adds no event to the history, and does not change ctx. Local
// activities under the context are refused with a *lockcore.InvalidError. Child workflows and timers are not guarded.
//
// A WithLocks inside another adds to it: a step holds the resources of both, in the stronger mode if both name the same one, and all of them
// for the longer scope. The other options of the inner one replace those of the outer one, if they are set. [Unguarded] removes all.
//
// A step whose locks cannot be acquired fails with an error that matches [lockcore.ErrBusy], [lockcore.ErrLost], [lockcore.ErrDeadlock],
// [lockcore.ErrSuperseded] or [lockcore.ErrInvalid], and the types that go with them, or [lockcore.ErrEnded] if its saga ends while it
// waits. Cancelling ctx cancels the step, and also its wait for locks. A step that has waited is scheduled as another activity: it begins
// with attempt 1, and no heartbeat details. The future of a guarded step becomes ready one round of coroutines later than that of an
// unguarded one, so a Selector may prefer a timer that fires in the same workflow task.
//
// WithLocks panics, and so fails the workflow task and not the workflow, if the worker runs without Lockstep's interceptor: a step never
// runs unguarded by mistake. See package worker.
func WithLocks(ctx workflow.Context, l Locks) workflow.Context {
	if runstate.StateFrom(ctx) == nil {
		panic(notInstalled)
	}
	locks := l.internal()
	return runstate.WithLocks(ctx, &locks)
}

// Unguarded returns a context whose activities are not guarded, for a step that needs no locks. The saga's locks remain held.
func Unguarded(ctx workflow.Context) workflow.Context {
	return runstate.WithLocks(ctx, nil)
}

// WithOwner returns a context whose steps wait and hold as owner, the party between which deadlocks are detected. Child workflows under the
// context inherit it: their steps wait and hold as owner too, unless Locks.Owner overrides it, and so do the steps of runs that continue or
// retry them. An empty owner means the owner of this run itself: the one that it inherited, or its workflow. Owners are cut to 512 bytes.
//
// To the deadlock search, a workflow that waits for its children, and shares their owner, waits for whatever they wait for. It does not find
// a child that waits for a lock of its parent, because both are one party. WithOwner adds no event, and needs no interceptor if nothing is
// guarded.
func WithOwner(ctx workflow.Context, owner string) workflow.Context {
	return runstate.WithOwner(ctx, owner)
}
