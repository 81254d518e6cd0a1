package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

const (
	// clockDifference is the largest expected difference between the clocks of the database and of Temporal.
	clockDifference = time.Minute
	// longEntry is the duration of an entry after which an attempt asks Temporal whether it is still pending.
	longEntry = 10 * time.Second
	// pendingTimeout bounds that question.
	pendingTimeout = 5 * time.Second
)

// enterFailure returns the failure of an attempt that did not get its locks. If the attempt was cancelled or timed out, Temporal decides
// what follows, so the failure is not that of a lock.
func (a *activityInbound) enterFailure(ctx context.Context, guard wire.Guard, req party.Request, err error) error {
	if ctx.Err() != nil && wire.LockError(err) == nil {
		return fmt.Errorf("lockstep: enter %q: %w", guard.Part, ctx.Err())
	}
	var deadlock *lockcore.DeadlockError
	var invalid *lockcore.InvalidError
	neverRan := partThatNeverRan(ctx, guard, err)
	switch {
	case errors.As(err, &invalid):
		return wire.InvalidFailure(invalid, neverRan)
	case errors.As(err, &deadlock):
		return wire.DeadlockFailure(deadlock, neverRan)
	case guard.Try:
		return wire.TriedFailure(err, neverRan)
	case guard.Park:
		return wire.ParkFailure(err, req, neverRan)
	default:
		return wire.Failure(err)
	}
}

// partThatNeverRan returns the part of the step if it is certain that no attempt of this scheduling has run the step's code; otherwise "".
// The workflow does not undo such a step.
//
// Temporal's count of attempts is not enough: it starts at 1 again if an operator resets the activity or the run. But a step that ran has
// held all its locks. So it is certain if the database knows that the step's run has not held the busy resource since before the step was
// scheduled. It is also certain if the first attempt is refused as invalid.
//
// For a compensation it returns the part that the compensation undoes, which requested the same resources: if the run has not held this
// one since the workflow began, no worker with Lockstep ran that step. In a run that was made by a reset nothing is certain: the run
// before may have run the step, and have lost or released what it held.
func partThatNeverRan(ctx context.Context, guard wire.Guard, err error) string {
	refused, since := errors.Is(err, lockcore.ErrInvalid), notHeldSince(err)
	if !refused && since.IsZero() {
		return ""
	}
	info := activity.GetInfo(ctx)
	wasReset := guard.Run != info.WorkflowExecution.RunID || guard.Before != ""
	switch {
	case wasReset:
		return ""
	case refused && guard.Undoes == "" && info.Attempt <= 1: // a worker of another version may have accepted an earlier attempt
		return guard.Part
	case refused:
		return ""
	case guard.Undoes != "" && since.Before(guard.Started.Add(-clockDifference)):
		return guard.Undoes
	case guard.Undoes == "" && info.Attempt == 1 && since.Before(info.ScheduledTime.Add(-clockDifference)):
		return guard.Part
	}
	return ""
}

// notHeldSince returns the time since which the run is known not to have held the resource that was busy. It is zero if nothing is known.
func notHeldSince(err error) time.Time {
	var (
		busy     *lockcore.BusyError
		deadlock *lockcore.DeadlockError
	)
	switch {
	case errors.As(err, &deadlock):
		return deadlock.NotHeldSince
	case errors.As(err, &busy):
		return busy.NotHeldSince
	}
	return time.Time{}
}

// endsQueueing reports whether no later attempt will use the requests that this attempt, or one before it, may have left in queues. They
// may also be in the queues of resources after the one on which it failed.
func endsQueueing(ctx context.Context, guard wire.Guard, failure error) bool {
	var app *temporal.ApplicationError
	_, parked := wire.Parked(failure)
	switch {
	case hasCanceled(ctx):
		return true
	case parked:
		return false
	case guard.Scope == wire.ScopeStep:
		return true
	case errors.As(failure, &app) && app.NonRetryable():
		return !guard.Try // which never queues
	default:
		return isLast(ctx)
	}
}

// isLast reports whether no other attempt follows, unless the workflow schedules the step again.
func isLast(ctx context.Context) bool {
	if hasCanceled(ctx) {
		return true
	}
	info := activity.GetInfo(ctx)
	policy := info.RetryPolicy
	if policy == nil { // an old server does not report it
		return false
	}
	return policy.MaximumAttempts > 0 && info.Attempt >= policy.MaximumAttempts ||
		slices.Contains(policy.NonRetryableErrorTypes, wire.FailureBusy)
}

func hasCanceled(ctx context.Context) bool { return temporal.IsCanceledError(context.Cause(ctx)) }

// withdraw removes the request from the queues, and gives back a grant that no attempt has confirmed. In scope step it also releases what
// earlier attempts have left.
func (a *activityInbound) withdraw(ctx context.Context, req party.Request) {
	names := make([]string, 0, len(req.Resources))
	leases := make([]lockcore.Lease, 0, len(req.Resources))
	for _, r := range req.Resources {
		names = append(names, r.Name)
		leases = append(leases, lockcore.Lease{Resource: r.Name, LockID: req.LockID, Run: req.Run, Part: req.Part, Order: req.Order})
	}
	leave(ctx, func(ctx context.Context) error {
		if req.Within != "" {
			return a.locker.Release(ctx, party.Release{LockID: req.LockID, Run: req.Run, Resources: names, Order: req.Order, Leaving: &req.Part})
		}
		return a.locker.Leave(ctx, leases...)
	})
}

// errAbandoned is the failure of an attempt that Temporal has given up. Temporal ignores it.
var errAbandoned = errors.New("lockstep: Temporal has given up this attempt while it took its locks")

// checkNotAbandoned returns an error if the entry took long, and Temporal does not confirm that it still waits for this attempt. The
// process may have been suspended, so that another attempt runs or has run. A suspended machine stops one of the two clocks of the
// process, so the longer of the two durations counts.
func checkNotAbandoned(ctx context.Context, began time.Time) error {
	elapsed := max(time.Since(began), time.Now().Round(0).Sub(began.Round(0)))
	c := activity.GetClient(ctx)
	if elapsed <= longEntry || !currentrun.IsRealClient(c) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	info := activity.GetInfo(ctx)
	answer, err := c.DescribeWorkflowExecution(ctx, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	if err != nil {
		return fmt.Errorf("lockstep: ask whether an attempt is still pending that took %v to get its locks: %w", elapsed.Round(time.Second), err)
	}
	if slices.ContainsFunc(answer.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityId() == info.ActivityID && a.GetAttempt() == info.Attempt && a.GetLastStartedTime().AsTime().Equal(info.StartedTime)
	}) {
		return nil
	}
	return errAbandoned
}
