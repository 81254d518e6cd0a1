package runstate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Scope is the lifetime of locks that outlast a step: those of a saga, of a run, or around code.
type Scope struct {
	state *State
	// ctx is the context of the latest step. Own activities for the scope have its values.
	ctx workflow.Context
	// uses lists the resources that the scope's steps have requested, whether or not they got them.
	uses uses
	// parked lists the steps that wait for their locks.
	parked []*Step
	// committing is set while the scope is about to commit: from then on only compensations may use it. closed is set when it has ended.
	committing, closed bool
	// lost is the error with which the run has learned that a lock of the scope was lost.
	lost error
	// lock is the Lock whose scope this is, if any.
	lock *Lock
	// coroutine is the coroutine that runs the saga; nil for other scopes.
	coroutine *coroutine
}

func (s *State) newScope(ctx workflow.Context) *Scope {
	scope := &Scope{state: s, ctx: ctx}
	s.open = append(s.open, scope)
	return scope
}

// admits reports whether a step may use the scope.
func (c *Scope) admits(compensating bool) bool { return !c.closed && (!c.committing || compensating) }

// Commit verifies what the saga's steps have used, unless they used it so recently that it cannot have expired, and releases it after Temporal
// has recorded the workflow task. If a lock was lost, the error matches lockcore.ErrLost, and the scope is open. saga is nil for a Lock.
func (c *Scope) Commit(ctx workflow.Context, saga *Saga) error {
	c.committing = true
	defer func() { c.committing = false }()
	c.awaitParked(ctx)
	err := c.verifyLast(ctx, saga)
	if err == nil {
		c.release(true)
	}
	return err
}

// KeepUntilRunEnds verifies as Commit does, and leaves the release of the locks to the end of the run.
func (c *Scope) KeepUntilRunEnds(ctx workflow.Context, saga *Saga) error {
	err := c.verifyLast(ctx, saga)
	if err == nil {
		c.coroutine = nil
	}
	return err
}

// verifyLast verifies until no lock is old and no saga inside the saga is being undone.
func (c *Scope) verifyLast(ctx workflow.Context, saga *Saga) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	for {
		saga.AwaitInner(ctx)
		if err := c.state.verifyAged(ctx, c.ctx, c); err != nil || !saga.undoesInside() {
			return err
		}
	}
}

// Verify asks whether the locks are held that the steps have used, and have been held without a gap. It returns nil only after an answer
// that is younger than wire.VerifyAfter.
func (c *Scope) Verify(ctx workflow.Context) error {
	if err := c.state.verify(ctx, ctx, c.uses.held()); err != nil {
		return err
	}
	return c.state.verifyAged(ctx, ctx, c)
}

// noteLoss records that a lock of an open scope was lost, if err reports that: the scope must not commit. It panics if it cannot read which
// lock was lost.
func (s *State) noteLoss(err error) {
	lost, ok := wire.StepLoss(err)
	for _, c := range s.open {
		if ok && c.lost == nil && c.uses.has(lost.Resource) {
			c.lost = wire.NewWaitError(lost, false)
		}
	}
}

// Release closes the scope without a commit. Its locks are released after Temporal has recorded the workflow task.
func (c *Scope) Release() { c.release(false) }

func (c *Scope) release(committed bool) {
	c.closed = true
	c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
	c.state.addDue(due{c.ctx, c.uses, committed})
	c.state.sendEndings()
}

// awaitParked blocks until every waiting step that must stop has ended its wait. Each does so in the same workflow task.
func (c *Scope) awaitParked(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !slices.ContainsFunc(c.parked, (*Step).mustStop) }) // it is never cancelled
}

// use is a resource that the steps of a scope have requested. Schedule is the number of the first step that has completed under a lock on it,
// or 0 if none is known to have. The next guard carries it, so that a loss is noticed.
type use struct {
	wire.Use
	// at is a time until which the lock is known to have been held since that step: that of the latest scheduling of a step, or of a Verify,
	// that would have noticed a loss.
	at time.Time
}

// useOverhead is the size of a use in the input of an activity, without the resource's name.
const useOverhead = 32

// uses is a set of resources, sorted by name: workflow code must not depend on the order of a map.
type uses []use

func (u uses) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u, name, func(own use, name string) int { return strings.Compare(own.Resource, name) })
}

func (u *uses) add(of use) {
	i, found := u.find(of.Resource)
	if !found {
		*u = slices.Insert(*u, i, of)
		return
	}
	known := &(*u)[i]
	if known.Schedule == 0 || of.Schedule != 0 && of.Schedule < known.Schedule {
		known.Schedule = of.Schedule
	}
	if of.at.After(known.at) {
		known.at = of.at
	}
}

// addAll adds the resources of a guard whose step has not completed.
func (u *uses) addAll(resources []wire.Resource) {
	for _, r := range resources {
		u.add(use{Use: wire.Use{Resource: r.Name}})
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
	return slices.DeleteFunc(slices.Clone(u), func(of use) bool { return of.Schedule == 0 })
}

func (u uses) names() []string {
	names := make([]string, len(u))
	for i, of := range u {
		names[i] = of.Resource
	}
	return names
}

// verifyAged asks about those of the resources of a scope, or of all open scopes if it is nil, that are not known to have been held within the last
// wire.VerifyAfter, until none is left: an answer may arrive long after its question, and other coroutines may open, close and lose locks in
// between. values is the context whose values the activities have.
func (s *State) verifyAged(ctx, values workflow.Context, of *Scope) error {
	for {
		scopes := s.open
		if of != nil {
			scopes = []*Scope{of}
		}
		var old uses
		for _, c := range scopes {
			if c.lost != nil {
				return c.lost
			}
			for _, u := range c.uses.held() {
				if workflow.Now(ctx).Sub(u.at) > wire.VerifyAfter() {
					old.add(u)
				}
			}
		}
		if len(old) == 0 {
			return nil
		}
		if err := s.verify(ctx, values, old); err != nil {
			return err
		}
	}
}

// verify asks the database whether the run still holds, and has held without a gap, what its steps used.
func (s *State) verify(ctx, values workflow.Context, used uses) error {
	if len(used) == 0 {
		return nil
	}
	asked := workflow.Now(ctx)
	err := s.awaitAll(ctx, values, split(used, own{name: wire.ActivityVerify, purpose: "verify ", overhead: useOverhead}, func(piece uses) any {
		p := wire.VerifyParams{Run: runID(s.base), Inherits: s.wasReset, Started: s.started, Collection: s.collectionID()}
		for _, u := range piece {
			p.Used = append(p.Used, u.Use)
		}
		return p
	}))
	s.noteLoss(err)
	if lock := wire.LockError(err); lock != nil {
		return wire.NewWaitError(lock, false)
	}
	if err != nil {
		return err
	}
	for _, u := range used {
		s.noteHeld(u.Resource, u.Schedule, asked)
	}
	return nil
}

// noteHeld records that a resource was held from the step with a schedule number until a time.
func (s *State) noteHeld(resource string, since uint32, until time.Time) {
	for _, o := range s.open {
		if i, found := o.uses.find(resource); found && o.uses[i].Schedule >= since && until.After(o.uses[i].at) {
			o.uses[i].at = until
		}
	}
}

// Saga is one saga. It may be inside another one; then the locks of both belong to the scope of the outer one.
type Saga struct {
	outer *Saga
	// Scope is that of the locks of the saga's steps. It is nil without the interceptor. Own is the Scope if the saga has opened it, and must end
	// it by [Scope.Commit] or [Scope.Release]; nil if an outer saga has.
	Scope, Own *Scope
	// id identifies the saga within its run: its number after the ID of the outer saga, such as "2/5". It is empty without the interceptor.
	id string
	// ctx is the context of the latest guarded step, in this saga or in those inside it. The saga's bar has its values.
	ctx workflow.Context
	// scheduled lists the resources of the guarded steps that were scheduled, in this saga and in those inside it, which its bar ends.
	scheduled uses
	// undoing is set once the saga's compensations have begun: from then on its other guarded steps are refused. undoingInside counts the
	// sagas inside this one that are being undone.
	undoing       bool
	undoingInside int
	// ended is set once the saga has committed or has been undone.
	ended bool
}

// WithSaga returns the context of a new saga, inside that of ctx if there is one that has not ended. Outside of a scope, it opens one.
func WithSaga(ctx workflow.Context) (workflow.Context, *Saga) {
	c := stepContextOf(ctx)
	saga := &Saga{outer: c.saga}
	for saga.outer != nil && saga.outer.ended {
		saga.outer = saga.outer.outer
	}
	if c.state != nil {
		c.state.sagas++
		saga.id = strconv.Itoa(c.state.sagas)
		if saga.outer != nil {
			saga.id = saga.outer.id + "/" + saga.id
		}
		if !c.inScope() {
			saga.Own = c.state.newScope(ctx)
			saga.Own.coroutine, c.scope = c.coroutine, saga.Own
		}
	}
	saga.Scope, c.saga = c.scope, saga
	return c.attach(ctx), saga
}

// SagaFrom returns the saga of ctx, or nil.
func SagaFrom(ctx workflow.Context) *Saga { return stepContextOf(ctx).saga }

// IsUndoing reports whether the saga, or one around it, is being undone, or has been.
func (s *Saga) IsUndoing() bool { return s != nil && (s.undoing || s.outer.IsUndoing()) }

// IsWithin reports whether the saga is other, or inside it.
func (s *Saga) IsWithin(other *Saga) bool { return s != nil && (s == other || s.outer.IsWithin(other)) }

func (s *Saga) undoesInside() bool { return s != nil && s.undoingInside > 0 }

// AwaitInner blocks until no saga inside this one is being undone.
func (s *Saga) AwaitInner(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !s.undoesInside() }) // it is never cancelled
}

// BeginUndo ends the waits of the saga's steps before its compensations run: a step that ran after them would not be undone. It does not
// affect steps that run already. It returns after the undoing of the sagas inside this one has ended.
func (s *Saga) BeginUndo(ctx workflow.Context) {
	s.undoing = true
	for o := s.outer; o != nil; o = o.outer {
		o.undoingInside++
	}
	if state := StateFrom(ctx); state != nil {
		for _, scope := range slices.Clone(state.open) {
			scope.awaitParked(ctx)
		}
	}
	s.AwaitInner(ctx)
}

// End records that the saga has committed, or that its compensations have ended.
func (s *Saga) End() {
	for o := s.outer; s.undoing && o != nil; o = o.outer {
		o.undoingInside--
	}
	s.ended = true
}

// Bar blocks until none of the guarded steps that were scheduled so far, in this saga and in those inside it, can still run. Their later
// attempts are refused.
func (s *Saga) Bar(ctx workflow.Context) {
	state := StateFrom(ctx)
	if state == nil || len(s.scheduled) == 0 {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	bar := own{name: wire.ActivityBar, purpose: "wait for steps that may run on ", overhead: useOverhead}
	all := split(s.scheduled, bar, func(piece uses) any {
		return wire.BarParams{Resources: piece.names(), Saga: s.id, Schedule: state.schedules, Collection: state.collectionID()}
	})
	if err := state.awaitAll(ctx, s.ctx, all); err != nil {
		workflow.GetLogger(ctx).Error("lockstep: a saga is undone although a step of it may still run", "error", err)
	}
}

// scheduledStep records that a step of the saga that locks resources was scheduled under ctx.
func (s *Saga) scheduledStep(ctx workflow.Context, resources []wire.Resource) {
	for o := s; o != nil; o = o.outer {
		o.ctx = ctx
		o.scheduled.addAll(resources)
	}
}

// ReleaseLocks releases the Locks that the saga's function has taken and not released, and blocks until these and the saga's own locks are
// released, or ctx is cancelled. Later calls of these Locks return an error that matches lockcore.ErrEnded.
func (s *Saga) ReleaseLocks(ctx workflow.Context) error {
	state := StateFrom(ctx)
	if state == nil {
		return nil
	}
	used := slices.Clone(s.scheduled)
	for _, scope := range slices.Clone(state.open) {
		if l := scope.lock; l != nil && !l.ended && l.step.saga.IsWithin(s) {
			for _, u := range scope.uses {
				used.add(u)
			}
			l.ended, l.result = true, wire.NewEnded("lockstep: the saga began again, and its lock was released", false)
			scope.Release()
		}
	}
	return state.awaitReleased(ctx, used)
}
