package lockactivities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// grantedDelay is the delay before the next attempt of a request that was granted in between.
const grantedDelay = 10 * time.Millisecond

// Acquire requests the resources. If a grant is expected soon it waits, for at most two seconds or a quarter of the attempt's time. If one
// stays busy, the request stays in the queue, and those before it stay held unless Try is set. The attempt fails with a retryable lockstep.Busy, and the next
// attempt finds the request at its position.
//
// With HoldOnly no attempt waits in its slot, since the write that frees the resource grants the hold to the request. If the activity's
// ID is wire.WaitID of the schedule number, the activity waits as Wait does: its attempts follow each other at growing intervals, and the
// worker that frees the lock completes it in between. Under another ID the next attempt, after a second at most, finds the hold.
func (a *Activities) Acquire(ctx context.Context, p wire.AcquireParams) (wire.AcquireResult, error) {
	began := time.Now()
	if err := p.Check(); err != nil {
		return wire.AcquireResult{}, wire.Failure(err)
	}
	caller, replaced, err := a.caller(ctx, p.LockID, p.Collection)
	if err == nil && replaced && !p.Reacquire && len(p.Resources) > 0 {
		err = currentrun.Replaced(p.LockID, p.Resources[0].Name, p.Collection)
	}
	if err != nil {
		return wire.AcquireResult{}, err
	}
	info := activity.GetInfo(ctx)
	req := acquireRequest(p, caller, info)
	leases, err := a.enter(ctx, p, caller, req)
	if err == nil { // again: taking the locks may have shown that this is another collection
		if now, refused := currentrun.CheckCollection(ctx, a.Locker, p.Collection); refused != nil || now && !p.Reacquire {
			return wire.AcquireResult{}, cmp.Or(refused, currentrun.Replaced(p.LockID, p.Resources[0].Name, p.Collection))
		}
		return wire.AcquireResult{LockID: req.LockID, Leases: wire.Leases(leases)}, nil
	}
	err = wire.RewriteField(err, "")
	wire.NoteAncestor(err, caller, p.Ancestors)
	return wire.AcquireResult{}, a.notAcquired(ctx, p, caller, req, began, err)
}

// notAcquired returns the failure of an attempt, begun at a time of this process, that did not get its locks.
func (a *Activities) notAcquired(
	ctx context.Context, p wire.AcquireParams, caller wire.Run, req lockcore.StepRequest, began time.Time, err error,
) error {
	info := activity.GetInfo(ctx)
	switch {
	case p.Try:
		return wire.TriedFailure(err, "")
	case p.Park:
		return wire.ParkFailure(err, req, "")
	case p.HoldOnly && req.Run != "" && info.ActivityID == wire.WaitID(p.Schedule):
		return a.waitForHold(ctx, p, caller, req, began, err)
	}
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return wire.Failure(err)
	}
	a.Locker.WatchFor(busy.Resource)
	if p.MaxWait > 0 && waitedFor(info, began) >= time.Duration(p.MaxWait) {
		return wire.TriedFailure(busy, "")
	}
	return wire.Failure(err)
}

// waitForHold returns the failure of an attempt that the worker which frees the lock need not wait for: it completes the activity. err
// is the error of the request.
func (a *Activities) waitForHold(
	ctx context.Context, p wire.AcquireParams, caller wire.Run, req lockcore.StepRequest, began time.Time, err error,
) error {
	info := activity.GetInfo(ctx)
	var (
		busy   *lockcore.BusyError
		layout *lockcore.LayoutError
	)
	switch isBusy := errors.As(err, &busy); {
	case isBusy && busy.Full:
		return waitFailure(p.MaxWait, waitedFor(info, began), fullPause(0, info.Attempt), err)
	case isBusy:
	case wire.LockError(err) != nil || errors.As(err, &layout):
		return wire.Failure(err)
	default:
		return wire.UnavailableFailure(fullPause(0, info.Attempt), err)
	}
	a.Locker.WatchFor(busy.Resource)
	req.Resources = slices.DeleteFunc(slices.Clone(req.Resources), func(r lockcore.Resource) bool { return r.Name != busy.Resource })
	delay, now := a.Locker.Recheck(ctx, req)
	wire.NoteAncestor(now, caller, p.Ancestors)
	switch {
	case now == nil: // it was granted in between
		return waitFailure(p.MaxWait, waitedFor(info, began), grantedDelay, err)
	case wire.LockError(now) == nil: // the database did not answer; the request stays in the queue during the pause
		return waitFailure(p.MaxWait, waitedFor(info, began), fullPause(0, info.Attempt), err)
	}
	return waitFailure(p.MaxWait, waitedFor(info, began), delay, now)
}

// enter takes the locks. A lock ID of the workflow itself may be held by another run, see package currentrun. A lock ID that the caller
// chose has no runs.
func (a *Activities) enter(ctx context.Context, p wire.AcquireParams, caller wire.Run, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	switch {
	case req.Run == "" && p.Try:
		return a.Locker.TryEnter(ctx, req)
	case req.Run == "":
		return a.Locker.Enter(ctx, req)
	case p.Try:
		return currentrun.TryEnter(ctx, a.Locker, caller, req)
	default:
		return currentrun.Enter(ctx, a.Locker, caller, req)
	}
}

// lostSince returns the time from which on losses of earlier runs count; zero if they do not.
func lostSince(p wire.AcquireParams) time.Time {
	if !p.Inherits || p.Reacquire {
		return time.Time{}
	}
	return wire.LostSince(p.Started)
}

func acquireRequest(p wire.AcquireParams, caller wire.Run, info activity.Info) lockcore.StepRequest {
	comment := p.Comment
	if comment == "" {
		comment = fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
	}
	inline := currentrun.InlineWait(info)
	if p.HoldOnly { // it is granted the hold while it waits in the queue
		inline = 0
	}
	self := identityOf(p.LockID, "", caller)
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: self.lockID, Run: self.run, Part: self.part(caller, p.Part), Order: lockcore.Order{Schedule: p.Schedule, Attempt: uint32(max(info.Attempt, 0))}, Saga: p.Saga},

		Resources: p.Resources,

		TTL:       time.Duration(p.TTL),
		Persist:   true,
		HoldOnly:  p.HoldOnly,
		HoldTTL:   time.Duration(p.HoldTTL),
		Reacquire: p.Reacquire,
		LostSince: lostSince(p),
		NewFence:  p.NewFence,

		Owner:   p.Owner.Of(caller),
		Started: p.Started, NeverVictim: p.NeverVictim,
		Comment: wire.Cut(comment, 1024),
		MaxWait: inline,
	}
}
