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
// Several resources are acquired in the order of their names; Lock holds those that it has while it waits for the rest. If it fails, it
// releases them. Lock runs an ordinary activity, not a local one. If a lock is busy, the activity's attempt fails, and the request stays in
// the queue of the resource. In retry back-off the activity uses no slot and adds nothing to the history, until the worker that frees the
// lock completes it by its ID. Temporal's UI shows the holder in the last failure of the pending activity. If several of the resources were
// busy, each one after the first costs another activity. So may an upgrade of a lock that the workflow already holds.
//
// [Locks.Scope] is for steps, and refused here. TTL is validated but has no effect. The locks expire after HoldTTL without an extension. Each
// [ScopeSaga] step on the same resources extends them, and so does the janitor while the run is open: see worker.JanitorOptions.
//
// The locks belong to the workflow ID, so two calls of Lock in one run do not exclude each other. They do not block the workflow's steps with
// [ScopeStep], which have locks of their own. A step guarded with [ScopeSaga] uses the locks, and fails with a *lockcore.LostError if they
// are lost.
//
// A run created by a reset, or by [HandOver], continues with the locks of the run before it.
//
// Cancelling ctx during the wait withdraws the request, and releases a lock that is granted at the same time; the error is a
// *temporal.CanceledError. Other errors match *lockcore.BusyError (after MaxWait, or at once with Try), *lockcore.DeadlockError,
// *lockcore.LostError or *lockcore.InvalidError. After an error this call holds nothing. Lock blocks the calling coroutine. It panics if the
// worker runs without Lockstep's interceptor, as [WithLocks] does.
func Lock(ctx workflow.Context, l Locks) (*Hold, error) {
	state := runstate.StateFrom(ctx)
	if state == nil {
		panic(notInstalled)
	}
	locks := l.internal()
	if err := locks.Check(); err != nil {
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

// Release verifies that the locks have been held without a gap since [Lock], even if ctx is cancelled. If one was lost, another workflow may
// have held it: the error matches [lockcore.ErrLost]. In any case the locks are released after the server has accepted the workflow task:
// by an activity that the workflow does not wait for, or by the worker if the run ends. A lock that a saga in progress or another Hold uses
// too is released when that ends. A second call returns the same error.
//
// The check is a local activity, which costs one event. If that fails, it is repeated as an ordinary activity for up to ten minutes. After
// that the error gives the reason, and it is not known whether a lock was lost.
//
// Return the error as it is, if nothing else failed before, as in the example of [Lock]. With errors.Join the history would have the type
// of the joined error, and not "lockstep.Lost".
//
// If the workflow function returns without an error and has not released the locks, they are verified then. If one was lost, or could not
// be verified, the workflow fails with that error.
//
// Steps that run under the locks must have returned before Release is called. Otherwise they lose their locks, and fail with a
// *lockcore.LostError.
func (h *Hold) Release(ctx workflow.Context) error { return h.lock.Release(ctx) }

// Check verifies that the locks have been held without a gap since [Lock], and releases nothing. Call it before an effect that needs the
// locks, in a workflow that holds them for long. If one was lost, the error matches [lockcore.ErrLost]; any other error means that the
// database did not answer for ten minutes. After Release it returns the error of Release. It costs one event, or an ordinary activity if the
// local one fails.
func (h *Hold) Check(ctx workflow.Context) error { return h.lock.Check(ctx) }

// HandOver marks the run and returns err unchanged. If the run then ends with err, and err is a [workflow.ContinueAsNewError], the run
// passes its locks to the run that continues it instead of releasing them:
//
//	return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, Transfer, rest))
//
// Inside [RunSaga] return it from the saga's function, and return RunSaga's error from the workflow. No other workflow gets the locks in
// between: they are extended once, for their HoldTTL, and the next run takes them over when it requests the same resources, by a guarded
// step or a [Lock]. Locks that the next run never requests are released when that run ends, unless it hands over too.
//
// If a lock was lost, or extending it has failed for ten minutes, the run does not continue as new: it fails with the error of the lock, and
// releases what it holds.
//
// Compensations are not handed over, because they are functions; the next run must register those that it needs. Steps that still run are
// not handed over either, because they end with their run. Only continue-as-new hands over: a run created by a retry gets nothing.
//
// HandOver does nothing if err is another error, or nil. It adds one event, of a local activity, if anything is held. It panics, and so
// fails the workflow task, if the worker runs without Lockstep's interceptor.
func HandOver(ctx workflow.Context, err error) error {
	state := runstate.StateFrom(ctx)
	if state == nil {
		panic(notInstalled)
	}
	state.MarkHandover(err)
	return err
}
