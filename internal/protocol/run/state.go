package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// State is what one workflow run knows of its locks.
type State struct {
	// base is the context with which the run began.
	base workflow.Context
	// Rules are the worker's, by activity type.
	Rules map[string]Rule
	// ruled are the activity types by whose rules something is released at the end of the run.
	ruled names
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
	// followed are the guarded steps that have not ended.
	followed followed
	// open are the scopes that may hold something: the run's own, and the sagas in progress.
	open []*Scope
	// handedScope is the scope of what a saga of the run before handed over, until a saga opens.
	handedScope *Scope
	// handedLocks are locks around code of the run before, as far as no such lock of this run has asked for the same.
	handedLocks []*Lock
	// lockRun is the run in whose name this one locks; empty is its own.
	lockRun string
	// owner is the party where the run inherited one, and started when the first of the runs began that handed their locks over.
	owner   string
	started time.Time
	past    past
	// watching says that somebody waits for a reset, to take locks around code anew.
	watching bool
	// former are the runs that resets have closed, as far as they are known.
	former names
	// ledgers are those of the sagas in progress.
	ledgers []*Ledger
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
	// within is the scope whose end is the end of the step's wait; nil where that has no end but its own.
	within *Scope
	// around are locks that are taken in the workflow; then there is no guard.
	around *Locks
	// local says that it is a local activity.
	local bool
	// maxWait is how long it may wait; 0 is as long as it takes. waiting is since when it does.
	maxWait time.Duration
	waiting time.Time
	// scheduled is when it was scheduled last, and used how long it took until it found a lock busy.
	scheduled time.Time
	used      time.Duration
	// ran says that an attempt may have run the step's own code.
	ran bool
	// retired says that the guard is not written any more.
	retired bool
	// resets is how many resets the run had been made by when it was scheduled.
	resets int
	// lacks says that it is under locks around code that are to be taken anew.
	lacks bool
	// sent are its notes in ledgers, until it is known that it never ran.
	sent []sent
}

// LocalStep is Step for a call of ExecuteLocalActivity.
func (s *State) LocalStep(ctx workflow.Context, activityType string, args ...any) *Step {
	step := s.Step(ctx, activityType, args...)
	step.local = true
	return step
}

// Step numbers a call of ExecuteActivity and says how it is guarded under ctx.
func (s *State) Step(ctx workflow.Context, activityType string, args ...any) *Step {
	step := s.guarded(ctx, activityType, args)
	s.send(ctx, step)
	return step
}

func (s *State) guarded(ctx workflow.Context, activityType string, args []any) *Step {
	s.look()
	s.steps++
	s.schedule++
	locks, err := s.wanted(ctx, activityType, args)
	if err == nil && locks != nil {
		err = locks.Refused()
	}
	switch {
	case err != nil: // the step is scheduled all the same, and refused where it would run: its command depends on no rule
		part := protocol.Cut(fmt.Sprintf("%d/%s", s.steps, activityType), protocol.MaxName)
		return &Step{scope: s.root, Guard: &protocol.Guard{Part: part, Schedule: s.schedule, Scope: protocol.ScopeStep, Park: true, Refused: err}}
	case locks == nil:
		return &Step{scope: s.root, lacks: s.lacks()}
	}
	scope, _ := s.scope(ctx)
	kind := s.kind(ctx, locks)
	if locks.FromWorkflow {
		around := *locks
		around.Scope = kind
		return &Step{scope: scope, around: &around}
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
		Owner:     cmp.Or(locks.Owner, ownerFrom(ctx), s.owner),
		Park:      true,
		Try:       !compensating && (locks.Try || triesOnce(ctx)),
		Undo:      isUndone(ctx) || s.undoes(ctx),
		Started:   s.begun(ctx),
		// What undoes others must run, and its saga cannot be undone to let another go first.
		NeverVictim: compensating,
	}
	copy(g.Resources, locks.Resources)
	if kind != protocol.ScopeStep {
		g.Resources = append(g.Resources, scope.missing(g.Resources)...)
		scope.want(g.Resources)
	}
	step := &Step{Guard: g, scope: scope, within: scope, scheduled: workflow.Now(ctx), retired: locks.retired, lacks: s.lacks()}
	if !compensating { // which has to run, however long it takes
		step.maxWait = locks.MaxWait
	}
	bound := protocol.Duration(step.maxWait)
	g.MaxWait = &bound
	step.name(ctx)
	return step
}

// name says in whose name the step locks, and what is known to be held in it.
func (t *Step) name(ctx workflow.Context) {
	s, g := t.scope.state, t.Guard
	t.resets, g.LockRun, g.Run, g.Former = s.past.resets, s.lockRun, "", slices.Clone(s.former)
	named := g.LockRun != "" || g.Undo
	for i := range g.Resources {
		g.Resources[i].Held = s.knows(t.scope, g.Resources[i].Name)
		named = named || g.Resources[i].Held
	}
	if named {
		g.Run = workflow.GetInfo(ctx).WorkflowExecution.RunID
	}
}

// renumber gives a step that is scheduled again the next number, and says anew what is known to be held.
func (t *Step) renumber(ctx workflow.Context) {
	state := t.scope.state
	state.look()
	state.schedule++
	next := *t.Guard
	next.Schedule = state.schedule
	next.Resources = slices.Clone(next.Resources)
	t.Guard, t.scheduled = &next, workflow.Now(ctx)
	t.name(ctx)
}

// Retired tells that the guard is not to be written: the step is one of a rule that guards nothing any more, and is followed
// for what stands in the history.
func (t *Step) Retired() bool { return t.retired }

// knows tells whether the run is known to hold a resource for a scope: by the scope itself, or by locks around code.
func (s *State) knows(scope *Scope, name string) bool {
	return slices.ContainsFunc(s.open, func(o *Scope) bool {
		return (o == scope || o.lock != nil || scope.lock != nil) && o.held.has(name)
	})
}

// held are the resources but one on which the run is known to have holds.
func (s *State) held(but string) names {
	var all names
	for _, c := range s.open {
		for _, name := range c.held {
			if name != but {
				all.add(name)
			}
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

// versionTraces is the change ID of releasing what a step of scope step may have left, asked for at the first such step
// of a run that failed in a way that steps without guards fail in too: a run that was recorded without Lockstep goes on
// as it did.
const versionTraces = "lockstep.traces"

// Done notes what became of the step.
func (t *Step) Done(ctx workflow.Context, err error) {
	if t.Guard == nil || t.scope.closed {
		return
	}
	t.scope.state.lose(err)
	switch {
	case err == nil && t.Guard.Scope == protocol.ScopeSaga && !t.retired:
		t.scope.hold(t.Guard.Resources, t.stale())
	case err == nil || t.Guard.Scope == protocol.ScopeSaga || !leavesTraces(err): // what a saga's step asked for is wanted already
	case protocol.WasTried(err): // it queued nowhere
	case ofLockstep(err) || t.tracesTimeouts(ctx):
		t.scope.trace(t.Guard.Resources)
	}
}

// tracesTimeouts tells whether the run releases what a step may have left that failed as steps without guards do too. A retired
// rule has left nothing since, and asks for what stands in the history.
func (t *Step) tracesTimeouts(ctx workflow.Context) bool {
	if t.retired && !workflow.IsReplaying(ctx) {
		return false
	}
	return workflow.GetVersion(ctx, versionTraces, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// Failed says of the error of a step that has ended whether it is known that the step never ran.
func (t *Step) Failed(err error) error {
	var step *protocol.StepError
	if !errors.As(err, &step) || !t.Guard.Undo {
		return err
	}
	step.NeverRan = !t.ran && step.Tried() == t.Guard.Part
	return err
}

// leavesTraces tells whether a step that failed so may have left a place in a queue or a hold behind,
// its scope being step or not: nothing of ours ran when it ended.
func leavesTraces(err error) bool {
	var (
		act      *temporal.ActivityError
		timeout  *temporal.TimeoutError
		canceled *temporal.CanceledError
	)
	switch {
	case errors.As(err, &canceled), errors.As(err, &timeout):
		return true
	default:
		return ofLockstep(err) || errors.As(err, &act) && act.RetryState() == enumspb.RETRY_STATE_TIMEOUT
	}
}

// ofLockstep tells whether a step failed as only guarded ones do, and may have left a place in a queue.
func ofLockstep(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && (app.Type() == protocol.FailureBusy || app.Type() == protocol.FailureUnavailable)
}
