package activities

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Verify verifies, by a majority write to each resource, that the workflow has held what it used without a gap. It renews these holds, releases
// nothing, and fails with lockstep.Lost if one is lost. It has no result.
//
// In the SDK's test environment, in which mocked steps take no locks, a hold counts as lost only if there is evidence.
func (a *lockActivities) Verify(ctx context.Context, p wire.VerifyParams) (wire.VerifyResult, error) {
	if len(p.Used) == 0 {
		return wire.VerifyResult{}, wire.Failure(&lockcore.InvalidError{Field: "len(used)", Value: "0", Bound: "1 or more"})
	}
	run, replaced, err := a.run(ctx, "", p.Collection)
	if err == nil && replaced {
		err = currentrun.Replaced("", p.Used[0].Resource, p.Collection)
	}
	if err != nil {
		return wire.VerifyResult{}, err
	}
	v := lockcore.Verify{LockID: run.LockID(), Run: run.RunID, Inherits: !currentrun.IsRealClient(activity.GetClient(ctx))}
	if p.Inherits || p.Run != "" && p.Run != run.RunID { // a reset has made the run
		v.Inherits, v.LostSince = true, wire.LostSince(p.Started)
	}
	for _, u := range p.Used {
		v.Used = append(v.Used, lockcore.Use{Resource: u.Resource, Order: lockcore.LastAttempt(u.Schedule)})
	}
	err = currentrun.Verify(ctx, a.locker, run, v)
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost", "lockId", v.LockID, "error", err)
	}
	return wire.VerifyResult{}, wire.Failure(err)
}

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// It has no result.
func (a *lockActivities) Release(ctx context.Context, p wire.ReleaseParams) (wire.ReleaseResult, error) {
	run, replaced, err := a.run(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	if replaced && p.Committed {
		activity.GetLogger(ctx).Error("lockstep: a saga committed although the collection with its locks was dropped or replaced",
			"resources", p.Resources, "collection", p.Collection)
	}
	if len(p.Leases) > 0 {
		if err := a.locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	err = currentrun.Release(ctx, a.locker, activity.GetLogger(ctx), run, p, "", func() (bool, error) { return currentrun.IsCurrent(ctx, run) })
	return wire.ReleaseResult{}, wire.Failure(err)
}

const (
	// barTimeout bounds one attempt: an attempt that cannot reach the database must report that instead of waiting in its slot.
	barTimeout = 10 * time.Second
	// shortestBar and longestBar bound the delay between two attempts. A part that was cut off usually leaves before its TTL ends,
	// when its next renewal fails.
	shortestBar = 100 * time.Millisecond
	longestBar  = 2 * time.Second
	// inlineBar is the time for which an attempt looks again, every lookPause, before it goes into back-off. testBar is that of the SDK's test
	// environment, which skips the time of back-offs and makes 10 attempts: a step that was cut off needs time to return.
	inlineBar = 200 * time.Millisecond
	testBar   = 500 * time.Millisecond
	lookPause = 20 * time.Millisecond
)

// Bar bars the steps of a saga, and of the sagas inside it, up to a schedule number, before the saga's first compensation. Running steps are
// cut off, waiting steps leave their queues, and later attempts are refused with lockstep.Superseded. The first call draws a new fence, under
// which the compensations write. While a step may still run, the attempt fails with a retryable lockstep.Busy, after which the next one
// follows in 0.1 to 2 s. It has no result.
//
// In a run that was made by a reset, or that continues another, Bar takes over what the earlier run holds. It takes no lock, and may be
// repeated with the same input.
func (a *lockActivities) Bar(ctx context.Context, p wire.BarParams) (wire.BarResult, error) {
	run, _, err := a.run(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.BarResult{}, err
	}
	if callerOf(run, p.LockID, "", "").Run == "" {
		return wire.BarResult{}, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: strconv.Quote(wire.Cut(p.LockID, 64)), Bound: "the lock ID of the workflow that calls, or none",
		})
	}
	bounded, cancel := context.WithTimeout(ctx, barTimeout)
	defer cancel()
	bar := lockcore.Raise{LockID: run.LockID(), Run: run.RunID, Saga: p.Saga, Order: lockcore.LastAttempt(p.Schedule), Resources: p.Resources}
	look := inlineBar
	if !currentrun.IsRealClient(activity.GetClient(ctx)) {
		look = testBar
	}
	err = a.raise(bounded, run, bar, look)
	if busy := new(lockcore.BusyError); errors.As(err, &busy) {
		return wire.BarResult{}, wire.WaitingFailure(busy, barDelay(busy))
	}
	return wire.BarResult{}, wire.Failure(err)
}

// raise repeats Raise until it no longer returns a BusyError, or the time for looking has passed: most parts are about to leave.
func (a *lockActivities) raise(ctx context.Context, run wire.Run, bar lockcore.Raise, look time.Duration) error {
	for end := time.Now().Add(look); ; {
		err := currentrun.Raise(ctx, a.locker, run, bar)
		if !errors.Is(err, lockcore.ErrBusy) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookPause):
		}
	}
}

// barDelay returns the time until the first of the parts that may still run has expired, within bounds.
func barDelay(busy *lockcore.BusyError) time.Duration {
	delay := longestBar
	for _, part := range busy.Holders {
		delay = min(delay, part.ExpiresIn)
	}
	return max(delay, shortestBar)
}
