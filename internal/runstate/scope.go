package runstate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope is the lifetime of locks that outlast a step: those of a saga, of a run, or around code.
type Scope struct {
	state *State
	// uses lists the resources that the scope's steps have requested, whether or not they got them.
	uses uses
	// parked lists the steps that wait for their locks.
	parked []*Step
	// closed is set when the scope begins to end.
	closed bool
	// ignoreLoss makes the scope's steps acquire again what was lost.
	ignoreLoss bool
	// lock is the Lock whose scope this is, if any.
	lock *Lock
	// coroutine is the coroutine that runs the saga; nil for other scopes.
	coroutine *coroutine
}

func (s *State) newScope() *Scope {
	scope := &Scope{state: s}
	s.open = append(s.open, scope)
	return scope
}

// IgnoreLoss makes the saga's steps acquire again what was lost.
func (c *Scope) IgnoreLoss() { c.ignoreLoss = true }

// KeepUntilRunEnds records that the saga's function has returned, and leaves the release of its locks to the end of the run.
func (c *Scope) KeepUntilRunEnds() { c.coroutine = nil }

// Commit verifies that the saga still holds what its steps have used, and releases it after Temporal has recorded the workflow task. If a
// lock was lost, the error matches lockcore.ErrLost; any other error means that the database did not answer for timeout (0: ten minutes).
// After an error the scope is open.
func (c *Scope) Commit(ctx workflow.Context, timeout time.Duration) error {
	c.closed = true
	c.awaitParked(ctx)
	if err := c.state.verify(ctx, timeout, c.uses.held()); err != nil {
		c.closed = false
		return err
	}
	c.Release()
	return nil
}

// Release closes the scope without verifying. Its locks are released after Temporal has recorded the workflow task.
func (c *Scope) Release() {
	c.closed = true
	c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
	for _, use := range c.uses {
		c.state.due.add(wire.Use{Resource: use.Resource})
	}
	c.state.sendEndings()
}

// awaitParked blocks until every waiting step that must stop has ended its wait. Each does so in the same workflow task.
func (c *Scope) awaitParked(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !slices.ContainsFunc(c.parked, (*Step).mustStop) }) // it is never cancelled
}

// uses is a set of resources, sorted by name: workflow code must not depend on the order of a map. Each has the schedule number of the
// first step that has completed under a lock on it, or 0 if none is known to have.
type uses []wire.Use

func (u uses) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u, name, func(own wire.Use, name string) int { return strings.Compare(own.Resource, name) })
}

func (u *uses) add(use wire.Use) {
	switch i, found := u.find(use.Resource); {
	case !found:
		*u = slices.Insert(*u, i, use)
	case (*u)[i].Schedule == 0 || use.Schedule != 0 && use.Schedule < (*u)[i].Schedule:
		(*u)[i].Schedule = use.Schedule
	}
}

// addAll adds the resources of a guard under a schedule number.
func (u *uses) addAll(resources []lockcore.Resource, schedule uint32) {
	for _, r := range resources {
		u.add(wire.Use{Resource: r.Name, Schedule: schedule})
	}
}

func (u uses) has(name string) bool {
	_, found := u.find(name)
	return found
}

// heldSince returns the schedule number of the first completed step that has left the resource held, or 0.
func (u uses) heldSince(name string) uint32 {
	if i, found := u.find(name); found {
		return u[i].Schedule
	}
	return 0
}

// held returns the resources that completed steps have left held.
func (u uses) held() uses {
	return slices.DeleteFunc(slices.Clone(u), func(use wire.Use) bool { return use.Schedule == 0 })
}

func (u uses) names() []string {
	names := make([]string, len(u))
	for i, use := range u {
		names[i] = use.Resource
	}
	return names
}

// Saga is one saga. It may be inside another one; then the locks of both belong to the scope of the outer one.
type Saga struct {
	outer *Saga
	inner []*Saga
	// id identifies the saga within its run. It is empty without the interceptor.
	id string
	// open lists the saga's guarded steps that have not ended.
	open []*Step
	// barring lists the bars of the saga, those of the sagas around it included.
	barring []workflow.Future
	// late lists the resources of steps that have ended for the workflow but may still run on a worker.
	late uses
	// undoing is set once the saga's compensations have begun: from then on its other guarded steps are refused.
	undoing bool
}

// WithSaga returns the context of a new saga, inside that of ctx if there is one.
func WithSaga(ctx workflow.Context) (workflow.Context, *Saga) {
	c := stepContextOf(ctx)
	saga := &Saga{outer: c.saga}
	if c.state != nil {
		c.state.sagas++
		saga.id = strconv.Itoa(c.state.sagas)
	}
	if saga.outer != nil {
		saga.outer.inner = append(saga.outer.inner, saga)
	}
	c.saga = saga
	return c.attach(ctx), saga
}

// IsUndoing reports whether the saga, or one around it, is being undone.
func (s *Saga) IsUndoing() bool { return s != nil && (s.undoing || s.outer.IsUndoing()) }

// isWithin reports whether the saga is other, or inside it.
func (s *Saga) isWithin(other *Saga) bool { return s != nil && (s == other || s.outer.isWithin(other)) }

// all returns the saga and those inside it.
func (s *Saga) all() []*Saga {
	all := []*Saga{s}
	for _, inner := range s.inner {
		all = append(all, inner.all()...)
	}
	return all
}

// CancelWaits ends the waits of the saga's steps before its compensations run: a step that ran after them would not be undone. It does not
// affect steps that run already.
func (s *Saga) CancelWaits(ctx workflow.Context) {
	s.undoing = true
	state := StateFrom(ctx)
	if state == nil {
		return
	}
	for _, scope := range slices.Clone(state.open) {
		scope.awaitParked(ctx)
	}
}

// Bar blocks until none of the saga's guarded steps can still run: those that have not ended, were cancelled, or timed out. Their later
// attempts are refused. It does not affect steps without locks.
//
// Each saga inside this one has a bar of its own, so that a saga that fails inside another does not end steps of the other one.
func (s *Saga) Bar(ctx workflow.Context) {
	state := StateFrom(ctx)
	if state == nil {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(state.base)
	var barred []workflow.Future
	for _, saga := range s.all() {
		on := saga.late
		for _, step := range saga.open {
			on.addAll(step.Guard.Resources, 0)
		}
		if saga.late, saga.open = nil, nil; len(on) > 0 {
			summary := "wait for steps that may run on " + strings.Join(on.names(), ", ")
			saga.barring = append(saga.barring, state.schedule(ctx, workflow.ActivityOptions{
				Summary: wire.Cut(summary, 120), StartToCloseTimeout: attemptTimeout,
			}, wire.ActivityBar, wire.BarParams{
				Resources: on.names(), Saga: saga.id, Schedule: state.schedules, Collection: state.collectionID(),
			}))
		}
		barred = append(barred, saga.barring...)
	}
	for _, future := range barred {
		if err := future.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("lockstep: a saga is undone although a step of it may still run", "error", err)
		}
	}
}

// ReleaseLocks releases the Locks that the saga's function has taken and not released, and blocks until these and the saga's own locks are
// released, or ctx is cancelled. Later calls of these Locks return an error that matches lockcore.ErrEnded.
func (s *Saga) ReleaseLocks(ctx workflow.Context) error {
	state := StateFrom(ctx)
	if state == nil {
		return nil
	}
	for _, scope := range slices.Clone(state.open) {
		if l := scope.lock; l != nil && !l.ended && l.step.saga.isWithin(s) {
			l.ended, l.result = true, wire.NewEnded("lockstep: the saga began again, and its lock was released", false)
			scope.Release()
		}
	}
	return state.awaitEndings(ctx)
}
