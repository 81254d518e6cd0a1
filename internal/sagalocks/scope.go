package sagalocks

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope is the life of locks that outlive a step: a saga's, a run's, or that of locks around code.
type Scope struct {
	state *State
	// uses are what the scope's steps have asked for, whether or not they got it.
	uses uses
	// parked are the steps that wait for their locks.
	parked []*Step
	// closed scopes are ending or have ended.
	closed bool
	// goesOn scopes take again what they have lost.
	goesOn bool
	// lock, of the scope of locks around code, is what has them.
	lock *Lock
	// coroutine is the one that runs the saga; nil for other scopes.
	coroutine *coroutine
}

// uses is a set of resources, in the order of their names: workflow code must not depend on the
// order of a map. Each has the schedule number of the first step that has completed under a lock on
// it; 0 if none is known to have.
type uses []protocol.Use

func (u uses) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u, name, func(own protocol.Use, name string) int { return strings.Compare(own.Resource, name) })
}

func (u *uses) add(use protocol.Use) {
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
		u.add(protocol.Use{Resource: r.Name, Schedule: schedule})
	}
}

func (u uses) has(name string) bool {
	_, found := u.find(name)
	return found
}

// holds reports whether a completed step has left the resource held.
func (u uses) holds(name string) bool {
	i, found := u.find(name)
	return found && u[i].Schedule > 0
}

// held are those that completed steps have left held.
func (u uses) held() uses {
	return slices.DeleteFunc(slices.Clone(u), func(use protocol.Use) bool { return use.Schedule == 0 })
}

func (u uses) names() []string {
	names := make([]string, len(u))
	for i, use := range u {
		names[i] = use.Resource
	}
	return names
}

func (s *State) newScope() *Scope {
	scope := &Scope{state: s}
	s.open = append(s.open, scope)
	return scope
}

// GoOn has the saga take again what it has lost.
func (c *Scope) GoOn() { c.goesOn = true }

// free are the resources that end with the scope: all that its steps asked for, and what earlier
// ends could not let go, but for what another open scope uses. That one releases it.
func (c *Scope) free() (free uses) {
	all := slices.Clone(c.uses)
	for _, use := range c.state.leftovers {
		all.add(use)
	}
	return slices.DeleteFunc(all, func(use protocol.Use) bool {
		return slices.ContainsFunc(c.state.open, func(o *Scope) bool { return o != c && o.uses.has(use.Resource) })
	})
}

// Saga is one saga, which may be inside another one. The locks of both are in the scope of the outer
// one.
type Saga struct {
	outer *Saga
	// undoing is set once its compensations have begun: only steps run that undo others.
	undoing bool
}

// SagaFrom returns the innermost saga around ctx, nil if there is none.
func SagaFrom(ctx workflow.Context) *Saga { return askedOf(ctx).saga }

// WithSaga returns the context of a new saga inside that of ctx, if there is one.
func WithSaga(ctx workflow.Context) (workflow.Context, *Saga) {
	saga := &Saga{outer: SagaFrom(ctx)}
	return with(ctx, func(a *asked) { a.saga = saga }), saga
}

// Undoing reports whether the saga, or one around it, is being undone.
func (s *Saga) Undoing() bool { return s != nil && (s.undoing || s.outer.Undoing()) }

// isWithin reports whether the saga is another one, or inside it.
func (s *Saga) isWithin(other *Saga) bool { return s != nil && (s == other || s.outer.isWithin(other)) }

// CancelWaits ends the waits of the saga's steps before what undoes them runs: a step that came to
// run afterwards would not be undone. It blocks until they have left the queue. Steps that run
// already run on.
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

// ReleaseLocks releases the locks around code that the saga's function has taken and not released.
// What holds them answers by an error that matches lockcore.ErrEnded.
func (s *Saga) ReleaseLocks(ctx workflow.Context) {
	state := StateFrom(ctx)
	if state == nil {
		return
	}
	for _, scope := range slices.Clone(state.open) {
		if l := scope.lock; l != nil && !l.ended && l.step.saga.isWithin(s) {
			l.ended, l.released = true, protocol.NewEnded("lockstep: the saga began again, and its lock was released", false)
			scope.Release(ctx, 0)
		}
	}
}

// awaitParked blocks until every step has left its queue that must not run any more.
func (c *Scope) awaitParked(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !slices.ContainsFunc(c.parked, (*Step).over) }) // it is never cancelled
}

// Commit makes sure that the saga still holds what its steps have used, and lets go. If a lock was
// lost, the error matches lockcore.ErrLost; another error says that the database did not answer for
// timeout, which 0 makes ten minutes. After an error the scope goes on with what it holds.
func (c *Scope) Commit(ctx workflow.Context, timeout time.Duration) error {
	return c.end(ctx, c.uses.held(), timeout)
}

// Release lets go without making sure. What it cannot let go, later ends try again. The error is
// logged.
func (c *Scope) Release(ctx workflow.Context, timeout time.Duration) {
	if c.end(ctx, nil, timeout) != nil {
		c.drop()
	}
}

// end ends scopes one after the other: what one lets go depends on which others are open.
func (c *Scope) end(ctx workflow.Context, used uses, timeout time.Duration) error {
	c.closed = true
	c.awaitParked(ctx)
	defer c.state.inTurn(ctx)()
	free := c.free()
	c.state.leftovers = nil // another open scope lets go of what is not free
	if err := c.state.letGo(ctx, timeout, free, used, false); err != nil {
		for _, use := range free {
			c.state.leftovers.add(protocol.Use{Resource: use.Resource})
		}
		c.closed = false
		return err
	}
	c.remove()
	return nil
}

// drop ends the scope, and leaves what it could not let go to later ends.
func (c *Scope) drop() {
	c.closed = true
	c.remove()
}

func (c *Scope) remove() {
	c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
}

// inTurn blocks until no other end is in progress.
func (s *State) inTurn(ctx workflow.Context) (done func()) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = s.ending.Lock(ctx) // it is never cancelled
	return s.ending.Unlock
}

// letGo makes sure that what was used is held, and then lets go of what is free; with all also of
// whatever an earlier run has left.
func (s *State) letGo(ctx workflow.Context, timeout time.Duration, free, used uses, all bool) error {
	if len(free) == 0 && len(used) == 0 && !all {
		return nil
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	title := slices.Clone(free)
	for _, use := range used {
		title.add(use)
	}
	summary := "release what the run before has left"
	switch {
	case len(title) > 0 && len(free) == 0 && !all:
		summary = "check " + strings.Join(title.names(), ", ")
	case len(title) > 0:
		summary = "release " + strings.Join(title.names(), ", ")
	}
	err := s.run(ctx, task{name: protocol.ActivityRelease, summary: summary, timeout: timeout, params: protocol.ReleaseParams{
		Resources: free.names(), Schedule: s.schedule, Used: used, Inherits: s.wasReset || s.continues, All: all, Before: s.before(ctx),
		Collection: s.collection.Known(),
	}}, nil)
	lock := protocol.LockError(err)
	switch {
	case err == nil:
		return nil
	case lock != nil:
		err = protocol.NewWaitError(lock, false)
	default:
		err = protocol.NewWaitUnavailable("lockstep: whether locks were lost is not known, and they were not released: "+message(err), false)
	}
	if !errors.Is(lock, lockcore.ErrLost) {
		workflow.GetLogger(ctx).Error("lockstep: locks were not released: they stand until the workflow ends, and then until the janitor releases them or "+
			"their HoldTTL is over", "resources", free.names(), "error", err)
	}
	return err
}
