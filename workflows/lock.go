package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
)

// Hold is locks held around code, from [Lock] to [Hold.Release]. It belongs to the workflow run that took it.
type Hold struct {
	lock *runstate.Lock
}

// Lock takes locks that stand until [Hold.Release], whatever the workflow does meanwhile: timers, child workflows,
// signals, steps. Locks that it does not release are released when the workflow function has returned, whatever it
// returned, so that no deferred call is needed.
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	if err != nil {
//		return err
//	}
//	err = workflow.Sleep(ctx, time.Minute)
//	if lost := hold.Release(ctx); err == nil {
//		err = lost
//	}
//	return err
//
// Several resources are taken in the order of their names, all or none; what it has already stands while it waits for
// the rest. It is one ordinary activity. While the locks are busy the activity waits in the queue, in back-off: it uses no
// slot and adds nothing to the history, and the worker that frees the lock completes it. Temporal's UI shows the holder in the
// last failure of the pending activity. Lock needs one more activity for each of several resources that it waited for, and
// may need one more for a lock that the workflow holds in a weaker mode.
//
// [Locks.Scope] is for steps, and refused here; TTL has no meaning but that it is not more than HoldTTL. The locks stand for
// HoldTTL after the last sign of life. A step under them gives one, and so does the janitor as long as the run is open: see
// worker.JanitorOptions.
//
// All locks of a run are held in its name; two calls of Lock in one run do not keep each other out. Steps guarded in
// [ScopeStep] are parties of their own, which the locks do not block. One guarded in [ScopeSaga] joins the locks, and fails with a
// *lockcore.LostError if they are lost.
//
// All runs of a workflow share its locks: one that was reset, or continues another ([HandOver]), goes on with what the run
// before holds.
//
// Cancelling ctx while it waits leaves the queue, and what was granted meanwhile is released; the error is a
// *temporal.CanceledError. Other errors match *lockcore.BusyError (after MaxWait, or at once with Try), *lockcore.DeadlockError,
// *lockcore.LostError, *lockcore.InvalidError; with any error nothing is held. It blocks, and panics if the worker
// runs without Lockstep's interceptor, as [WithLocks] does.
func Lock(ctx workflow.Context, l Locks) (*Hold, error) {
	state := runstate.StateFrom(ctx)
	if state == nil {
		panic(notInstalled)
	}
	locks := l.asked()
	if err := locks.Refuse(); err != nil {
		return nil, err
	}
	if l.Scope != "" {
		return nil, runstate.Invalid("Locks.Scope", fmt.Sprintf("%q", l.Scope), "empty with Lock: its locks are held until Release")
	}
	lock, err := state.Lock(ctx, &locks)
	if err != nil {
		return nil, err
	}
	return &Hold{lock}, nil
}

// Release makes sure that the locks are held, and have been held since [Lock], also if ctx is cancelled. If
// one was lost, another workflow may have held it: the error matches [lockcore.ErrLost]. In any case the locks are released after
// Temporal has recorded the workflow task: by an activity for which the workflow does not wait, or by the worker if the run ends.
//
// The check is one local activity, so one event, and an ordinary activity if that fails, for as long as ten minutes. After that the
// error says why, and whether a lock was lost is not known. What a saga in progress, or another Hold, holds too stays
// until that ends. Releasing again gives the same answer.
//
// Return its error as it is, if nothing else failed before, as in the example of [Lock]. With
// errors.Join the history would have the type of the joined error, and not "lockstep.Lost".
//
// Locks that are never released are released when the workflow function has returned. If it returned no error, and a lock
// was lost or could not be verified, the workflow fails with that error.
//
// Steps that run under the locks must have returned: they are cut off, and fail with a *lockcore.LostError.
func (h *Hold) Release(ctx workflow.Context) error { return h.lock.Release(ctx) }

// Check makes sure that the locks are held, and have been held since [Lock], and releases nothing: ask before an effect that
// needs them, in a workflow that holds them for long. If one was lost, the error matches [lockcore.ErrLost]; another error
// says that the database did not answer for ten minutes. After Release it gives the answer of that. It is one local activity,
// so one event, and an ordinary activity if that fails.
func (h *Hold) Check(ctx workflow.Context) error { return h.lock.Check(ctx) }
