package lockcore

import (
	"cmp"
	"context"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// LeaveQueue withdraws the queued request and the claim that a lease names, for callers who do not know whether the
// request still waits. A part that has confirmed its claim stays. ended is false if the request was neither in the queue
// nor a claim, which is not an error: it may have become a hold.
func (l *Steps) LeaveQueue(ctx context.Context, lease Lease) (ended bool, err error) {
	if err := checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); err != nil {
		return false, err
	}
	op := rules.Leave{Policy: l.cfg.policy(), Resource: lease.Resource, Caller: lease.caller(), QueueOnly: true}
	a, err := l.end(ctx, telemetry.SpanLeave, lease, ending{}, l.call(ctx, op, ending{}))
	if err != nil {
		return false, err
	}
	of := func(e rules.Entry) bool {
		return e.LockID == lease.LockID && (e.Part == lease.Part || e.Order == op.Order) // what it keeps has no part
	}
	withdrawn := func(e rules.Entry) bool { return of(e) && e.Part == lease.Part }
	return slices.ContainsFunc(a.Withdrawn(a.After.At), withdrawn) || endedBefore(&a, of), nil
}

// End is Release, on exactly one resource, for a caller that reports what it did. ended is false if nothing that the
// release names still existed. With Force and Now, ending the parts of the hold that drain counts.
func (l *Steps) End(ctx context.Context, r Release) (ended bool, err error) {
	if err := cmp.Or(r.check(), checkRange("len(Release.Resources)", len(r.Resources), 1, 1)); err != nil {
		return false, err
	}
	a, err := l.release(ctx, &r, r.Resources[0])
	if err != nil {
		return false, err
	}
	of := func(e rules.Entry) bool {
		return e.LockID == r.LockID && (r.FirstFence == 0 || e.FirstFence == r.FirstFence)
	}
	forced := func(e rules.Evidence) bool { // by this call, or by an earlier attempt of it
		return r.Force && e.LockID == r.LockID && e.Fence == r.FirstFence && e.Reason == r.Reason && (a.Lost || e.At.Equal(a.After.At))
	}
	return slices.ContainsFunc(a.Released(), of) || slices.ContainsFunc(a.Withdrawn(a.After.At), of) ||
		slices.ContainsFunc(a.After.Forced, forced) || !r.Force && endedBefore(&a, of), nil
}

// endedBefore reports whether an earlier attempt of a call, whose answer was lost, may have ended the entries: none of
// them holds. Their parts may drain.
func endedBefore(a *update.Answer, of func(e rules.Entry) bool) bool {
	return a.Lost && !slices.ContainsFunc(a.After.Entries, func(e rules.Entry) bool { return of(e) && e.Holds() })
}
