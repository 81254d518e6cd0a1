package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// SagaOptions is how [RunSaga] runs. Its zero value is the default.
type SagaOptions struct {
	// ParallelCompensation runs all compensations at once instead of one after the other in reverse
	// order. Defaults to false.
	ParallelCompensation bool
	// ReleaseTimeout is how long the commit is tried if the database does not answer. After that
	// the saga is undone, as if it had lost a lock, and the error is of the type
	// "lockstep.Unavailable". It also bounds the release after compensation: what that could not
	// release, the end of the workflow tries again, and then the janitor. Defaults to 10 min.
	ReleaseTimeout time.Duration
	// GoOnAfterLoss lets a saga commit, or go on, though it has lost a lock or could not verify
	// them, instead of being undone: a step takes again what was lost, and the commit logs it.
	// Others may have been in between. Defaults to false.
	GoOnAfterLoss bool
	// DeadlockRetries is how often fn is called again from its beginning, after compensation and
	// release, if a step was given up to end a deadlock (*lockcore.DeadlockError): up to 1,000, or
	// -1 for never. So fn sets again what it keeps in variables outside, and puts [Saga.Attempt]
	// into idempotency keys. What fn has received is gone: a signal that it waits for comes once, so it
	// is received before RunSaga, or kept in a variable outside. What fn has taken by [Lock] and not
	// released is released before the next call. Before each call the saga sleeps, 100 ms at first and up to 10 s,
	// spread by the run's ID; that is a timer, two events. The function of a saga inside another
	// one is not called again: the locks are the outer one's. Defaults to 10.
	DeadlockRetries int
}

// Saga collects the compensations of one saga. [RunSaga] makes it; it must not be used by anything
// that outlives the function it was given to.
type Saga struct {
	// pending are the compensations that have not run, in the order of registration.
	pending []*compensation
	// scope is nil if the interceptor is not installed.
	scope      *runstate.Scope
	registered int
	attempt    int
	ended      bool
	parallel   bool
	// outer is the saga around this one, which undoes it if that fails later. nested identifies this
	// one to its steps.
	outer  *Saga
	nested *runstate.Saga
}

type sagaKey struct{}

// Attempt is how often fn has been called, this time included: 1, or more with [SagaOptions.DeadlockRetries]. Steps that are
// told apart by an idempotency key put it into the key, since those of an earlier attempt were undone.
func (s *Saga) Attempt() int { return s.attempt }

// RunSaga runs fn as a saga. Steps guarded in fn, by [Guard] or [WithLocks], hold their locks until
// RunSaga returns:
//
//  1. fn returns nil: RunSaga makes sure that the saga still holds every lock that its steps have used, and that it was held
//     before, and returns nil. If a lock was lost the saga is
//     undone, as in 2, and the error matches [lockcore.ErrLost], unless [SagaOptions.GoOnAfterLoss] is set.
//  2. fn returns an error, that of a cancelled context too: the compensations registered with the
//     Saga run in reverse order while the locks are still held, on a context that is not cancelled.
//     A failing one does not stop the others. RunSaga returns fn's error as it
//     is, or a *[SagaError] that says what else went wrong if a compensation failed.
//  3. fn returns a [workflow.ContinueAsNewError]: the locks are verified as in 1, and nothing is compensated.
//     RunSaga returns the error for the workflow to return. The next run starts with no locks and no
//     compensations. With [HandOver] the locks are not released: the next run goes on with them.
//
// The locks are released after Temporal has recorded the workflow task: by an activity for which the workflow does not wait, or,
// if the run ends, by its worker. If Temporal refuses the task, because a signal or a cancellation arrived meanwhile, the code
// runs again and still holds all locks.
//
// The commit is one local activity, so one event, and an ordinary activity if that fails. A saga
// with no guarded step releases nothing and adds no event. If the database does not answer for
// [SagaOptions.ReleaseTimeout], it is not known whether a lock was lost, and the saga is undone, as
// in 2.
//
// Guarded steps of fn need the context that fn is given, or one made of it. Under one from outside
// they fail with a
// *lockcore.InvalidError, unless their [Locks.Scope] is ScopeStep.
//
// fn must wait for the steps it starts. A step that still waits for its locks when fn has returned does not run any more: it
// leaves the queue by an activity for which the workflow does not wait, and its error matches lockcore.ErrEnded. Nothing here relies on
// deferred functions, which also run when a workflow is evicted from a worker's cache.
//
// RunSaga inside RunSaga is undone by itself if it fails. If it succeeds it hands its locks and its compensations to the outer
// saga, which verifies the locks when it commits, and runs the compensations, in their own order, if it fails. If the outer
// saga has begun to compensate by then, the inner one is undone, and its error matches lockcore.ErrEnded. A saga inside a
// compensation hands nothing to the outer one but its locks.
func RunSaga(ctx workflow.Context, opts SagaOptions, fn func(ctx workflow.Context, s *Saga) error) error {
	if err := opts.check(); err != nil {
		return err
	}
	retries := cmp.Or(opts.DeadlockRetries, defaultRetries)
	if runstate.InScope(ctx) {
		retries = 0
	}
	for attempt := 1; ; attempt++ {
		s, err := runOnce(ctx, opts, attempt, fn)
		if attempt > retries || !errors.Is(err, lockcore.ErrDeadlock) || undone(err) != nil {
			return err
		}
		if err := s.nested.ReleaseLocks(ctx); err != nil {
			return err
		}
		if err := workflow.Sleep(ctx, backOff(attempt, workflow.GetInfo(ctx).WorkflowExecution.RunID)); err != nil {
			return err
		}
	}
}

const (
	maxRetries     = 1000
	defaultRetries = 10
)

// undone is what went wrong when the saga was undone, or nil.
func undone(err error) error {
	var failed *SagaError
	if errors.As(err, &failed) {
		return failed
	}
	return nil
}

// backOff is how long a saga sleeps after an attempt that a deadlock ended: longer each time, and not as long as others.
func backOff(attempt int, runID string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID + "/" + strconv.Itoa(attempt))) // a hash takes everything
	most := min(10*time.Second, 100*time.Millisecond<<min(attempt-1, 10))
	return most/2 + time.Duration(h.Sum32())%(most/2)
}

// runOnce is one attempt of a saga.
func runOnce(ctx workflow.Context, opts SagaOptions, attempt int, fn func(ctx workflow.Context, s *Saga) error) (*Saga, error) {
	inner, scope := enterScope(ctx)
	if scope != nil && opts.GoOnAfterLoss {
		scope.GoOn()
	}
	s := &Saga{attempt: attempt, scope: runstate.ScopeFrom(inner), parallel: opts.ParallelCompensation}
	inner, s.nested = runstate.WithSaga(inner)
	if s.outer, _ = ctx.Value(sagaKey{}).(*Saga); s.outer != nil && (s.outer.ended || runstate.Compensates(ctx)) {
		s.outer = nil
	}
	return s, s.run(ctx, workflow.WithValue(inner, sagaKey{}, s), scope, opts, fn)
}

func (s *Saga) run(ctx, inner workflow.Context, scope *runstate.Scope, opts SagaOptions, fn func(ctx workflow.Context, s *Saga) error) error {
	err := fn(inner, s)
	if runstate.HandsOver(ctx, err) { // the run hands its locks over, or releases them, when it has ended
		s.ended = true
		if scope != nil {
			scope.Return()
		}
		return err
	}
	if scope != nil && (err == nil || continuesAsNew(err)) {
		failed := scope.Commit(ctx, opts.ReleaseTimeout)
		switch {
		case failed == nil:
			s.ended = true
			return err
		case opts.GoOnAfterLoss:
			workflow.GetLogger(ctx).Warn("lockstep: a saga goes on though it has lost a lock, or it is not known whether it has", "error", failed)
		default:
			err = failed
		}
	}
	if err == nil && s.outer != nil && (s.outer.ended || s.outer.nested.Undoing()) {
		err = wire.NewEnded("lockstep: the saga around this one has failed, and this one was undone", false)
	}
	switch {
	case err == nil && s.outer != nil && len(s.pending) > 0:
		s.outer.add(ctx, "", s.undoneWithOuter)
	case err != nil && !continuesAsNew(err):
		s.nested.CancelWaits(ctx)
		if len(s.pending) > 0 {
			s.nested.Bar(ctx)
		}
		err = s.compensate(ctx, err)
	}
	s.ended = true
	if scope != nil {
		scope.Release()
	}
	return err
}

// enterScope returns the context of the saga's function, and the scope that the saga must release:
// nil if an outer saga does, or if nothing can be guarded.
func enterScope(ctx workflow.Context) (workflow.Context, *runstate.Scope) {
	state := runstate.StateFrom(ctx)
	if state == nil || runstate.InScope(ctx) {
		return ctx, nil
	}
	return state.WithScope(ctx)
}

func continuesAsNew(err error) bool {
	var again *workflow.ContinueAsNewError
	return errors.As(err, &again)
}

// Compensate registers what undoes a step. Register it before the step runs: a step that timed out
// may have been applied, so fn must also be right if the step never ran.
//
// fn runs only if the saga fails, with a context that carries what ctx carries (activity options,
// locks) and is not cancelled. Steps that it runs under ctx's locks take them again if they were
// lost, and get a new fence, so that a resource which checks fences refuses what the original step may
// have sent late. No guarded step of the saga runs at the same time as a compensation. Before the first one, the saga waits for
// the steps that it cancelled, that timed out, or for which fn did not wait, until they have returned or their TTL has ended. They wait for locks as long as it takes, whatever [Locks] says of it, and fail with a *lockcore.DeadlockError only
// when all that wait for each other are compensations. fn is not dropped if its step never ran: [Saga.Step] does that.
func (s *Saga) Compensate(ctx workflow.Context, fn func(ctx workflow.Context) error) {
	s.add(ctx, "", fn)
}

// CompensateWith registers an activity that undoes a step; see [Saga.Compensate]. Its options and its
// locks are those of ctx:
//
//	s.CompensateWith(ctx, Refund, in)
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// The arguments are encoded now, so that it does not matter what becomes of what they point to. It panics, and so fails the
// workflow task, if they cannot be encoded.
//
// It always runs when the saga fails, and waits for its locks as long as it takes, even if the step gave up after its
// MaxWait, or with Try, or was cancelled: which step it undoes is not said. Prefer [Saga.Step] if a step has an undo of
// its own.
func (s *Saga) CompensateWith(ctx workflow.Context, activity any, args ...any) {
	encoded, err := runstate.Encode(ctx, args)
	if err != nil {
		panic(fmt.Sprintf("lockstep: the arguments of the compensation %s cannot be encoded: %v", activityName(activity), err))
	}
	s.add(ctx, activityName(activity), func(ctx workflow.Context) error { return runUndo(ctx, activity, encoded) })
}

// Step runs an activity under ctx, and has undo, an activity that gets the same arguments, undo it if the saga fails:
//
//	err := s.Step(ctx, Debit, UndoDebit, in).Get(ctx, &result)
//
// undo is registered before the activity is scheduled, as [Saga.CompensateWith] does, with the arguments as they are now. It
// is dropped again if the step is known never to have run, since it was not scheduled, or asked or waited for its locks in
// vain: then there is nothing to undo, and nothing for which
// undo would have to take the same locks. It is also dropped if it would have to give up in a
// deadlock of compensations, the step was cancelled, and the database knows that it never held its
// locks. Cancelling ctx cancels the activity.
//
// ctx is the one that RunSaga gives to its function, or one made of it. Under another one the step is refused with a
// *lockcore.InvalidError, and nothing runs: it would not hold its locks for the saga. So is one whose arguments cannot be
// encoded. undo has the options of ctx but for its ActivityID, and runs outside of the session of ctx if that has failed.
func (s *Saga) Step(ctx workflow.Context, activity, undo any, args ...any) workflow.Future {
	refuse := func(value, bound string) workflow.Future {
		refused, settable := workflow.NewFuture(ctx)
		settable.SetError(runstate.Invalid("Saga.Step", value, bound))
		return refused
	}
	if runstate.ScopeFrom(ctx) != s.scope {
		return refuse("a context from outside the saga", "the context that RunSaga gives to its function, or one made of it")
	}
	if activityName(undo) == "" {
		return refuse(fmt.Sprintf("an undo of type %T", undo), "an activity, or its name: a step that needs no undo is run by workflow.ExecuteActivity")
	}
	encoded, err := runstate.Encode(ctx, args)
	if err != nil {
		return refuse(fmt.Sprintf("arguments that cannot be encoded: %v", err), "arguments that the workflow's data converter encodes")
	}
	undone := &runstate.Undone{}
	var c *compensation
	c = s.add(ctx, activityName(undo), func(ctx workflow.Context) error {
		err := runUndo(runstate.WithUndoing(ctx, undone), undo, encoded)
		if wire.NeverRan(err) && endedUnheard(ctx, c.step) {
			workflow.GetLogger(ctx).Info("lockstep: there is nothing to undo: the step never held its locks", "undo", activityName(undo), "error", err)
			return nil
		}
		return err
	})
	c.step = workflow.ExecuteActivity(runstate.WithUndone(ctx, undone), activity, args...)
	if c.step.IsReady() { // it was refused, and not scheduled
		s.remove(c)
	}
	return c.step
}

// endedUnheard reports whether a step was cancelled, or asked for its locks in vain: only then may
// the database know better than the history whether it ran. A worker without Lockstep runs a step
// without its locks, and what that one returned stands in the history.
func endedUnheard(ctx workflow.Context, step workflow.Future) bool {
	if !step.IsReady() {
		return false
	}
	err := step.Get(ctx, nil)
	return temporal.IsCanceledError(err) || errors.Is(err, lockcore.ErrBusy) || errors.Is(err, lockcore.ErrDeadlock)
}
