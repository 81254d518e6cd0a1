package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Step is one call of ExecuteActivity under locks, or the taking of locks around code, which is a
// step without an activity.
type Step struct {
	Guard *wire.Guard
	scope *Scope
	saga  *Saga
	// queue and options are those of the activity.
	queue    string
	priority temporal.Priority
	// maxWait is how long it may wait; 0 is as long as it takes. waiting is since when it does, later by the time in which it
	// ran in between.
	maxWait time.Duration
	waiting time.Time
	// scheduled is when it was scheduled last, and used how long it took until it found a lock
	// busy.
	scheduled time.Time
	used      time.Duration
	// parked is what its last attempt found that did not get the locks, under the number parkedAs,
	// and vain how many in a row left no place in a queue.
	parked   *wire.ParkedDetails
	parkedAs uint32
	vain     int
	// ran says that an attempt may have run the step's own code.
	ran bool
	// text is what people are told of the wait.
	text string
}

// RefuseLocal refuses a local activity under locks. Its attempts carry the clock of the worker and
// not the server's, so that they cannot be put into an order.
func RefuseLocal(ctx workflow.Context, activityType string) error {
	if askedOf(ctx).locks == nil {
		return nil
	}
	return Invalid("workflows.Guard", fmt.Sprintf("around the local activity %q", wire.Cut(activityType, 128)),
		"an ordinary activity, by workflow.ExecuteActivity; or workflows.Lock, and the local activity under workflows.Unguarded")
}

// Step numbers a call of ExecuteActivity and says how it is guarded under ctx; nil if it is not. An
// error is a
// *wire.WaitError: the step must not be scheduled.
func (s *State) Step(ctx workflow.Context, activityType string) (*Step, error) {
	s.steps++
	a := askedOf(ctx)
	if a.locks == nil {
		s.schedules++
		return nil, nil //nolint:nilnil // no guard, and no error
	}
	if err := a.refuse(activityType); err != nil {
		return nil, err
	}
	scope, locks := s.root, *a.locks
	if InScope(ctx) {
		scope = a.scope
	}
	locks.Try = locks.Try || triesOnce(ctx)
	if a.compensating { // which has to run, however long it takes
		locks.Try, locks.MaxWait = false, 0
	}
	step := s.newStep(ctx, fmt.Sprintf("%d/%s", s.steps, activityType), &locks, scope)
	if a.undone != nil {
		a.undone.part = step.Guard.Part
	}
	step.Guard.Before = s.before(ctx)
	if a.undoing != nil {
		step.Guard.Undoes = a.undoing.part
	}
	return step, nil
}

// refuse returns an error if the step must not be scheduled.
func (a asked) refuse(activityType string) error {
	if a.undone != nil && a.locks.Scope == wire.ScopeStep {
		return Invalid("Locks.Scope", fmt.Sprintf("%q", a.locks.Scope),
			"ScopeSaga, or empty, for Saga.Step: its locks stand until it cannot be undone any more")
	}
	if a.locks.Scope == "" && !a.compensating && a.strays() != nil {
		return Invalid("the context of ExecuteActivity", fmt.Sprintf("a context from outside the saga, for %q", wire.Cut(activityType, 128)),
			"the context that RunSaga gives to its function, or one made of it; or Locks.Scope: ScopeStep, if the locks are to end with the step")
	}
	return a.locks.Refuse()
}

// triesOnce reports whether the step's retry policy names the failure of a step that finds its lock
// busy as one that is not to be retried.
func triesOnce(ctx workflow.Context) bool {
	policy := workflow.GetActivityOptions(ctx).RetryPolicy
	return policy != nil && slices.Contains(policy.NonRetryableErrorTypes, wire.FailureBusy)
}

// newStep makes the step and its guard. The first scheduling has its number.
func (s *State) newStep(ctx workflow.Context, part string, locks *Locks, scope *Scope) *Step {
	a, kind := askedOf(ctx), locks.Scope
	if kind == "" {
		kind = wire.ScopeStep
		if scope != s.root {
			kind = wire.ScopeSaga
		}
	}
	if kind != wire.ScopeStep {
		scope.uses.addAll(locks.Resources, 0)
	}
	step := &Step{scope: scope, saga: a.saga, maxWait: locks.longestWait(), Guard: &wire.Guard{
		Part:        wire.Cut(part, wire.MaxName),
		Scope:       kind,
		Resources:   locks.Resources,
		TTL:         wire.Duration(locks.TTL),
		HoldTTL:     wire.Duration(locks.HoldTTL),
		Reacquire:   scope.goesOn || a.compensating,
		NewFence:    a.compensating,
		Owner:       cmp.Or(locks.Owner, a.owner, s.owner),
		Ancestors:   ancestors(ctx),
		Park:        true,
		Try:         locks.Try,
		Started:     s.started,
		NeverVictim: a.compensating,
		Run:         runID(ctx),
	}}
	if a.saga != nil && scope.lock == nil {
		step.Guard.Saga = a.saga.id
	}
	o := workflow.GetActivityOptions(ctx)
	if step.priority = o.Priority; scope.lock == nil {
		step.queue = o.TaskQueue
	}
	step.number(ctx)
	return step
}

// number numbers the next scheduling, and says what is known to be held. A run that was reset does
// not know.
func (t *Step) number(ctx workflow.Context) {
	s, next := t.scope.state, *t.Guard
	s.schedules++
	next.Schedule, next.Collection = s.schedules, s.collection.Known()
	next.Resources = slices.Clone(next.Resources)
	for i, r := range next.Resources {
		next.Resources[i].Held = next.Scope != wire.ScopeStep && !s.wasReset && s.knows(t.scope, r.Name)
	}
	t.scheduled = workflow.Now(ctx)
	if t.maxWait > 0 {
		waited := time.Duration(0)
		if !t.waiting.IsZero() {
			waited = t.scheduled.Sub(t.waiting)
		}
		next.MaxWait = wire.Duration(max(t.maxWait-waited, time.Millisecond))
	}
	t.Guard = &next
}

// Scheduled notes that the step is scheduled: until it has ended, it may run.
func (t *Step) Scheduled() {
	if t.saga != nil {
		t.saga.open = append(t.saga.open, t)
	}
}

// ended notes that the step has ended with err. One that was cancelled or timed out may run on.
func (t *Step) ended(err error) {
	if t.saga == nil {
		return
	}
	t.saga.open = slices.DeleteFunc(t.saga.open, func(o *Step) bool { return o == t })
	if timeout := new(temporal.TimeoutError); temporal.IsCanceledError(err) || errors.As(err, &timeout) {
		t.saga.late.addAll(t.Guard.Resources, 0)
	}
}

// Enter has ask ask for the locks, and run what runs under them. If they are busy it waits, and has
// it ask again, with the context of the next scheduling. It returns ask's error, or that of the
// wait, as one that matches lockcore's.
func (t *Step) Enter(ctx workflow.Context, ask func(ctx workflow.Context) error) error {
	for {
		err := ask(ctx)
		found, parked := wire.Parked(err)
		if !parked {
			t.ended(err)
			t.done(err)
			return t.failed(wire.TypedError(err))
		}
		if err := t.wait(ctx, found, err); err != nil {
			t.ended(nil)
			if t.ran && t.saga != nil { // by an attempt before the one that waited
				t.saga.late.addAll(t.Guard.Resources, 0)
			}
			return err
		}
		ctx = t.again(ctx)
	}
}

// IsOver reports whether the outcome of a scheduling leaves nothing to wait for or to give up, so
// that [Step.Enter] does not block.
func IsOver(err error) bool {
	timeout := new(temporal.TimeoutError)
	_, parked := wire.Parked(err)
	return !parked && !temporal.IsCanceledError(err) && !errors.As(err, &timeout)
}

// again numbers the next scheduling of a step that has waited, and says with what options: those of
// ctx, less the attempts and the time that the step itself has used.
func (t *Step) again(ctx workflow.Context) workflow.Context {
	t.number(ctx)
	opts := workflow.GetActivityOptions(ctx)
	if policy := opts.RetryPolicy; policy != nil && policy.MaximumAttempts > 0 {
		rest := *policy
		rest.MaximumAttempts = max(1, rest.MaximumAttempts-int32(t.parked.Attempt)+1) //nolint:gosec // an attempt's number, which is an int32
		opts.RetryPolicy = &rest
	}
	if opts.ScheduleToCloseTimeout > 0 {
		opts.ScheduleToCloseTimeout = max(time.Second, opts.ScheduleToCloseTimeout-t.used)
	}
	return workflow.WithActivityOptions(ctx, opts)
}

// done notes what became of the step, and gives up what it does not use any more: a grant that no
// attempt took up, since the step was cancelled or its time was over first; and what an attempt
// kept that did not return.
func (t *Step) done(err error) {
	timeout, keeps := new(temporal.TimeoutError), t.Guard.Scope == wire.ScopeSaga
	late := errors.As(err, &timeout)
	switch {
	case err == nil && keeps && !t.scope.closed:
		t.scope.uses.addAll(t.Guard.Resources, t.Guard.Schedule)
	case t.scope.lock != nil: // its scope is released
	case late && !keeps && (t.parked != nil || t.Guard.Keeps()):
		t.release(t.Guard.Schedule)
	case (late || temporal.IsCanceledError(err)) && t.parked != nil && !(keeps && t.scope.closed):
		t.giveUp()
	}
}

// failed says of the error of a step that has ended whether it is known that the step never ran; or
// of a compensation's, that the step never ran which it undoes.
func (t *Step) failed(err error) error {
	var step *wire.StepError
	if errors.As(err, &step) {
		step.NeverRan = !t.ran && step.Tried() == cmp.Or(t.Guard.Undoes, t.Guard.Part)
	}
	return err
}

func names(resources []lockcore.Resource) []string {
	var all uses
	all.addAll(resources, 0)
	return all.names()
}
