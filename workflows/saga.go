package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// SagaOptions configures [RunSaga]. The zero value is the default.
type SagaOptions struct {
	// ParallelCompensation runs all compensations at once instead of one after the other in reverse order. Defaults to false.
	ParallelCompensation bool
	// DeadlockRetries is the number of times that fn is called again from its beginning if a step was the victim of a deadlock
	// (*lockcore.DeadlockError): up to 1,000. 0 is the default, 10. To never call it again, set -1.
	//
	// Before each repeated call the saga is undone, its locks and the locks that fn has acquired by [Lock] under its context are released, and the
	// saga sleeps, by a timer: 50 to 100 ms at first and 5 to 10 s at most.
	//
	// fn must reset the variables outside of it that it changes, and must put [Saga.Attempt] into idempotency keys. A signal that fn has
	// received is not received again. The function of a saga inside another one is not called again, because its locks belong to the outer one.
	DeadlockRetries int
}

const (
	maxRetries     = 1000
	defaultRetries = 10
)

// Saga collects the compensations of one saga. [RunSaga] makes it; do not use it after the function it was given to has returned.
type Saga struct {
	// pending lists the compensations that have not run, in the order of registration.
	pending    []*compensation
	registered int
	attempt    int
	ended      bool
	parallel   bool
	// outer is the enclosing saga. If it fails later, it also undoes this one.
	outer *Saga
	// nested identifies this saga to its steps, whether or not it is inside another saga.
	nested *runstate.Saga
}

type sagaKey struct{}

// Attempt returns the number of calls of fn so far, including this one: 1, or more with [SagaOptions.DeadlockRetries]. Put it
// into the idempotency keys of steps, because the steps of earlier attempts were undone.
func (s *Saga) Attempt() int { return s.attempt }

// RunSaga runs fn as a saga. Steps guarded in fn, by [Guard] or [WithLocks], hold their locks until the saga has committed or has finished
// compensating:
//
//  1. fn returns nil. If its steps have used every lock within the last five minutes, the saga commits: locks are kept for 15 minutes or more,
//     so none can have expired. Otherwise RunSaga verifies, as [Saga.Verify] does, that the saga has held the older ones without a gap. If one
//     was lost, the saga is undone as in 2, and the error matches [lockcore.ErrLost].
//  2. fn returns an error, including that of a cancelled context. The registered compensations run in reverse order while the locks are
//     still held, on a context that is not cancelled. If one fails, the others still run. RunSaga returns fn's error as it is, or a
//     *[SagaError] if a compensation failed. If fn failed because of a deadlock, RunSaga then calls it again instead of returning: see
//     [SagaOptions.DeadlockRetries].
//  3. fn returns a [workflow.ContinueAsNewError]. The locks are verified as in 1. If none was lost, nothing is compensated, and RunSaga
//     returns the error, which the workflow must return. The next run starts with no locks and no compensations. With [HandOver] the locks
//     are not released, and the next run continues with them.
//
// The locks are released after the server has accepted the workflow task: by an activity that the workflow does not wait for, or, if the run
// ends, by its worker. If the server rejects the task, because a signal or a cancellation has arrived, the code runs again and still holds
// all locks.
//
// So within five minutes after a lock was used, the commit does not notice that an operator has released it by force or dropped the collection,
// or that a step ran on a worker without Lockstep. The release finds that out: it logs an error, and "lockstep why" and "lockstep doctor"
// report it. A saga that must know before it commits calls [Saga.Verify].
//
// A commit that verifies awaits an activity. A saga that then continues as new would lose signals that arrive in the meantime: call [Saga.Verify]
// first, then receive all signals, and then return.
//
// Guarded steps of fn, and sagas inside it, need the context that fn is given, or one derived from it. Under a context from outside the
// saga they fail with a *lockcore.InvalidError, unless a step's [Locks.Scope] is ScopeStep.
//
// fn must wait for the steps that it starts. A step that still waits for its locks when fn has returned, or that is started while the saga
// commits or after it has begun to be undone, does not run, and its error matches lockcore.ErrEnded. A panic in fn fails the workflow task, and
// does not undo the saga.
//
// If a saga inside a saga fails, only the inner saga is undone. If it succeeds, it hands its locks and its compensations to the outer saga. If
// the inner saga ran in another coroutine, and the outer one has begun to compensate by then, the inner one is undone, and its error matches
// lockcore.ErrEnded. A saga inside a compensation hands only its locks to the saga that is compensating.
func RunSaga(ctx workflow.Context, opts SagaOptions, fn func(ctx workflow.Context, s *Saga) error) error {
	if opts.DeadlockRetries < -1 || opts.DeadlockRetries > maxRetries {
		return runstate.Invalid("SagaOptions.DeadlockRetries", strconv.Itoa(opts.DeadlockRetries), fmt.Sprintf("-1 to %d", maxRetries))
	}
	if err := runstate.CheckSaga(ctx); err != nil {
		return err
	}
	retries := cmp.Or(opts.DeadlockRetries, defaultRetries)
	if runstate.InScope(ctx) {
		retries = 0
	}
	for attempt := 1; ; attempt++ {
		s, err := runOnce(ctx, opts, attempt, fn)
		if _, failed := errors.AsType[*SagaError](err); failed || attempt > retries || !errors.Is(err, lockcore.ErrDeadlock) {
			return err
		}
		if err := s.nested.ReleaseLocks(ctx); err != nil {
			return err
		}
		if err := workflow.Sleep(ctx, retryDelay(attempt, workflow.GetInfo(ctx).WorkflowExecution.RunID)); err != nil {
			return err
		}
	}
}

// retryDelay returns the time for which a saga sleeps after a deadlock ended an attempt. It grows with the attempts, and differs between
// runs.
func retryDelay(attempt int, runID string) time.Duration {
	return pace.Jitter(pace.Backoff(100*time.Millisecond, 10*time.Second, attempt), func(most time.Duration) time.Duration {
		h := fnv.New32a()
		_, _ = h.Write([]byte(runID + "/" + strconv.Itoa(attempt))) // never fails
		return time.Duration(h.Sum32()) % most
	})
}

// runOnce makes one attempt of a saga.
func runOnce(ctx workflow.Context, opts SagaOptions, attempt int, fn func(ctx workflow.Context, s *Saga) error) (*Saga, error) {
	inner, nested := runstate.WithSaga(ctx)
	s := &Saga{attempt: attempt, parallel: opts.ParallelCompensation, nested: nested}
	if !runstate.IsCompensating(ctx) { // a saga inside a compensation is never undone by the saga that it helps to undo
		s.outer, _ = ctx.Value(sagaKey{}).(*Saga)
	}
	for s.outer != nil && s.outer.ended {
		s.outer = s.outer.outer
	}
	return s, s.run(ctx, workflow.WithValue(inner, sagaKey{}, s), fn)
}

// run calls fn, and then commits the saga or undoes it. ctx is the context around the saga, inner that of fn.
func (s *Saga) run(ctx, inner workflow.Context, fn func(ctx workflow.Context, s *Saga) error) error {
	err := matchDeadlock(fn(inner, s))
	handsOver := runstate.HandsOver(ctx, err)
	if err == nil || continuesAsNew(err) {
		if failed := s.succeed(ctx, handsOver); failed != nil {
			err = failed
		}
	}
	fails := err != nil && !continuesAsNew(err)
	if fails {
		err = s.undo(ctx, err)
	}
	s.ended = true
	s.nested.End()
	if fails && s.nested.Own != nil {
		s.nested.Own.Release()
	}
	return err
}

// succeed commits the saga, leaves its locks to the next run, or hands its compensations to the saga around it.
func (s *Saga) succeed(ctx workflow.Context, handsOver bool) error {
	switch scope := s.nested.Own; {
	case scope != nil && handsOver:
		return scope.KeepUntilRunEnds(ctx, s.nested)
	case scope != nil:
		return scope.Commit(ctx, s.nested)
	}
	s.nested.AwaitInner(ctx)
	switch {
	case s.outer != nil && (s.outer.ended || s.outer.nested.IsUndoing()):
		return wire.NewEnded("lockstep: the saga around this one has failed, and this one was undone", false)
	case s.outer != nil && len(s.pending) > 0:
		_, err := s.outer.add(ctx, "", s.undoneWithOuter)
		return err
	}
	return nil
}

func continuesAsNew(err error) bool {
	_, next := errors.AsType[*workflow.ContinueAsNewError](err)
	return next
}

// undo ends the steps that may still run, and runs the compensations. It returns err, or a *SagaError if a compensation failed.
func (s *Saga) undo(ctx workflow.Context, err error) error {
	s.nested.BeginUndo(ctx)
	if slices.ContainsFunc(s.pending, func(c *compensation) bool { return !c.isVoid(ctx) }) {
		s.nested.Bar(ctx)
	}
	failed, ran := s.compensate(ctx)
	if len(failed) == 0 {
		return err
	}
	return &SagaError{Err: err, Compensations: failed, Ran: ran}
}

// undoneWithOuter undoes a saga that has succeeded inside one that has failed.
func (s *Saga) undoneWithOuter(ctx workflow.Context) error {
	failed, _ := s.compensate(ctx)
	errs := make([]error, len(failed))
	for i, e := range failed {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// Verify asks the database whether the saga has held every lock that its steps have used, without a gap, and renews these locks. If one was
// lost, the error matches [lockcore.ErrLost], and fn should return it, so that the saga is undone. Verify returns nil only after an answer that
// is younger than five minutes. It runs an ordinary activity, which is retried while the database does not answer. If ctx is cancelled it
// returns a *temporal.CanceledError; after the saga's end, an error that matches [lockcore.ErrEnded].
func (s *Saga) Verify(ctx workflow.Context) error {
	switch {
	case s.ended:
		return ended("Verify")
	case s.nested.Scope == nil:
		return nil
	}
	return s.nested.Scope.Verify(ctx)
}

// ended returns the error of a call after the saga's end.
func ended(call string) error {
	return wire.NewEnded(fmt.Sprintf("lockstep: Saga.%s was called after its saga had ended", call), true)
}

// Compensate registers a function that undoes a step. Register it before the step runs, because a step that timed out may have been
// applied. Unlike the compensation of [Saga.Step], fn also runs if the step never ran, so it must do nothing in that case. After the saga's
// end nothing is registered, and the error matches [lockcore.ErrEnded]: it can occur only if another coroutine than that of the saga's function calls Compensate.
//
// fn runs only if the saga fails. Its context is not cancelled, and has the activity options and locks of ctx. Steps that fn runs under
// these locks always get a new fence, so that a store which checks fences refuses late writes of the original step, and acquire lost locks
// again.
//
// No guarded step of the saga runs at the same time as a compensation. Before the first compensation, the saga waits, in an activity, until
// all guarded steps that it has scheduled have returned or their TTL has ended.
//
// The steps of fn wait for their locks as long as it takes, whatever MaxWait and Try of [Locks] are. They fail with a
// *lockcore.DeadlockError only if all that wait for each other are compensations.
func (s *Saga) Compensate(ctx workflow.Context, fn func(ctx workflow.Context) error) error {
	_, err := s.add(ctx, "", fn)
	return err
}

// CompensateWith registers an activity that undoes a step; see [Saga.Compensate], also for the error. Its options and its locks are those of
// ctx:
//
//	if err := s.CompensateWith(ctx, Refund, in); err != nil {
//		return err
//	}
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// The arguments are encoded now, so a later change through a pointer has no effect. CompensateWith panics, and so fails the workflow task,
// if they cannot be encoded.
//
// The activity always runs when the saga fails, because Lockstep does not know which step it undoes. Prefer [Saga.Step] if a step has an undo
// of its own.
func (s *Saga) CompensateWith(ctx workflow.Context, activity any, args ...any) error {
	encoded := runstate.Encode(ctx, "the compensation "+activityName(activity), args)
	_, err := s.add(ctx, activityName(activity), func(ctx workflow.Context) error { return runUndo(ctx, activity, encoded) })
	return err
}

// Step runs an activity under ctx, and registers undo, an activity with the same arguments, which undoes it if the saga fails:
//
//	err := s.Step(ctx, Debit, UndoDebit, in).Get(ctx, &result)
//
// Cancelling ctx cancels the activity. undo is registered before the activity is scheduled, as by [Saga.CompensateWith], with the arguments
// as they are now. It does not run
//
//   - if the step is known never to have run, because it was not scheduled or did not get its locks;
//   - if undo became the victim of a deadlock between compensations, the step was cancelled, and the database shows that the step never
//     held its locks.
//
// Under a context from outside the saga, and with locks of [ScopeStep], the step is refused with a *lockcore.InvalidError: for such locks call
// CompensateWith and then workflow.ExecuteActivity. After the saga's end the error matches
// [lockcore.ErrEnded]. Step panics, and so fails the workflow task, which is repeated, if the arguments cannot be encoded. undo has the options
// of ctx, except ActivityID. If the worker session of ctx (workflow.CreateSession) has failed, undo runs outside it.
func (s *Saga) Step(ctx workflow.Context, activity, undo any, args ...any) workflow.Future {
	if s.ended {
		return runstate.Failed(ctx, ended("Step"))
	}
	if runstate.ScopeFrom(ctx) != s.nested.Scope || !runstate.SagaFrom(ctx).IsWithin(s.nested) {
		return runstate.Failed(ctx, runstate.Invalid("Saga.Step", "a context from outside the saga",
			"the context that RunSaga gives to its function, or one derived from it"))
	}
	if activityName(undo) == "" {
		return runstate.Failed(ctx, runstate.Invalid("Saga.Step", fmt.Sprintf("an undo of type %T", undo),
			"an activity, or its name: a step that needs no undo is run by workflow.ExecuteActivity"))
	}
	encoded := runstate.Encode(ctx, "Saga.Step", args)
	link := &runstate.Undo{}
	c, err := s.add(ctx, activityName(undo), nil)
	if err != nil {
		return runstate.Failed(ctx, err)
	}
	c.fn = func(ctx workflow.Context) error {
		return c.undoStep(runstate.WithUndo(ctx, link, true), undo, encoded)
	}
	c.undoes = workflow.ExecuteActivity(runstate.WithUndo(ctx, link, false), activity, args...)
	if c.undoes.IsReady() { // it was refused, and not scheduled
		s.pending = slices.DeleteFunc(s.pending, func(other *compensation) bool { return other == c })
	}
	return c.undoes
}

// undoStep runs the activity that undoes a step.
func (c *compensation) undoStep(ctx workflow.Context, undo any, args []any) error {
	err := runUndo(ctx, undo, args)
	if wire.NeverRan(err) && mayNotHaveRun(ctx, c.undoes) {
		workflow.GetLogger(ctx).Info("lockstep: there is nothing to undo: the step never held its locks", "undo", c.activity, "error", err)
		return nil
	}
	return err
}

// mayNotHaveRun reports whether a step was cancelled, or did not get its locks. Only then may the database know better than the history
// whether it ran: a worker without Lockstep runs a step without its locks, and the history has the result.
func mayNotHaveRun(ctx workflow.Context, step workflow.Future) bool {
	if !step.IsReady() {
		return false
	}
	err := step.Get(ctx, nil)
	return temporal.IsCanceledError(err) || errors.Is(err, lockcore.ErrBusy) || errors.Is(err, lockcore.ErrDeadlock)
}

// deadlockError is the error of a saga's function if it contains the failure of a step that a rule has locked, and that was the victim of a
// deadlock. It matches lockcore.ErrDeadlock. The history records the function's own error.
type deadlockError struct {
	error
	wire.Outcome
}

// Unwrap returns the error of the saga's function.
func (e *deadlockError) Unwrap() error { return e.error }

// Failure returns the error that the history records.
func (e *deadlockError) Failure() error { return wire.Recorded(e.error) }

// matchDeadlock returns err as an error that matches lockcore.ErrDeadlock if a step of this workflow was the victim of a deadlock through a
// rule; otherwise err. Only guarded steps have errors that match by themselves: the future of a step without a guard is the SDK's own.
func matchDeadlock(err error) error {
	failed := deadlockOfStep(err)
	if failed == nil || errors.Is(err, lockcore.ErrDeadlock) {
		return err
	}
	return &deadlockError{err, wire.Outcome{Lock: wire.LockError(failed)}}
}

// deadlockOfStep returns the error of an activity of this workflow that failed as the victim of a deadlock, or nil. A deadlock further down,
// as in the error of a child workflow or of an activity that waited for another workflow, is not this saga's.
func deadlockOfStep(err error) *temporal.ActivityError {
	switch e := err.(type) { //nolint:errorlint // each error of the tree is visited
	case *temporal.ActivityError:
		if app, ok := e.Unwrap().(*temporal.ApplicationError); ok && app.Type() == wire.FailureDeadlock { //nolint:errorlint // the direct cause
			return e
		}
	case *temporal.ChildWorkflowExecutionError, *temporal.NexusOperationError:
	case interface{ Unwrap() error }:
		return deadlockOfStep(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if failed := deadlockOfStep(one); failed != nil {
				return failed
			}
		}
	}
	return nil
}
