package activities

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

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
// With HoldOnly no attempt waits in its slot, since the write that frees the resource grants the hold to the request. If the activity's ID is
// wire.WaitID of the schedule number, the activity waits as Wait does. Under another ID the next attempt, after a second at most, finds the hold.
func (a *lockActivities) Acquire(ctx context.Context, in converter.RawValue) (wire.AcquireResult, error) {
	began := time.Now()
	p, err := decode[wire.AcquireParams](in)
	if err != nil {
		return wire.AcquireResult{}, err
	}
	run, replaced, err := a.run(ctx, p.LockID, p.Collection)
	if err == nil && replaced && !p.Reacquire && len(p.Resources) > 0 {
		err = currentrun.Replaced(p.LockID, p.Resources[0].Name, p.Collection)
	}
	if err != nil {
		return wire.AcquireResult{}, err
	}
	req := acquireRequest(p, run, activity.GetInfo(ctx))
	leases, err := currentrun.Enter(ctx, a.locker, p.Try, run, req)
	if err == nil { // again: taking the locks may have shown that this is another collection
		if now, refused := currentrun.CheckCollection(ctx, a.locker, p.Collection); refused != nil || now && !p.Reacquire {
			return wire.AcquireResult{}, cmp.Or(refused, currentrun.Replaced(p.LockID, p.Resources[0].Name, p.Collection))
		}
		return wire.AcquireResult{LockID: req.LockID, Leases: wire.Leases(leases)}, nil
	}
	err = wire.RewriteField(err, "")
	wire.NoteAncestor(err, run, p.Ancestors)
	return wire.AcquireResult{}, a.notAcquired(ctx, p, run, req, began, err)
}

// notAcquired returns the failure of an attempt that did not get its locks. began is the time of this process at which the attempt began.
func (a *lockActivities) notAcquired(
	ctx context.Context, p wire.AcquireParams, run wire.Run, req lockcore.StepRequest, began time.Time, err error,
) error {
	info := activity.GetInfo(ctx)
	busy, isBusy := errors.AsType[*lockcore.BusyError](err)
	woken := p.HoldOnly && req.Run != "" && info.ActivityID == wire.WaitID(p.Schedule) // by the worker that frees the lock
	pause := fullPause(0, info.Attempt)
	switch {
	case p.Try:
		return wire.TriedFailure(err, "")
	case p.Park:
		return wire.ParkFailure(err, req, "")
	case !isBusy && woken && wire.IsUnavailable(err):
		return wire.UnavailableFailure(pause, err)
	case !isBusy:
		return wire.Failure(err)
	case woken && busy.Full:
		return waitFailure(p.MaxWait, waitedFor(info, began), pause, err)
	}
	a.locker.WatchFor(busy.Resource)
	delay := wire.BusyDelay(busy)
	if woken {
		req.Resources = slices.DeleteFunc(slices.Clone(req.Resources), func(r lockcore.Resource) bool { return r.Name != busy.Resource })
		again, now := a.locker.Recheck(ctx, req)
		wire.NoteAncestor(now, run, p.Ancestors)
		switch {
		case now == nil: // it was granted in between
			delay = grantedDelay
		case wire.LockError(now) == nil: // the database did not answer; the request stays in the queue during the pause
			delay = pause
		default:
			delay, err = again, now
		}
	}
	return waitFailure(p.MaxWait, waitedFor(info, began), delay, err)
}

func acquireRequest(p wire.AcquireParams, run wire.Run, info activity.Info) lockcore.StepRequest {
	resources, heldSince := wire.CoreResources(p.Resources)
	req := lockcore.StepRequest{
		Caller:    callerOf(run, p.LockID, "", p.Part),
		Resources: resources,
		HeldSince: heldSince,

		TTL:       time.Duration(p.TTL),
		Keep:      true,
		HoldOnly:  p.HoldOnly,
		HoldTTL:   time.Duration(p.HoldTTL),
		Reacquire: p.Reacquire,
		NewFence:  p.NewFence,

		Owner:   p.Owner.Of(run),
		Started: p.Started, NeverVictim: p.NeverVictim, Priority: cmp.Or(p.Priority, info.Priority.PriorityKey),
		Comment: wire.Cut(cmp.Or(p.Comment, currentrun.AttemptName(info)), 1024),
	}
	req.Order, req.Saga = lockcore.Order{Schedule: p.Schedule, Attempt: uint32(max(info.Attempt, 0))}, p.Saga
	if p.Inherits && !p.Reacquire {
		req.LostSince = wire.LostSince(p.Started)
	}
	if !p.HoldOnly { // which is granted the hold while it waits in the queue
		req.MaxWait = currentrun.InlineWait(info)
	}
	return req
}
