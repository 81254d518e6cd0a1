package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Lock is a set of locks around code, with a scope of its own.
type Lock struct {
	step *Step
	// members are those of pools, by the name of the pool.
	members map[string]string
	// ended is set once its release has begun. result is what Release returns; it is known once the scope is closed.
	ended  bool
	result error
}

// Lock takes locks around code, all or none, and waits while they are busy. If it fails it releases everything that it may have taken.
func (s *State) Lock(ctx workflow.Context, locks *wire.Guard) (*Lock, error) {
	s.locks++
	scope := s.newScope(ctx)
	l := &Lock{}
	scope.lock = l
	l.step = s.newStep(ctx, fmt.Sprintf("lock/%d", s.locks), *locks, scope)
	g := l.step.guard
	// A first acquire takes the locks again. They are lost only if the run is known to hold them.
	g.Reacquire = g.NeverVictim || !slices.ContainsFunc(locks.Resources, func(r wire.Resource) bool { return s.heldSince(scope, r.Name) > 0 })
	l.step.waitingSince = l.step.scheduled // MaxWait bounds the time from here
	err := l.take(ctx)
	if err == nil {
		return l, nil
	}
	if g.Try && len(locks.Resources) == 1 && errors.Is(err, lockcore.ErrBusy) { // it has left nothing
		scope.uses = nil
	}
	scope.Release()
	return nil, err
}

// Release verifies the locks, and releases them after Temporal has recorded the workflow task. A resource that another open scope uses is
// released with that scope. If a lock was lost, the error matches lockcore.ErrLost. A second call returns the same error.
func (l *Lock) Release(ctx workflow.Context) error {
	if l.ended {
		return l.outcome(ctx)
	}
	l.ended = true
	scope := l.step.scope
	if l.result = scope.Commit(ctx, nil); l.result != nil {
		scope.Release()
	}
	return l.result
}

// Verify asks whether the locks have been held without a gap since they were taken, and releases nothing. After Release it returns the
// error of Release.
func (l *Lock) Verify(ctx workflow.Context) error {
	if l.ended {
		return l.outcome(ctx)
	}
	return l.step.scope.Verify(ctx)
}

// outcome returns what Release returns, in another coroutine perhaps.
func (l *Lock) outcome(ctx workflow.Context) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return l.step.scope.closed }) // it is never cancelled
	return l.result
}

// take requests the locks until they are held. If it fails, the scope releases what it got.
func (l *Lock) take(ctx workflow.Context) error {
	t := l.step
	t.scope.parked = append(t.scope.parked, t)
	defer func() {
		t.scope.parked = slices.DeleteFunc(t.scope.parked, func(o *Step) bool { return o == t })
	}()
	for ; ; t.nextSchedule(ctx) {
		result, err := l.ask(ctx)
		switch {
		case t.mustStop():
			return wire.NewWaitEnded(true)
		case temporal.IsCanceledError(err):
			return wire.NewWaitCanceled(true)
		case err == nil && len(result.Leases) != len(t.guard.Resources): // a worker that freed a lock knows only that one, or none
			continue
		}
		t.noteLoss(err)
		l.noteMembers(result.Leases)
		t.settle(ctx, err)
		return t.markNeverRan(wire.TypedError(err))
	}
}

// noteMembers stores the members of pools. A worker that freed a lock does not name its resource.
func (l *Lock) noteMembers(leases []wire.Lease) {
	l.members = map[string]string{}
	for i, lease := range leases {
		if lease.Member != "" {
			l.members[cmp.Or(lease.Resource, l.step.guard.Resources[i].Name)] = lease.Member
		}
	}
}

// Members returns the members of pools that are held, by the name of the pool.
func (l *Lock) Members() map[string]string { return maps.Clone(l.members) }

// ask makes one request, by an ordinary activity, which also waits: if a local activity acquired the lock and its workflow task was lost, the
// workflow would not know that it holds the lock. The worker that frees the lock completes the activity.
func (l *Lock) ask(ctx workflow.Context) (result wire.AcquireResult, err error) {
	g := l.step.guard
	o := own{name: wire.ActivityAcquire, purpose: "lock ", id: wire.WaitID(g.Schedule), resources: names(g.Resources)}
	if g.MaxWait > 0 {
		o.total = time.Duration(g.MaxWait) + waitSlack
	}
	p := wire.AcquireParams{
		Resources: g.Resources, Part: g.Part, Schedule: g.Schedule, TTL: g.TTL, HoldTTL: g.HoldTTL, HoldOnly: true,
		Reacquire: g.Reacquire, NewFence: g.NewFence, Owner: g.Owner, Try: g.Try,
		Comment: wire.Cut(fmt.Sprintf("%s, %s", workflow.GetInfo(ctx).WorkflowType.Name, g.Part), 1024),
		Started: g.Started, Inherits: g.Inherits, NeverVictim: g.NeverVictim, Priority: l.step.priorityKey(ctx), Collection: g.Collection, Ancestors: g.Ancestors,
	}
	if !g.Try {
		p.MaxWait = g.MaxWait
	}
	o.params = p
	err = l.step.scope.state.await(ctx, ctx, o, &result, l.step.mustStop)
	return result, err
}
