package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
)

// Hold contains the locks that are held around code, from [Lock] to [Hold.Release]. Do not store it outside the workflow function.
type Hold struct {
	lock *runstate.Lock
}

// Lock acquires locks that are held until [Hold.Release], across timers, child workflows, signals and steps. Locks that the workflow does not
// release are released when the workflow function has returned, unless it hands them over ([HandOver]), so no deferred call is needed.
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	if err != nil {
//		return err
//	}
//	err = workflow.Sleep(ctx, time.Minute)
//	lost := hold.Release(ctx)
//	if err == nil {
//		err = lost
//	}
//	return err
//
// Several resources are acquired in the order of their names; Lock keeps the acquired ones while it waits for the rest. Lock runs an ordinary
// activity, not a local one, which waits in retry back-off, until the worker that frees the lock completes it by its ID: that uses no slot and
// adds nothing to the history. If several of the resources were busy, each one after the first costs another activity. So may an upgrade of a
// lock that the workflow already holds.
//
// [Locks.Scope] is for steps, and refused here. TTL is validated but has no effect. The locks expire after HoldTTL without an extension. Each
// [ScopeSaga] step on the same resources extends them, and so does the janitor while the run is open: see worker.JanitorOptions.
//
// The locks belong to the workflow ID, so two calls of Lock in one run do not exclude each other. They do not block the workflow's steps with
// [ScopeStep], which have locks of their own. A step guarded with [ScopeSaga] uses the locks, and fails with a *lockcore.LostError if they
// are lost. A run created by a reset, or by [HandOver], continues with the locks of the run before it.
//
// Cancelling ctx during the wait withdraws the request, and releases a lock that is granted at the same time; the error is a
// *temporal.CanceledError. Other errors match *lockcore.BusyError (after MaxWait, or at once with Try), *lockcore.DeadlockError,
// *lockcore.LostError or *lockcore.InvalidError. After an error this call holds nothing. Lock blocks the calling coroutine. It panics if the
// worker runs without Lockstep's interceptor, as [WithLocks] does.
func Lock(ctx workflow.Context, l Locks) (*Hold, error) {
	state, locks := installed(ctx), l.guard()
	if err := runstate.CheckLocks(locks); err != nil {
		return nil, err
	}
	if l.Scope != "" {
		return nil, runstate.Invalid("Locks.Scope", fmt.Sprintf("%q", l.Scope), "empty with Lock: its locks are held until Release")
	}
	lock, err := state.Lock(ctx, locks)
	if err != nil {
		return nil, err
	}
	return &Hold{lock}, nil
}

// Members returns the members of pools that are held, by the name of the pool: see [lockcore.Pool].
func (h *Hold) Members() map[string]string { return h.lock.Members() }

// Release commits the use of the locks. If [Lock] returned, or a step under ScopeSaga used them, within the last five minutes, it returns nil at
// once. Otherwise it verifies, even if ctx is cancelled, that they have been held without a gap since [Lock], as [Hold.Verify] does. If one was
// lost, the error matches [lockcore.ErrLost]. See [RunSaga] for what the shortcut gives up, and for when the locks are released. A lock that a
// saga in progress or another Hold uses too is released when that ends. A second call returns the same error.
//
// Return the error as it is, if nothing else failed before, as in the example of [Lock]. With errors.Join the history would have the type
// of the joined error, and not "lockstep.Lost".
//
// Steps that run under the locks must have returned before Release is called. Otherwise they lose their locks, and fail with a
// *lockcore.LostError.
func (h *Hold) Release(ctx workflow.Context) error { return h.lock.Release(ctx) }

// Verify asks the database, as [Saga.Verify] does, whether the locks have been held without a gap since [Lock]. Call it before an effect that
// needs the locks, in a workflow that holds them for long. After Release it returns the error of Release.
func (h *Hold) Verify(ctx workflow.Context) error { return h.lock.Verify(ctx) }

// HandOver verifies what the run holds, as a commit does, and returns err unchanged. If the run then ends with err, and err is a
// [workflow.ContinueAsNewError], the run passes its locks to the run that continues it instead of releasing them:
//
//	return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, Transfer, rest))
//
// If a lock was lost, HandOver returns an error that matches [lockcore.ErrLost] instead of err, and the run does not hand over; inside
// [RunSaga] the saga is then undone. If ctx is cancelled while HandOver asks, it returns a *temporal.CanceledError. Locks that were used
// within the last five minutes cost no activity.
//
// Inside [RunSaga] return it from the saga's function, and return RunSaga's error from the workflow. No other workflow gets the locks in
// between: the next run takes them over when it requests the same resources. Locks that it never requests are released when that run ends,
// unless it hands over too. A HoldTTL must be long enough for the next run's first request; the janitor extends the locks in the meantime.
//
// Compensations are not handed over, because they are functions, nor are steps that still run, because they end with their run. Only
// continue-as-new hands over: a run created by a retry gets nothing.
//
// HandOver does nothing if err is another error, or nil. It panics if the worker runs without Lockstep's interceptor.
func HandOver(ctx workflow.Context, err error) error {
	if lost := installed(ctx).HandOver(ctx, err); lost != nil {
		return lost
	}
	return err
}
