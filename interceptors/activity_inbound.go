package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// endTimeout bounds the commands at the end of a step. If its part could not leave the hold, it expires with its TTL.
	endTimeout = 5 * time.Second
	// leaveDelay is the longest time for which a saga's step delays leaving its hold, to share the write of another command of this process
	// for the same resource, such as that of the next step. No other party waits for that, because the saga holds the resource.
	leaveDelay = 50 * time.Millisecond
	// maxBackgroundLeaves is the number of steps that may be leaving in the background. Beyond it a step leaves before it returns.
	maxBackgroundLeaves = 1000
	// slowAcquire is the duration of acquiring after which an attempt asks Temporal whether it is still pending.
	slowAcquire = 10 * time.Second
	// pendingTimeout bounds that DescribeWorkflowExecution.
	pendingTimeout = 5 * time.Second
)

// activityInbound runs one attempt of an activity under its locks.
type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase
	*Interceptor
}

// ExecuteActivity runs the step under the locks that its header and a rule ask for, and leaves them however it ends. If the locks cannot be
// acquired, the step does not run, and the attempt fails; see enterFailure and enterRule.
func (a *activityInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	result, err := a.execute(ctx, in)
	note(ctx, err)
	return result, err
}

func (a *activityInbound) execute(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	began := time.Now()
	if wire.IsNeverGuarded(activity.GetInfo(ctx).ActivityType.Name) {
		_, _ = a.currentRun(ctx) // starts waking workflows of the namespace. The activity itself reports an error
		return a.Next.ExecuteActivity(ctx, in)
	}
	guard, err := a.guardOf(ctx)
	if err != nil {
		return nil, err
	}
	byRule, err := a.resourcesByRule(ctx, in.Args)
	if err != nil {
		return nil, err
	}
	if _, inside := wire.LeasesFrom(ctx); inside || guard == nil && len(byRule) == 0 {
		return a.Next.ExecuteActivity(ctx, in)
	}
	if a.locker == nil {
		return nil, temporal.NewApplicationError(
			"lockstep: this worker has no Locker and cannot guard the step", wire.FailureUnavailable)
	}
	byRule = addRule(guard, byRule)
	leases, err := a.enter(ctx, began, guard, byRule)
	if err != nil {
		return nil, err
	}
	return a.runStep(ctx, in, began, leases, guard)
}

// guardOf returns the guard in the step's header, or nil if there is none.
func (a *activityInbound) guardOf(ctx context.Context) (*wire.Guard, error) {
	payload := interceptor.Header(ctx)[wire.HeaderKey]
	if payload == nil {
		return nil, nil //nolint:nilnil // no guard, and no error
	}
	info := activity.GetInfo(ctx)
	guard, err := wire.DecodeGuard(a.options.DataConverter, info.Namespace, info.WorkflowExecution.ID, payload)
	if errors.Is(err, lockcore.ErrInvalid) {
		err = wire.Failure(err)
	}
	if err != nil {
		return nil, err
	}
	return &guard, nil
}

// currentRun returns the workflow run of the attempt. From its first call on, this process wakes workflows of the run's namespace.
func (a *activityInbound) currentRun(ctx context.Context) (wire.Run, error) {
	run, err := a.namespaces.Run(ctx)
	if err == nil {
		a.waker.use(ctx, run.Namespace)
	}
	return run, err
}

// enter acquires the locks of the guard, and then those of a rule. No heartbeats are sent during that time, so the HeartbeatTimeout bounds
// all of it, and currentrun.Enter gives each request at most half of the remaining time. began is the beginning of the attempt.
func (a *activityInbound) enter(
	ctx context.Context, began time.Time, guard *wire.Guard, byRule []lockcore.Resource,
) (leases []lockcore.Lease, err error) {
	if limit := activity.GetInfo(ctx).HeartbeatTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err := a.checkCollection(ctx, guard); err != nil {
		return nil, err
	}
	run, err := a.currentRun(ctx)
	if err == nil && guard != nil {
		leases, err = a.enterGuard(ctx, run, *guard)
	}
	if err == nil && len(byRule) > 0 {
		var more []lockcore.Lease
		more, err = a.enterRule(ctx, run, guard, byRule, leases)
		leases = append(leases, more...)
	}
	if err == nil { // again: taking the locks may have shown that this is another collection
		if err = a.checkCollection(ctx, guard); err == nil {
			err = checkNotAbandoned(ctx, began)
		}
	}
	if err != nil && len(leases) > 0 {
		session := a.locker.NewStepSession(ctx, leases, 0)
		leave(ctx, endMethod(session, guard))
	}
	return leases, err
}

// checkCollection refuses a step whose workflow's worker keeps its locks in another collection. If that one was replaced, what the step
// held there is lost. A step that takes lost locks again takes them in this one.
func (a *activityInbound) checkCollection(ctx context.Context, guard *wire.Guard) error {
	if guard == nil {
		return nil
	}
	replaced, err := currentrun.CheckCollection(ctx, a.locker, guard.Collection)
	if replaced && !guard.Reacquires() && len(guard.Resources) > 0 {
		return currentrun.Replaced("", guard.Resources[0].Name, guard.Collection)
	}
	return err
}

func (a *activityInbound) enterGuard(ctx context.Context, run wire.Run, guard wire.Guard) ([]lockcore.Lease, error) {
	info := activity.GetInfo(ctx)
	req := guard.Request(run, info.Attempt, currentrun.AttemptName(info))
	req.MaxWait, req.Priority = currentrun.InlineWait(info), info.Priority.PriorityKey
	if guard.MaxWait > 0 {
		req.MaxWait = min(req.MaxWait, time.Duration(guard.MaxWait))
	}
	leases, err := currentrun.Enter(ctx, a.locker, guard.Try, run, req)
	if err == nil {
		return leases, nil
	}
	wire.NoteAncestor(err, run, guard.Ancestors)
	// If the request was invalid, nothing was sent. If it was superseded, nothing in the queue belongs to this attempt.
	queuedNothing := errors.Is(err, lockcore.ErrInvalid) || errors.Is(err, lockcore.ErrSuperseded)
	err = a.enterFailure(ctx, guard, req, wire.RewriteField(err, "Locks."))
	if !queuedNothing && mustWithdraw(ctx, guard, err) {
		a.withdraw(ctx, req)
	}
	return nil, err
}

// runStep runs the step while its leases are renewed, as long as the attempt can count. Leaving is deferred, so that it also follows a
// panic. If the Locker is closed, the step's context is cancelled, and an attempt on another worker follows.
func (a *activityInbound) runStep(
	ctx context.Context, in *interceptor.ExecuteActivityInput, began time.Time, leases []lockcore.Lease, guard *wire.Guard,
) (result any, err error) {
	held, succeeded := a.locker.NewStepSession(ctx, leases, timeLeft(activity.GetInfo(ctx), began)), false
	defer func() { a.end(ctx, held, guard, succeeded) }()
	if isClosed(held) {
		return nil, wire.UnavailableFailure(0, lockcore.ErrClosed)
	}
	result, err = a.Next.ExecuteActivity(wire.ContextWithLeases(held.Context(), held.Leases), in)
	lost := a.findLoss(ctx, held)
	switch {
	case lost != nil:
		return nil, wire.LostFailure(lost, dropCancellation(err))
	case errors.Is(err, activity.ErrResultPending):
		return nil, temporal.NewNonRetryableApplicationError(
			"lockstep: a guarded activity returned ErrResultPending: its locks end when it returns, so it cannot be completed later; "+
				"run it without locks (workflows.Unguarded), or let it return when it is done",
			wire.FailureResultPending, nil)
	case err != nil && dropCancellation(err) == nil && isClosed(held):
		return nil, wire.UnavailableFailure(0, lockcore.ErrClosed)
	default:
		succeeded = err == nil
		return result, err
	}
}

// isClosed reports whether the Locker's Close has cancelled the session's context.
func isClosed(held session) bool { return errors.Is(context.Cause(held.Context()), lockcore.ErrClosed) }

// timeLeft returns the time after which Temporal has given up an attempt that began, on this worker, at a time: it is retried, or its
// workflow knows that it timed out. The clocks of this worker and of Temporal may differ, so each measures its own part.
func timeLeft(info activity.Info, began time.Time) time.Duration {
	left := info.StartToCloseTimeout
	if whole := info.ScheduleToCloseTimeout; whole > 0 {
		whole -= max(info.StartedTime.Sub(info.ScheduledTime), 0)
		if left == 0 || whole < left {
			left = max(whole, time.Millisecond)
		}
	}
	if left == 0 { // a test environment may have no timeout
		return 0
	}
	return max(left-time.Since(began), time.Millisecond)
}

// findLoss returns the loss of one of the step's locks, or nil if the step has held them all. The session usually notices a loss itself.
// But if the process was suspended for longer than a TTL, the step may return first. So a lease that has expired is renewed before
// the step counts as successful.
func (a *activityInbound) findLoss(ctx context.Context, held session) *lockcore.LostError {
	var lost *lockcore.LostError
	expired := slices.DeleteFunc(held.Leases(), lockcore.Lease.Valid)
	if errors.As(held.Lost(), &lost) || len(expired) == 0 {
		return lost
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_, err := a.locker.Renew(bounded, expired...)
	if err == nil || errors.As(err, &lost) {
		return lost
	}
	return &lockcore.LostError{
		Resource: expired[0].Resource, LockID: expired[0].LockID, Part: expired[0].Part, Order: expired[0].Order,
		Reason: fmt.Sprintf("it could not be renewed in time: %v", err),
	}
}

// dropCancellation returns nil for the error that a step returns because its context was cancelled. That error adds nothing, and Temporal
// would take it for a cancellation that it requested.
func dropCancellation(err error) error {
	if errors.Is(err, context.Canceled) || temporal.IsCanceledError(err) {
		return nil
	}
	return err
}

// end ends the part of a step. If the step has succeeded, its part leaves in the background, without delaying the result: if this process
// dies first, the part expires with its TTL. In the SDK's test environment nothing runs in the background.
func (a *activityInbound) end(ctx context.Context, held session, guard *wire.Guard, succeeded bool) {
	endPart := endMethod(held, guard)
	if !succeeded || a.waker.isTest() || !a.leaves.begin(maxBackgroundLeaves) {
		leave(ctx, endPart)
		return
	}
	if guard != nil && guard.Scope == wire.ScopeSaga && !slices.ContainsFunc(held.Leases(), isOfStep) {
		endPart = func(ctx context.Context) error { return held.LeaveWithin(ctx, leaveDelay) }
	}
	ctx = context.WithoutCancel(ctx) // the result is reported already, so the attempt's deadline does not matter
	go func() {
		defer a.leaves.end()
		leave(ctx, endPart)
	}()
}

// endMethod returns the method that ends the part of a step. What a saga keeps remains. A step of scope step that has several resources
// keeps them too while it acquires the rest, and must release them.
func endMethod(held session, guard *wire.Guard) func(context.Context) error {
	if guard != nil && guard.Scope == wire.ScopeStep && guard.Keeps() {
		return held.Release
	}
	return held.Leave
}

// isOfStep reports whether a lease has a lock ID of the step's own, such as the lease of a rule. Other parties may wait for its end, so it
// must not be delayed.
func isOfStep(l lockcore.Lease) bool {
	_, step, err := wire.ParseLockID(l.LockID)
	return err != nil || step != ""
}

// leave calls endPart, within endTimeout and currentrun.Bound: a step that is done must be able to report its result even if the database is slow.
func leave(ctx context.Context, endPart func(ctx context.Context) error) {
	bound := currentrun.Bound(ctx, endTimeout)
	if bound <= 0 { // the attempt has ended for Temporal
		bound = endTimeout
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	if err := endPart(bounded); err != nil {
		activity.GetLogger(ctx).Warn("lockstep: the step could not leave its locks, which expire with its TTL, or are left later if it is endless", "error", err)
	}
}

// enterFailure returns the failure of an attempt that did not get its locks. If the attempt was cancelled or timed out, it returns the
// context's error, because Temporal decides what follows.
func (a *activityInbound) enterFailure(ctx context.Context, guard wire.Guard, req lockcore.StepRequest, err error) error {
	if ctx.Err() != nil && wire.LockError(err) == nil {
		return fmt.Errorf("lockstep: enter %q: %w", guard.Part, ctx.Err())
	}
	neverRan := partThatNeverRan(ctx, guard, err)
	switch {
	case errors.Is(err, lockcore.ErrInvalid), errors.Is(err, lockcore.ErrDeadlock), !guard.Try && !guard.Park:
		return wire.StepFailure(err, neverRan)
	case guard.Try:
		return wire.TriedFailure(err, neverRan)
	default:
		return wire.ParkFailure(err, req, neverRan)
	}
}

// partThatNeverRan returns the part of the step if it is certain that no attempt of this scheduling has run the step's code; otherwise "".
// The workflow does not undo such a step. Temporal's count of attempts is not enough: it starts at 1 again if an operator resets the activity or
// the run. But a step that ran has held all its locks. So no attempt ran if the database shows that the run's last hold of the busy resource
// ended before the step was scheduled, or if the first one is refused as invalid.
//
// For a compensation it returns the part that it undoes, which requested the same resources, if the run has not held this one since the
// workflow began. In a run created by a reset nothing is certain: the earlier run may have executed the step, and have lost what it held.
func partThatNeverRan(ctx context.Context, guard wire.Guard, err error) string {
	refused, since := errors.Is(err, lockcore.ErrInvalid), notHeldSince(err)
	if !refused && since.IsZero() {
		return ""
	}
	info := activity.GetInfo(ctx)
	wasReset := guard.Run != info.WorkflowExecution.RunID || guard.Inherits
	isFirst := guard.Undoes == "" && info.Attempt == 1
	switch {
	case wasReset:
	case refused && isFirst: // a worker of another version may have accepted an earlier attempt
		return guard.Part
	case refused:
	case isFirst && since.Before(info.ScheduledTime.Add(-wire.ClockDifference)):
		return guard.Part
	case guard.Undoes != "" && since.Before(guard.Started.Add(-wire.ClockDifference)):
		return guard.Undoes
	}
	return ""
}

// notHeldSince returns the time since which the run is known not to have held the resource that was busy. It is zero if nothing is known.
func notHeldSince(err error) time.Time {
	if deadlock, ok := errors.AsType[*lockcore.DeadlockError](err); ok {
		return deadlock.NotHeldSince
	}
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return busy.NotHeldSince
	}
	return time.Time{}
}

// mustWithdraw reports whether this attempt must remove the requests of the step from the queues, because no later attempt will use them.
// An earlier attempt may have queued for resources after the one on which this attempt failed.
func mustWithdraw(ctx context.Context, guard wire.Guard, failure error) bool {
	_, parked := wire.Parked(failure)
	app, ok := errors.AsType[*temporal.ApplicationError](failure)
	switch {
	case hasCanceled(ctx):
		return true
	case parked:
		return false
	case guard.Scope == wire.ScopeStep:
		return true
	case ok && app.NonRetryable():
		return !guard.Try // a request that only tries never queues
	default:
		return isLast(ctx)
	}
}

// isLast reports whether no other attempt follows, unless the workflow schedules the step again.
func isLast(ctx context.Context) bool {
	return hasCanceled(ctx) || noRetry(activity.GetInfo(ctx)) != ""
}

// noRetry returns why the retry policy allows no attempt after a busy one; "" if it does, or if an old server does not report the policy.
func noRetry(info activity.Info) string {
	switch policy := info.RetryPolicy; {
	case policy == nil:
		return ""
	case policy.MaximumAttempts > 0 && info.Attempt >= policy.MaximumAttempts:
		return fmt.Sprintf("its retry policy has MaximumAttempts: %d", policy.MaximumAttempts)
	case slices.Contains(policy.NonRetryableErrorTypes, wire.FailureBusy):
		return fmt.Sprintf("its retry policy has %s among its NonRetryableErrorTypes", wire.FailureBusy)
	}
	return ""
}

func hasCanceled(ctx context.Context) bool { return temporal.IsCanceledError(context.Cause(ctx)) }

// withdraw removes the request from the queues, and returns a grant that no attempt has confirmed. In scope step, where the request has a
// lock ID of the step's own, it also releases what earlier attempts have left.
func (a *activityInbound) withdraw(ctx context.Context, req lockcore.StepRequest) {
	names := make([]string, 0, len(req.Resources))
	leases := make([]lockcore.Lease, 0, len(req.Resources))
	for _, r := range req.Resources {
		names = append(names, r.Name)
		leases = append(leases, lockcore.Lease{Resource: r.Name, LockID: req.LockID, Run: req.Run, Part: req.Part, Order: req.Order})
	}
	leave(ctx, func(ctx context.Context) error {
		if _, standalone := wire.ParseStandalone(req.LockID); standalone || req.Within != "" {
			return a.locker.Release(ctx, lockcore.Release{LockID: req.LockID, Run: req.Run, Resources: names, Order: req.Order, Leaving: &req.Part})
		}
		return a.locker.Leave(ctx, leases...)
	})
}

// errAbandoned is the failure of an attempt that Temporal has given up. Temporal ignores it.
var errAbandoned = errors.New("lockstep: Temporal has given up this attempt while it took its locks")

// checkNotAbandoned returns an error if acquiring took long, and Temporal does not confirm that it still waits for this attempt. The
// process may have been suspended, so that another attempt runs or has run. A suspended machine stops one of the two clocks of the
// process, so the longer of the two durations counts.
func checkNotAbandoned(ctx context.Context, began time.Time) error {
	elapsed := max(time.Since(began), time.Now().Round(0).Sub(began.Round(0)))
	c := activity.GetClient(ctx)
	if elapsed <= slowAcquire || !currentrun.IsRealClient(c) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	pending, err := isPending(ctx, c, activity.GetInfo(ctx))
	if err != nil {
		return fmt.Errorf("lockstep: the attempt took %v to get its locks; checking that it is still pending failed: %w", elapsed.Round(time.Second), err)
	}
	if !pending {
		return errAbandoned
	}
	return nil
}

// isPending reports whether Temporal waits for an attempt.
func isPending(ctx context.Context, c client.Client, info activity.Info) (bool, error) {
	isAttempt := func(attempt int32, started time.Time) bool {
		return attempt == info.Attempt && started.Equal(info.StartedTime)
	}
	if !info.IsWorkflowActivity() {
		answer, err := c.WorkflowService().DescribeActivityExecution(ctx, &workflowservice.DescribeActivityExecutionRequest{
			Namespace: info.Namespace, ActivityId: info.ActivityID, RunId: info.ActivityRunID,
		})
		now := answer.GetInfo()
		return now.GetStatus() == enumspb.ACTIVITY_EXECUTION_STATUS_RUNNING && isAttempt(now.GetAttempt(), now.GetLastStartedTime().AsTime()), err
	}
	answer, err := c.DescribeWorkflowExecution(ctx, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	return slices.ContainsFunc(answer.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityId() == info.ActivityID && isAttempt(a.GetAttempt(), a.GetLastStartedTime().AsTime())
	}), err
}
