package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/collection"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// leaveTimeout bounds the leave at a step's end. A part that could not leave ends with its TTL.
const leaveTimeout = 5 * time.Second

const (
	// leavesWithin bounds the delay of the leave of a saga's step. In that time another command of this
	// process for the same resource, such as that of the next step, takes the leave along. The saga holds
	// the resource anyway, so other parties do not wait for the leave.
	leavesWithin = 50 * time.Millisecond
	// mostLeaves bounds the leaves in the background. Beyond it a step leaves before it returns.
	mostLeaves = 1000
)

// activityInbound takes a step's locks around the step.
type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase
	locker     locker
	namespaces *namespace.IDs
	waker      *waker
	rules      map[string]Rule
	collection *collection.ID
	leaves     *background
}

// ExecuteActivity runs the step under the locks that its header and a rule ask for. One of these happens:
//  1. neither asks for any: the step runs as it is;
//  2. the locks cannot be had: the step does not run, and the attempt fails, see enterFailure and enterRule;
//  3. the step runs under its locks, which it leaves however it ends.
func (a *activityInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if wire.IsMachinery(activity.GetInfo(ctx).ActivityType.Name) {
		if id, err := a.namespaces.Of(ctx); err == nil { // else the activity says so itself
			a.waker.use(ctx, id)
		}
		return a.Next.ExecuteActivity(ctx, in)
	}
	guard, err := guardOf(ctx)
	if err != nil {
		return nil, err
	}
	ruled, err := a.ruled(ctx, in.Args)
	if err != nil {
		return nil, err
	}
	if _, inside := wire.LeasesFrom(ctx); inside || guard == nil && len(ruled) == 0 {
		return a.Next.ExecuteActivity(ctx, in)
	}
	if a.locker == nil {
		return nil, temporal.NewApplicationError(
			"lockstep: this worker has no Locker and cannot guard the step", wire.FailureUnavailable)
	}
	leases, err := a.enter(ctx, guard, addRule(guard, ruled))
	if err != nil {
		return nil, err
	}
	return a.step(ctx, in, leases, guard)
}

// guardOf is the guard in the step's header, nil if there is none.
func guardOf(ctx context.Context) (*wire.Guard, error) {
	payload := interceptor.Header(ctx)[wire.HeaderKey]
	if payload == nil {
		return nil, nil //nolint:nilnil // no guard, and no error
	}
	guard, err := wire.DecodeGuard(payload)
	if err != nil {
		return nil, wire.Failure(err)
	}
	return &guard, nil
}

// enter takes what the guard asks for, and then what a rule asks for besides. Nothing sends heartbeats meanwhile, so the
// HeartbeatTimeout bounds all of it, and each request takes at most half of the time that is left.
func (a *activityInbound) enter(ctx context.Context, guard *wire.Guard, ruled []lockcore.Resource) (leases []lockcore.Lease, err error) {
	received := time.Now()
	if limit := activity.GetInfo(ctx).HeartbeatTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if guard != nil {
		if err := a.collection.Check(ctx, a.locker, guard.Collection); err != nil {
			return nil, err
		}
	}
	run, err := a.run(ctx)
	if err != nil {
		return nil, err
	}
	if guard != nil {
		if leases, err = a.enterGuard(ctx, run, *guard); err != nil {
			return nil, err
		}
	}
	if len(ruled) > 0 {
		var more []lockcore.Lease
		more, err = a.enterRule(ctx, run, guard, ruled, leases)
		leases = append(leases, more...)
	}
	if err == nil {
		err = stillPending(ctx, received)
	}
	if err != nil && len(leases) > 0 {
		leave(ctx, endOf(a.locker.NewSession(ctx, leases), guard))
	}
	return leases, err
}

func (a *activityInbound) enterGuard(ctx context.Context, run wire.Run, guard wire.Guard) ([]lockcore.Lease, error) {
	req := request(ctx, run, guard)
	leases, err := currentrun.Enter(ctx, a.locker, run, req, !guard.Try)
	if err == nil {
		a.collection.Ask(ctx, a.locker) // so that the workflow's next steps say it
		return leases, nil
	}
	wire.TellAncestors(err, run, guard.Ancestors)
	// Nothing was sent, or nothing stands that is this attempt's.
	refused := errors.Is(err, lockcore.ErrInvalid) || errors.Is(err, lockcore.ErrSuperseded)
	err = a.enterFailure(ctx, guard, req, wire.Asked(err, "Locks."))
	if !refused && endsQueueing(ctx, guard, err) {
		a.withdraw(ctx, req)
	}
	return nil, err
}

// endsQueueing reports whether no later attempt comes for what this one, or one before it, may have
// left in a queue: on a resource after the one that failed it, too.
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

// request is the guard in the name of this attempt.
func request(ctx context.Context, run wire.Run, guard wire.Guard) party.Request {
	info := activity.GetInfo(ctx)
	req := guard.Request(run, info.Attempt, fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt))
	if req.MaxWait = wire.InlineWait(info); guard.MaxWait > 0 {
		req.MaxWait = min(req.MaxWait, time.Duration(guard.MaxWait))
	}
	return req
}

// run is the run of the attempt, whose workflows this worker wakes from now on.
func (a *activityInbound) run(ctx context.Context) (wire.Run, error) {
	id, err := a.namespaces.Of(ctx)
	if err != nil {
		return wire.Run{}, err
	}
	a.waker.use(ctx, id)
	execution := activity.GetInfo(ctx).WorkflowExecution
	return wire.Run{Namespace: id, WorkflowID: execution.ID, RunID: execution.RunID}, nil
}

// enterFailure tells a cancelled or timed-out attempt, which is Temporal's to judge, from a lock that
// cannot be had.
func (a *activityInbound) enterFailure(ctx context.Context, guard wire.Guard, req party.Request, err error) error {
	if ctx.Err() != nil && wire.LockError(err) == nil {
		return fmt.Errorf("lockstep: enter %q: %w", guard.Part, ctx.Err())
	}
	var deadlock *lockcore.DeadlockError
	var invalid *lockcore.InvalidError
	switch neverRan := neverRan(ctx, guard, err); {
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

// clocksApart is how much the database's clock and Temporal's may differ when their times are compared.
const clocksApart = time.Minute

// neverRan is the part of a step if it is certain that no attempt of this scheduling has run its
// code. Temporal's count of attempts does not say so: it begins at 1 again if an operator resets
// the activity or the run. But a step that ran has held all its locks. So it is certain if the
// database knows that the step's run has not held the resource which this attempt found busy, since
// before the step was scheduled. It is certain too if the first attempt is refused.
//
// Of a compensation it is the part that it undoes, which asked for the same resources: if the run
// has not held this one since the workflow began, no worker with Lockstep ran that step. Of a run
// that came of a reset neither is known: the run before may have run the step, and have lost or
// released what it held.
func neverRan(ctx context.Context, guard wire.Guard, err error) string {
	var (
		busy     *lockcore.BusyError
		deadlock *lockcore.DeadlockError
		since    time.Time
	)
	refused := errors.Is(err, lockcore.ErrInvalid)
	switch {
	case errors.As(err, &deadlock):
		since = deadlock.NotHeldSince
	case errors.As(err, &busy):
		since = busy.NotHeldSince
	}
	if since.IsZero() && !refused {
		return ""
	}
	info := activity.GetInfo(ctx)
	if guard.Run != info.WorkflowExecution.RunID || guard.Before != "" {
		return ""
	}
	if refused { // a worker of another version may have accepted an earlier attempt
		if info.Attempt > 1 || guard.Undoes != "" {
			return ""
		}
		return guard.Part
	}
	if guard.Undoes != "" {
		if !since.Before(guard.Started.Add(-clocksApart)) {
			return ""
		}
		return guard.Undoes
	}
	if info.Attempt != 1 || !since.Before(info.ScheduledTime.Add(-clocksApart)) {
		return ""
	}
	return guard.Part
}

// isLast reports whether no attempt will come back to the place in the queue, unless the workflow schedules the step again.
func isLast(ctx context.Context) bool {
	if hasCanceled(ctx) {
		return true
	}
	info := activity.GetInfo(ctx)
	policy := info.RetryPolicy
	if policy == nil { // an old server does not say
		return false
	}
	return policy.MaximumAttempts > 0 && info.Attempt >= policy.MaximumAttempts ||
		slices.Contains(policy.NonRetryableErrorTypes, wire.FailureBusy)
}

func hasCanceled(ctx context.Context) bool { return temporal.IsCanceledError(context.Cause(ctx)) }

// withdraw gives up what the request may have left: a place in a queue, or an unheard grant; in scope step also what
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

// endOf is how a step ends its part: what a saga keeps stands, and in scope step nothing does.
func endOf(held session, guard *wire.Guard) func(context.Context) error {
	if guard != nil && guard.Scope == wire.ScopeStep && guard.Keeps() {
		return held.Release
	}
	return held.Leave
}

// end ends the part of a step. If the step has succeeded, its result does not wait for that: if this
// process dies, the part ends with its TTL.
func (a *activityInbound) end(ctx context.Context, held session, guard *wire.Guard, succeeded bool) {
	do := endOf(held, guard)
	if !succeeded || a.waker.isTest() || !a.leaves.begin(mostLeaves) {
		leave(ctx, do)
		return
	}
	if guard != nil && guard.Scope == wire.ScopeSaga && !slices.ContainsFunc(held.Leases(), isOfStep) {
		do = func(ctx context.Context) error { return held.LeaveWithin(ctx, leavesWithin) }
	}
	ctx = context.WithoutCancel(ctx) // the result is reported already, so the attempt's deadline does not matter
	go func() {
		defer a.leaves.end()
		leave(ctx, do)
	}()
}

// isOfStep reports whether a lease has a lock ID of the step's own, such as the lease of a rule. Its lock
// ends with the leave, and other parties may wait for it.
func isOfStep(l lockcore.Lease) bool {
	_, step, err := wire.ParseLockID(l.LockID)
	return err != nil || step != ""
}

// step runs the step while its leases are renewed. The leave is deferred, so that a panic leaves too.
func (a *activityInbound) step(
	ctx context.Context, in *interceptor.ExecuteActivityInput, leases []lockcore.Lease, guard *wire.Guard,
) (result any, err error) {
	held, succeeded := a.locker.NewSession(ctx, leases), false
	defer func() { a.end(ctx, held, guard, succeeded) }()
	result, err = a.Next.ExecuteActivity(wire.ContextWithLeases(held.Context(), held.Leases), in)
	lost := a.lossOf(ctx, held)
	switch {
	case lost != nil:
		return nil, wire.LostFailure(lost, unlessCanceled(err))
	case errors.Is(err, activity.ErrResultPending):
		return nil, temporal.NewNonRetryableApplicationError(
			"lockstep: a guarded activity returned ErrResultPending: its locks end when it returns, so it cannot be completed later; "+
				"run it without locks (workflows.Unguarded), or let it return when it is done",
			wire.FailureResultPending, nil)
	default:
		succeeded = err == nil
		return result, err
	}
}

// lossOf is the loss of one of the step's locks, nil if it has held them all. The session finds out by itself; but a process that was
// stopped for longer than a TTL may come here first, so a promise that is over is renewed before the step is said to have succeeded.
func (a *activityInbound) lossOf(ctx context.Context, held session) *lockcore.LostError {
	var lost *lockcore.LostError
	over := slices.DeleteFunc(held.Leases(), lockcore.Lease.Valid)
	if errors.As(held.Lost(), &lost) || len(over) == 0 {
		return lost
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_, err := a.locker.Renew(bounded, over...)
	if err == nil || errors.As(err, &lost) {
		return lost
	}
	return &lockcore.LostError{
		Resource: over[0].Resource, LockID: over[0].LockID, Part: over[0].Part, Order: over[0].Order,
		Reason: fmt.Sprintf("it could not be renewed in time: %v", err),
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
// done must be able to say so even if the database is slow.
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
