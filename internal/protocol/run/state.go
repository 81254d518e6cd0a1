package run

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// State is what one workflow run knows of its locks.
type State struct {
	// steps numbers the calls of ExecuteActivity, guarded or not, so that a step keeps its name when
	// another one gains or loses its guard.
	steps int
	// schedule numbers the schedulings; it grows over every one.
	schedule uint32
	// root is the scope of what no saga holds.
	root *Scope
	// open are the scopes that may hold something: the run's own, and the sagas in progress.
	open []*Scope
}

// NewState makes the state of a run that has asked for nothing yet.
func NewState() *State {
	s := &State{}
	s.root = s.Open()
	return s
}

// Step is one call of ExecuteActivity.
type Step struct {
	// Guard is nil where the step is not guarded.
	Guard *protocol.Guard
	scope *Scope
}

// Step numbers a call of ExecuteActivity and says how it is guarded under ctx.
func (s *State) Step(ctx workflow.Context, activityType string) *Step {
	s.steps++
	s.schedule++
	locks := LocksFrom(ctx)
	if locks == nil {
		return &Step{}
	}
	scope, inSaga := s.scope(ctx)
	kind := locks.Scope
	if kind == "" {
		kind = protocol.ScopeStep
		if inSaga {
			kind = protocol.ScopeSaga
		}
	}
	compensating := isCompensating(ctx)
	g := &protocol.Guard{
		Part:      protocol.Cut(fmt.Sprintf("%d/%s", s.steps, activityType), protocol.MaxName),
		Schedule:  s.schedule,
		Scope:     kind,
		Resources: make([]lockcore.Resource, len(locks.Resources)),
		TTL:       protocol.Duration(locks.TTL),
		HoldTTL:   protocol.Duration(locks.HoldTTL),
		Reacquire: locks.Reacquire || compensating,
		NewFence:  compensating,
		Owner:     locks.Owner,
	}
	for i, r := range locks.Resources {
		r.Held = scope.held.has(r.Name)
		g.Resources[i] = r
	}
	if kind != protocol.ScopeStep {
		scope.want(g.Resources)
	}
	return &Step{Guard: g, scope: scope}
}

// scope is the saga whose context this is, while it is in progress, and the run's own scope elsewhere.
func (s *State) scope(ctx workflow.Context) (scope *Scope, inSaga bool) {
	if InScope(ctx) {
		return ScopeFrom(ctx), true
	}
	return s.root, false
}

// Done notes what became of the step.
func (t *Step) Done(err error) {
	if t.Guard == nil || t.scope.closed {
		return
	}
	switch {
	case err == nil && t.Guard.Scope == protocol.ScopeSaga:
		for _, r := range t.Guard.Resources {
			t.scope.held.add(r.Name)
		}
	case err != nil && leavesTraces(err):
		t.scope.want(t.Guard.Resources)
	}
}

// leavesTraces tells whether a step that failed so may have left a place in a queue or a hold behind,
// its scope being step or not: nothing of ours ran when it ended.
func leavesTraces(err error) bool {
	var (
		act      *temporal.ActivityError
		app      *temporal.ApplicationError
		timeout  *temporal.TimeoutError
		canceled *temporal.CanceledError
	)
	switch {
	case errors.As(err, &canceled), errors.As(err, &timeout):
		return true
	case errors.As(err, &app) && (app.Type() == protocol.FailureBusy || app.Type() == protocol.FailureUnavailable):
		return true
	default:
		return errors.As(err, &act) && act.RetryState() == enumspb.RETRY_STATE_TIMEOUT
	}
}
