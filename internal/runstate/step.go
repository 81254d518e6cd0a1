package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Step is one call of ExecuteActivity under locks, or one [Lock], which runs no activity of the user.
type Step struct {
	guard *wire.Guard
	scope *Scope
	saga  *Saga
	// execute schedules the activity with the guard in its header. future is that of the latest scheduling.
	execute func(ctx workflow.Context) workflow.Future
	future  workflow.Future
	// queue and priority are those of the activity; empty for a Lock.
	queue    string
	priority temporal.Priority
	// maxWait bounds the wait; 0 means as long as it takes.
	maxWait time.Duration
	// waitingSince is the start of the wait, moved forward so that the time in which the step ran does not count.
	waitingSince time.Time
	// scheduled is the time of the latest scheduling. used is the time from scheduled until the step found a lock busy.
	scheduled time.Time
	used      time.Duration
	// parked has the details of the latest attempt that did not get the locks, and parkedAs its schedule number.
	parked   *wire.ParkedDetails
	parkedAs uint32
	// fullRetries counts the consecutive attempts that left no request in a queue.
	fullRetries int
	// ran is set if an attempt before a wait may have run the step's own code.
	ran bool
}

// Step assigns a number to a call of ExecuteActivity and returns the step, or nil if it is not guarded under ctx. If it returns an error,
// which is a *wire.WaitError, the step must not be scheduled.
func (s *State) Step(ctx workflow.Context, activityType string) (*Step, error) {
	s.steps++
	a := stepContextOf(ctx)
	if a.locks == nil {
		s.schedules++
		return nil, nil //nolint:nilnil // no guard, and no error
	}
	if err := cmp.Or(a.check(activityType), s.admitGuard(ctx, a.locks)); err != nil {
		return nil, err
	}
	scope, locks := s.root, *a.locks
	if InScope(ctx) {
		scope = a.scope
	}
	if policy := workflow.GetActivityOptions(ctx).RetryPolicy; policy != nil && slices.Contains(policy.NonRetryableErrorTypes, wire.FailureBusy) {
		locks.Try = true // a busy attempt must not be repeated
	}
	if a.compensating { // it must run, however long that takes
		locks.Try, locks.MaxWait = false, 0
	}
	step := s.newStep(ctx, fmt.Sprintf("%d/%s", s.steps, activityType), locks, scope)
	switch {
	case a.undoes:
		step.guard.Undoes = a.undo.part
	case a.undo != nil:
		a.undo.part = step.guard.Part
	}
	return step, nil
}

// admitGuard returns an error if the guards that the current workflow task schedules would name more than maxGuards bytes of resources.
func (s *State) admitGuard(ctx workflow.Context, l *wire.Guard) error {
	if s.admitsGuard(ctx, l.Resources) {
		return nil
	}
	return Invalid("the guards of one workflow task", fmt.Sprintf("%d bytes of names", s.task.guards+sizeOf(l.Resources)),
		fmt.Sprintf("%d bytes: start fewer guarded steps at once, or guard each with fewer resources", maxGuards))
}

// check returns an error if a step of this context must not be scheduled.
func (c stepContext) check(activityType string) error {
	if c.undo != nil && !c.undoes && c.locks.Scope == wire.ScopeStep {
		return Invalid("Locks.Scope", fmt.Sprintf("%q", c.locks.Scope),
			"ScopeSaga, or empty, for Saga.Step: its locks must be held for as long as the step may be undone")
	}
	if c.locks.Scope == "" && !c.compensating && c.enclosingSaga() != nil {
		return Invalid("the context of ExecuteActivity", fmt.Sprintf("a context from outside the saga, for %q", wire.Cut(activityType, 128)),
			"the context that RunSaga gives to its function, or one derived from it; or Locks.Scope: ScopeStep, if the locks are to end with the step")
	}
	if !c.compensating && (c.saga.IsUndoing() || c.scope != nil && c.scope.committing) {
		return wire.NewEnded("lockstep: the saga is committed or undone, and starts no further step", true)
	}
	return CheckLocks(c.locks)
}

// newStep makes the step, for its first scheduling. guard has what a workflows.Locks has.
func (s *State) newStep(ctx workflow.Context, part string, guard wire.Guard, scope *Scope) *Step {
	a := stepContextOf(ctx)
	scope.ctx = ctx
	if guard.Scope == "" {
		guard.Scope = wire.ScopeStep
		if scope != s.root {
			guard.Scope = wire.ScopeSaga
		}
	}
	if guard.Scope != wire.ScopeStep {
		scope.uses.addAll(guard.Resources)
	}
	if guard.MaxWait > wire.Duration(100*365*24*time.Hour) { // a timeout of Temporal cannot be so long
		guard.MaxWait = 0
	}
	guard.Part, guard.Run, guard.Park = wire.Cut(part, wire.MaxName), runID(ctx), true
	guard.Owner, guard.Ancestors = cmp.Or(a.owner, s.owner), ancestors(ctx)
	guard.Started, guard.Inherits = s.started, s.wasReset
	guard.Reacquire, guard.NewFence, guard.NeverVictim = a.compensating, a.compensating, a.compensating
	if a.saga != nil && scope.lock == nil {
		guard.Saga = a.saga.id
	}
	step := &Step{scope: scope, saga: a.saga, maxWait: time.Duration(guard.MaxWait), guard: &guard}
	o := workflow.GetActivityOptions(ctx)
	if step.priority = o.Priority; scope.lock == nil {
		step.queue = o.TaskQueue
	}
	step.nextSchedule(ctx)
	return step
}

// nextSchedule assigns the next schedule number, and sets HeldSince for the resources that the run is known to hold. In a run that a reset has
// made, they may have been released since: then only evidence of a loss counts.
func (t *Step) nextSchedule(ctx workflow.Context) {
	s, next := t.scope.state, *t.guard
	s.schedules++
	next.Schedule, next.Collection = s.schedules, s.collectionID()
	next.Resources = slices.Clone(next.Resources)
	for i, r := range next.Resources {
		if next.Resources[i].HeldSince = 0; next.Scope != wire.ScopeStep {
			next.Resources[i].HeldSince = s.heldSince(t.scope, r.Name)
		}
	}
	t.scheduled = workflow.Now(ctx)
	if t.maxWait > 0 {
		waited := time.Duration(0)
		if !t.waitingSince.IsZero() {
			waited = t.scheduled.Sub(t.waitingSince)
		}
		next.MaxWait = wire.Duration(max(t.maxWait-waited, time.Millisecond))
	}
	t.guard = &next
}

func isTimeout(err error) bool {
	_, timedOut := errors.AsType[*temporal.TimeoutError](err)
	return timedOut
}

// Run schedules the step by execute, with the guard in its header, and again after each wait for its locks. It returns a future that becomes
// ready after the outcome was recorded in the state. If a lock was the reason for a failure, the error matches that of lockcore. It is a
// future of the SDK, because selectors accept no other.
//
// A final outcome is passed on by the coroutine that noticed it. If the step must wait for its locks, a coroutine of its own does so,
// because the other one must not block.
func (t *Step) Run(
	ctx workflow.Context, execute func(ctx workflow.Context, activityType string, args ...any) workflow.Future, activityType string, args []any,
) workflow.Future {
	args = Encode(ctx, activityType, args) // the step is scheduled again with the same arguments
	t.execute = func(ctx workflow.Context) workflow.Future {
		t.writeGuard(ctx, activityType)
		return execute(ctx, activityType, args...)
	}
	t.future = t.execute(ctx)
	if t.future.IsReady() { // it was refused, and not scheduled
		return t.future
	}
	t.saga.scheduledStep(ctx, t.guard.Resources)
	outer, settable := workflow.NewFuture(ctx)
	t.scope.state.whenReady(t.future, func(own workflow.Context) {
		if isFinalOutcome(t.future.Get(own, nil)) {
			t.finish(own, ctx, settable)
			return
		}
		workflow.GoNamed(ctx, "lockstep-step", func(own workflow.Context) { t.finish(own, ctx, settable) })
	})
	return outer
}

// writeGuard panics, and so fails the workflow task, if it cannot write the guard: the step must not run without its locks.
//
//workflowcheck:ignore an encryption may be random: replay does not compare headers
func (t *Step) writeGuard(ctx workflow.Context, activityType string) {
	info := workflow.GetInfo(ctx)
	payload, err := wire.EncodeHeader(t.scope.state.guards, info.Namespace, info.WorkflowExecution.ID, *t.guard)
	if err != nil {
		panic(err)
	}
	header := interceptor.WorkflowHeader(ctx)
	if header == nil {
		panic(fmt.Sprintf("lockstep: activity %q has no header to carry its locks: an interceptor dropped it", activityType))
	}
	header[wire.HeaderKey] = payload
}

// isFinalOutcome reports whether the outcome of a scheduling leaves nothing to wait for and nothing to withdraw, so that finish does not block.
func isFinalOutcome(err error) bool {
	_, parked := wire.Parked(err)
	return !parked && !temporal.IsCanceledError(err) && !isTimeout(err)
}

// finish waits until the step has run or failed, and settles the future, with an error of package lockcore if the locks were the reason. own is
// the context of the calling coroutine, ctx that of the step.
func (t *Step) finish(own, ctx workflow.Context, to workflow.Settable) {
	next := own
	for {
		err := t.future.Get(next, nil)
		details, parked := wire.Parked(err)
		if !parked {
			t.noteLoss(err)
			t.settle(next, err)
			if err := t.markNeverRan(wire.TypedError(err)); err != nil {
				to.SetError(err)
			} else {
				t.passResult(own, ctx, to)
			}
			return
		}
		if err := t.wait(next, details, err); err != nil {
			t.noteLoss(err)
			to.SetError(err)
			return
		}
		next = t.nextAttempt(next)
		t.future = t.execute(next)
	}
}

// passResult settles a future with the result of the step. A future that is chained to another decodes with the workflow's data converter.
// But the step's data converter may depend on the context of the activity. So the step's future decodes the payload, and the result is
// encoded again for the workflow.
func (t *Step) passResult(own, ctx workflow.Context, to workflow.Settable) {
	var raw converter.RawValue
	if t.future.Get(own, &raw) == nil && raw.Payload() != nil {
		if result, err := converterOf(ctx).ToPayloads(raw); err == nil {
			to.SetValue(result)
			return
		}
	}
	to.Chain(t.future)
}

// Failed returns a future with an error.
func Failed(ctx workflow.Context, err error) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	settable.SetError(err)
	return future
}

// noteLoss records that a kept lock was lost, if err reports that.
func (t *Step) noteLoss(err error) {
	if t.guard.Scope == wire.ScopeSaga {
		t.scope.state.noteLoss(err)
	}
}

// nextAttempt prepares the next scheduling of a step that has waited, and returns its context: the options are those of ctx, less the
// attempts and the time that the step itself has used. The parked attempt did not run, and does not count.
func (t *Step) nextAttempt(ctx workflow.Context) workflow.Context {
	t.nextSchedule(ctx)
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

// settle records the outcome of the step. It withdraws a grant that no attempt confirmed because the step was cancelled or timed out first,
// and releases what an attempt that never returned has kept.
func (t *Step) settle(ctx workflow.Context, err error) {
	timedOut, keeps := isTimeout(err), t.guard.Scope == wire.ScopeSaga
	switch {
	case err == nil && keeps && !t.scope.closed:
		t.noteUse()
	case t.scope.lock != nil: // a Lock: the Release of its scope does it
	case timedOut && !keeps && (t.parked != nil || t.guard.Keeps()):
		t.release(ctx, t.guard.Schedule)
	case (timedOut || temporal.IsCanceledError(err)) && t.parked != nil && !(keeps && t.scope.closed):
		t.withdraw(ctx)
	}
}

// noteUse records that the step has completed under its locks. A step that takes lost locks again does not show that they were held before.
func (t *Step) noteUse() {
	for _, r := range t.guard.Resources {
		if !t.guard.Reacquire && r.HeldSince > 0 {
			t.scope.state.noteHeld(r.Name, r.HeldSince, t.scheduled)
		}
		if !t.guard.Reacquire || t.scope.uses.heldSince(r.Name) == 0 {
			t.scope.uses.add(use{wire.Use{Resource: r.Name, Schedule: t.guard.Schedule}, t.scheduled})
		}
	}
}

// markNeverRan sets NeverRan in the error of a step that has ended, if the step is known never to have run; or, for a compensation, if the
// step that it undoes is known never to have run.
func (t *Step) markNeverRan(err error) error {
	if step, ok := errors.AsType[*wire.StepError](err); ok {
		step.NeverRan = !t.ran && step.PartNeverRan() == cmp.Or(t.guard.Undoes, t.guard.Part)
	}
	return err
}

func names(resources []wire.Resource) []string {
	var all uses
	all.addAll(resources)
	return all.names()
}
