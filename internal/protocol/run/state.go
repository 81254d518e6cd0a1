package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/collection"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// State is what one workflow run knows of its locks.
type State struct {
	// base is the context with which the run began.
	base workflow.Context
	// steps numbers the calls of ExecuteActivity, guarded or not, so that a step keeps its name when
	// another one gains or loses its guard.
	steps int
	// schedule numbers the schedulings; it grows over every one.
	schedule uint32
	// locks numbers the locks around code.
	locks int
	// root is the scope of what no saga holds.
	root *Scope
	// notes are what the run waits for.
	notes notes
	// open are the scopes that may hold something: the run's own, and the sagas in progress.
	open []*Scope
	// owner is the one that the run inherited, if any, and started when the first of the runs began that go on with each
	// other's holds.
	owner   protocol.Owner
	started time.Time
	// continues says that it goes on with what the run holds that it continues. wasReset says that it was made by a reset: what
	// the history says to be held may have been released since.
	continues, wasReset bool
	// collection is that in which the worker keeps its locks.
	collection *collection.ID
	// ending says that a scope is being ended.
	ending bool
	// ended says that the workflow function has returned.
	ended bool
}

// NewState makes the state of a run that has asked for nothing yet. collection is what is known of the worker's.
func NewState(collection *collection.ID) *State {
	s := &State{collection: collection}
	s.root = s.Open()
	return s
}

// Step is one call of ExecuteActivity.
type Step struct {
	// Guard is nil where the step is not guarded.
	Guard *protocol.Guard
	scope *Scope
	// within is the scope whose end is the end of the step's wait; nil where that has no end but its own.
	within *Scope
	// noActivity says that it is locks around code, and not an activity.
	noActivity bool
	// maxWait is how long it may wait; 0 is as long as it takes. waiting is since when it does.
	maxWait time.Duration
	waiting time.Time
	// scheduled is when it was scheduled last, and used how long it took until it found a lock busy.
	scheduled time.Time
	used      time.Duration
	// parked is what its last attempt found that did not get the locks, under the number parkedAs, and vain how many in a row
	// left no place in a queue.
	parked   *protocol.ParkedDetails
	parkedAs uint32
	vain     int
	// ran says that an attempt may have run the step's own code.
	ran bool
}

// RefuseLocal refuses a local activity under locks. Its attempts carry the clock of the worker and not the server's, so
// that they cannot be put into an order.
func RefuseLocal(ctx workflow.Context, activityType string) error {
	if l, _ := ctx.Value(locksKey{}).(*Locks); l == nil {
		return nil
	}
	return protocol.NewWaitError(&lockcore.InvalidError{
		Field: "workflows.Guard", Value: fmt.Sprintf("around the local activity %q", protocol.Cut(activityType, 128)),
		Bound: "ordinary activities: use workflow.ExecuteActivity, or workflows.Lock around the local activity",
	}, true)
}

// Step numbers a call of ExecuteActivity and says how it is guarded under ctx. An error is a *protocol.WaitError: the step must
// not be scheduled.
func (s *State) Step(ctx workflow.Context, activityType string) (*Step, error) {
	s.steps++
	s.schedule++
	locks, _ := ctx.Value(locksKey{}).(*Locks)
	if locks == nil {
		return &Step{scope: s.root}, nil
	}
	if refused := locks.Refused(); refused != nil {
		return nil, protocol.NewWaitError(refused, true)
	}
	scope, _ := s.scope(ctx)
	kind := s.kind(ctx, locks)
	if u := undoneFrom(ctx); u != nil && kind == protocol.ScopeStep {
		return nil, protocol.NewWaitError(&lockcore.InvalidError{
			Field: "Locks.Scope", Value: fmt.Sprintf("%q", kind), Bound: "ScopeSaga, or empty, for Saga.Step: its locks stand until it cannot be undone any more",
		}, true)
	}
	compensating := isCompensating(ctx)
	g := &protocol.Guard{
		Part:      protocol.Cut(fmt.Sprintf("%d/%s", s.steps, activityType), protocol.MaxName),
		Schedule:  s.schedule,
		Scope:     kind,
		Resources: make([]lockcore.Resource, len(locks.Resources)),
		TTL:       protocol.Duration(locks.TTL),
		HoldTTL:   protocol.Duration(locks.HoldTTL),
		Reacquire: scope.goesOn || compensating,
		NewFence:  compensating,
		Owner:     cmp.Or(locks.Owner, ownerFrom(ctx), s.owner),
		Ancestors: ancestors(ctx),
		Park:      true,
		Try:       !compensating && (locks.Try || triesOnce(ctx)),
		Started:   s.begun(ctx),
		// What undoes others must run, and its saga cannot be undone to let another go first.
		NeverVictim: compensating,
	}
	undo(ctx, g)
	copy(g.Resources, locks.Resources)
	if kind != protocol.ScopeStep {
		scope.want(g.Resources)
	}
	step := &Step{Guard: g, scope: scope, within: scope, scheduled: workflow.Now(ctx)}
	if !compensating { // which has to run, however long it takes
		step.maxWait = locks.MaxWait
	}
	step.name(ctx)
	return step, nil
}

// name says which run asks, and what is known to be held for the step's saga. A run that was reset does not know: what its
// history says to be held may have been released since.
func (t *Step) name(ctx workflow.Context) {
	s, g := t.scope.state, t.Guard
	g.Run = runID(ctx)
	g.Collection = s.collection.Known()
	for i := range g.Resources {
		g.Resources[i].Held = g.Scope != protocol.ScopeStep && !s.wasReset && s.knows(t.scope, g.Resources[i].Name)
	}
}

// renumber gives a step that is scheduled again the next number, and says anew what is known to be held.
func (t *Step) renumber(ctx workflow.Context) {
	state := t.scope.state
	state.schedule++
	next := *t.Guard
	next.Schedule = state.schedule
	next.Resources = slices.Clone(next.Resources)
	t.Guard, t.scheduled = &next, workflow.Now(ctx)
	t.name(ctx)
}

// knows tells whether the run is known to hold a resource for a scope: by the scope itself, or by locks around code.
func (s *State) knows(scope *Scope, name string) bool {
	return slices.ContainsFunc(s.open, func(o *Scope) bool {
		return (o == scope || o.isLock || scope.isLock) && o.held.has(name)
	})
}

// held are the resources on which the run is known to have holds.
func (s *State) held() names {
	var all names
	for _, c := range s.open {
		for _, use := range c.held {
			all.add(use.Resource)
		}
	}
	return all
}

// scope is the saga whose context this is, while it is in progress, and the run's own scope elsewhere.
func (s *State) scope(ctx workflow.Context) (scope *Scope, inSaga bool) {
	if InScope(ctx) {
		return ScopeFrom(ctx), true
	}
	return s.root, false
}

// kind is the scope of locks under ctx.
func (s *State) kind(ctx workflow.Context, l *Locks) string {
	switch _, inSaga := s.scope(ctx); {
	case l.Scope != "":
		return l.Scope
	case inSaga:
		return protocol.ScopeSaga
	default:
		return protocol.ScopeStep
	}
}

// Done notes what became of the step, and gives up what it does not use any more: a grant that no attempt took up, since the
// step was cancelled or its time was over first; and what an attempt kept that did not return.
func (t *Step) Done(ctx workflow.Context, err error) {
	if t.Guard == nil {
		return
	}
	timeout := new(temporal.TimeoutError)
	isLate, isSaga := errors.As(err, &timeout), t.Guard.Scope == protocol.ScopeSaga
	switch {
	case err == nil && isSaga && !t.scope.closed:
		t.scope.hold(t.Guard)
	case isLate && !isSaga && (t.parked != nil || t.Guard.Keeps()):
		t.giveUpTo(ctx, t.Guard.Schedule)
	case (isLate || temporal.IsCanceledError(err)) && t.parked != nil && !(isSaga && t.scope.closed):
		t.giveUp(ctx)
	}
}

// Failed says of the error of a step that has ended whether it is known that the step never ran.
func (t *Step) Failed(err error) error {
	var step *protocol.StepError
	if errors.As(err, &step) {
		step.NeverRan = !t.ran && step.Tried() == t.Guard.Part
	}
	return err
}
