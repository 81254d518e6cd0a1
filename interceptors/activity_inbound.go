package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// leaveTimeout bounds the leave at a step's end. A part that could not leave ends with its TTL.
const leaveTimeout = 5 * time.Second

// inlineWait is how long an attempt that is next in line waits for its locks before it fails and comes
// back: a moment of a slot saves a retry, and more than a moment would keep the slot from other steps.
const inlineWait = 500 * time.Millisecond

// activityInbound takes a step's locks around the step.
type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase
	locker  locker
	cluster string
	waker   *waker
}

// ExecuteActivity runs the step under the locks that its header asks for. One of these happens:
//  1. no guard: the step runs as it is, unless the workflow had taken its locks in a run that was reset since;
//  2. the locks cannot be had: the step does not run, and the attempt fails, see enterFailure;
//  3. the step runs under its locks, which it leaves however it ends.
func (a *activityInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.waker.use(ctx)
	header := interceptor.Header(ctx)
	if err := protocol.CheckUnder(header[protocol.UnderKey], activity.GetInfo(ctx).WorkflowExecution.RunID); err != nil {
		return nil, err
	}
	if ours(activity.GetInfo(ctx).ActivityType.Name) {
		return a.Next.ExecuteActivity(protocol.ContextWithCluster(ctx, a.cluster), in)
	}
	payload := header[protocol.HeaderKey]
	if _, guarded := protocol.LeasesFrom(ctx); payload == nil || guarded {
		return a.Next.ExecuteActivity(ctx, in)
	}
	guard, err := protocol.DecodeGuard(payload)
	if err != nil {
		return nil, protocol.Failure(err)
	}
	if r := guard.Refused; r != nil {
		return nil, protocol.Failure(&lockcore.InvalidError{Field: r.Field, Value: r.Value, Bound: r.Bound})
	}
	if a.locker == nil {
		return nil, temporal.NewApplicationError(
			"lockstep: this worker has no Locker and cannot guard the step", protocol.FailureUnavailable)
	}
	req := a.request(ctx, guard)
	leases, err := protocol.Enter(ctx, a.locker, a.run(ctx), req, !guard.Try, guard.Closed(a.run(ctx).RunID)...)
	if err != nil {
		switch {
		case isLast(ctx, guard):
			a.withdraw(ctx, req)
		case !req.Keep && guard.Waited != "":
			a.giveBack(ctx, req, guard.Waited, err)
		}
		return nil, enterFailure(ctx, guard, err)
	}
	return a.step(ctx, in, leases)
}

// request is the guard in the name of this attempt.
func (a *activityInbound) request(ctx context.Context, guard protocol.Guard) lockcore.Request {
	info := activity.GetInfo(ctx)
	req := guard.Request(a.run(ctx), info.Attempt, fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt))
	req.MaxWait = inlineWait
	return req
}

// run is the run of the attempt.
func (a *activityInbound) run(ctx context.Context) protocol.Run {
	info := activity.GetInfo(ctx)
	return protocol.Run{
		Cluster: a.cluster, Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
	}
}

// enterFailure tells a cancelled or timed-out attempt, which is Temporal's to judge, from a lock that
// cannot be had.
func enterFailure(ctx context.Context, guard protocol.Guard, err error) error {
	if ctx.Err() != nil && protocol.LockError(err) == nil {
		return fmt.Errorf("lockstep: enter %q: %w", guard.Part, ctx.Err())
	}
	var deadlock *lockcore.DeadlockError
	switch busy := errors.Is(err, lockcore.ErrBusy); {
	case guard.Undo && errors.As(err, &deadlock) && isFirst(ctx, guard):
		return protocol.DeadlockFailure(deadlock, guard.Part)
	case guard.Try && guard.Undo && busy && isFirst(ctx, guard):
		return protocol.TriedFailure(err, guard.Part)
	case guard.Try:
		return protocol.TriedFailure(err, "")
	case guard.Park:
		again := guard.Undo && busy && !isFirst(ctx, guard)
		return protocol.ParkFailure(err, uint32(max(activity.GetInfo(ctx).Attempt, 0)), again, guard.MaxWait)
	default:
		return protocol.Failure(err)
	}
}

// isLast tells whether nobody will come back to the place in the queue.
func isLast(ctx context.Context, guard protocol.Guard) bool {
	if temporal.IsCanceledError(context.Cause(ctx)) {
		return true
	}
	if guard.Park {
		return false
	}
	info := activity.GetInfo(ctx)
	policy := info.RetryPolicy
	if policy == nil { // an old server does not say
		return false
	}
	return policy.MaximumAttempts > 0 && info.Attempt >= policy.MaximumAttempts ||
		slices.Contains(policy.NonRetryableErrorTypes, protocol.FailureBusy)
}

// withdraw gives up what the request may have left: a place in a queue, or a grant nobody knows of.
func (a *activityInbound) withdraw(ctx context.Context, req lockcore.Request) {
	leases := make([]lockcore.Lease, 0, len(req.Resources))
	for _, r := range req.Resources {
		leases = append(leases, lockcore.Lease{Resource: r.Name, LockID: req.LockID, Part: req.Part, Order: req.Order})
	}
	leave(ctx, func(ctx context.Context) error { return a.locker.Leave(ctx, leases...) })
}

// giveBack gives up what was granted on the resource that the step has waited for, where the step is busy on another one:
// it holds nothing while it waits, and a claim that nobody is to take up would keep others out.
func (a *activityInbound) giveBack(ctx context.Context, req lockcore.Request, waited string, err error) {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) || busy.Resource == waited {
		return
	}
	lease := lockcore.Lease{Resource: waited, LockID: req.LockID, Part: req.Part, Order: req.Order}
	leave(ctx, func(ctx context.Context) error { return a.locker.Leave(ctx, lease) })
}

// step runs the step while its leases are renewed. The leave is deferred, so that a panic leaves too.
func (a *activityInbound) step(ctx context.Context, in *interceptor.ExecuteActivityInput, leases []lockcore.Lease) (result any, err error) {
	held := a.locker.Keep(ctx, leases)
	defer leave(ctx, held.Leave)
	result, err = a.Next.ExecuteActivity(protocol.ContextWithLeases(held.Context(), held.Leases), in)
	var lost *lockcore.LostError
	switch {
	case errors.As(context.Cause(held.Context()), &lost):
		return nil, protocol.LostFailure(lost, unlessCanceled(err))
	case errors.Is(err, activity.ErrResultPending):
		return nil, temporal.NewNonRetryableApplicationError(
			"lockstep: a guarded activity returned ErrResultPending: its locks end when it returns, so it cannot be completed later; "+
				"run it without locks (workflows.Unguarded), or let it return when it is done",
			protocol.FailureResultPending, nil)
	default:
		return result, err
	}
}

// unlessCanceled drops what the cancellation of a step's context made it return, which says nothing,
// and which Temporal would take for a cancellation that it asked for.
func unlessCanceled(err error) error {
	if errors.Is(err, context.Canceled) || temporal.IsCanceledError(err) {
		return nil
	}
	return err
}

// leave ends the step's part. It takes at most half of the time that is left for the attempt: a step that is
// done must be able to say so even where the database is slow.
func leave(ctx context.Context, do func(ctx context.Context) error) {
	bound := leaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			bound = min(bound, left/2)
		}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	if err := do(bounded); err != nil {
		activity.GetLogger(ctx).Warn("lockstep: the step could not leave its locks, which stand until its TTL ends",
			"error", err)
	}
}
