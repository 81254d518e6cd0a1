package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Acquire asks once for the resources, and waits if its turn is near, for two seconds or a quarter
// of the attempt's time. When they are busy the request stays in the queue and the attempt fails
// with a retryable lockstep.Busy; the next attempt finds its place again. With Park the failure is
// not retryable, and the caller waits by Wait; with Try it is not either, and nothing stays in the
// queue. After MaxWait it is not retryable.
//
// With HoldOnly no attempt waits in its slot, since the write that frees the resource grants the request its hold. If the
// activity's ID is wire.WaitID of the schedule number, the activity waits as Wait does: the attempts follow each other with
// growing pauses, and the worker that frees the lock completes the activity in between. Under another ID the next attempt,
// after a second at most, finds the hold.
func (a *Activities) Acquire(ctx context.Context, p AcquireParams) (AcquireResult, error) {
	if err := p.Check(); err != nil {
		return AcquireResult{}, wire.Failure(err)
	}
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return AcquireResult{}, err
	}
	info := activity.GetInfo(ctx)
	req := request(p, caller, info)
	leases, err := a.enter(ctx, p, caller, req)
	err = wire.Asked(err, "")
	wire.TellAncestors(err, caller, p.Ancestors)
	switch {
	case err == nil:
		return AcquireResult{LockID: req.LockID, Leases: wire.Leases(leases)}, nil
	case p.Try:
		return AcquireResult{}, wire.TriedFailure(err, "")
	case p.Park:
		return AcquireResult{}, wire.ParkFailure(err, req, "")
	case p.HoldOnly && req.Run != "" && info.ActivityID == wire.WaitID(p.Schedule):
		return AcquireResult{}, a.untilWoken(ctx, p, caller, req, err)
	default:
		if busy := new(lockcore.BusyError); errors.As(err, &busy) {
			a.Locker.WatchFor(busy.Resource)
			if p.MaxWait > 0 && time.Since(info.ScheduledTime) >= time.Duration(p.MaxWait) {
				return AcquireResult{}, wire.TriedFailure(busy, "")
			}
		}
		return AcquireResult{}, wire.Failure(err)
	}
}

// untilWoken returns the failure of an attempt that did not get its locks, and that another one follows after a pause, unless
// the activity is completed before.
func (a *Activities) untilWoken(ctx context.Context, p AcquireParams, caller wire.Run, req party.Request, err error) error {
	info := activity.GetInfo(ctx)
	var (
		busy   *lockcore.BusyError
		layout *lockcore.LayoutError
	)
	switch isBusy := errors.As(err, &busy); {
	case isBusy && busy.Full:
		return waiting(p.MaxWait, info, pauseOf(0, info.Attempt), err)
	case isBusy:
	case wire.LockError(err) != nil || errors.As(err, &layout):
		return wire.Failure(err)
	default:
		return wire.UnavailableFailure(pauseOf(0, info.Attempt), err)
	}
	a.Locker.WatchFor(busy.Resource)
	req.Resources = slices.DeleteFunc(slices.Clone(req.Resources), func(r lockcore.Resource) bool { return r.Name != busy.Resource })
	again, now := a.Locker.Recheck(ctx, req)
	wire.TellAncestors(now, caller, p.Ancestors)
	switch {
	case now == nil: // it was granted in between
		return waiting(p.MaxWait, info, atOnce, err)
	case wire.LockError(now) == nil: // the place in the queue outlives the pause
		return waiting(p.MaxWait, info, pauseOf(0, info.Attempt), err)
	}
	return waiting(p.MaxWait, info, again, now)
}

// atOnce is the pause after an attempt that was granted what it had queued for.
const atOnce = 10 * time.Millisecond

// enter takes the locks. Those of a lock ID that the caller has chosen may be any party's, and are asked for as they are;
// what is its own workflow's may be in the hands of another run, see openrun.
func (a *Activities) enter(ctx context.Context, p AcquireParams, caller wire.Run, req party.Request) ([]lockcore.Lease, error) {
	if req.Run == "" {
		if p.Try {
			return a.Locker.TryEnter(ctx, req)
		}
		return a.Locker.Enter(ctx, req)
	}
	return currentrun.Enter(ctx, a.Locker, caller, req, !p.Try)
}

func request(p AcquireParams, caller wire.Run, info activity.Info) party.Request {
	comment := p.Comment
	if comment == "" {
		comment = fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
	}
	inline := wire.InlineWait(info)
	if p.HoldOnly { // it is granted the hold wherever it waits
		inline = 0
	}
	who := partyOf(p.LockID, "", caller)
	return party.Request{
		LockID:    who.lockID,
		Run:       who.run,
		Resources: p.Resources,
		Part:      who.part(caller, p.Part),
		Order:     party.Order{Schedule: p.Schedule, Attempt: uint32(max(info.Attempt, 0))},
		TTL:       time.Duration(p.TTL),
		Persist:   true,
		HoldOnly:  p.HoldOnly,
		HoldTTL:   time.Duration(p.HoldTTL),
		Reacquire: p.Reacquire,
		NewFence:  p.NewFence,
		Saga:      p.Saga,
		Owner:     p.Owner.Of(caller),
		Started:   p.Started, NeverVictim: p.NeverVictim,
		Comment: wire.Cut(comment, 1024),
		MaxWait: inline,
	}
}
