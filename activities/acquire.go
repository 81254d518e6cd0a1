package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Acquire asks once for the resources, and waits if its turn is near, for two seconds or a quarter
// of the attempt's time. When they are busy the request stays in the queue and the attempt fails
// with a retryable lockstep.Busy; the next attempt finds its place again. With Park the failure is
// not retryable, and the caller waits by Wait; with Try it is not either, and nothing stays in the
// queue.
func (a *Activities) Acquire(ctx context.Context, p AcquireParams) (AcquireResult, error) {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return AcquireResult{}, err
	}
	req := request(p, caller, activity.GetInfo(ctx))
	leases, err := a.enter(ctx, p, caller, req)
	err = protocol.Asked(err, "")
	protocol.TellAncestors(err, caller, p.Ancestors)
	if err == nil && p.HoldOnly {
		err = a.Locker.Leave(ctx, leases...)
	}
	switch {
	case err == nil:
		return AcquireResult{LockID: req.LockID, Leases: protocol.Leases(leases)}, nil
	case p.Try:
		return AcquireResult{}, protocol.TriedFailure(err, "")
	case p.Park:
		return AcquireResult{}, protocol.ParkFailure(err, req, "")
	default:
		if busy := new(lockcore.BusyError); errors.As(err, &busy) {
			a.Locker.WatchFor(busy.Resource)
		}
		return AcquireResult{}, protocol.Failure(err)
	}
}

// enter takes the locks. Those of a lock ID that the caller has chosen may be any party's, and are asked for as they are;
// what is its own workflow's may be in the hands of another run, see openrun.
func (a *Activities) enter(ctx context.Context, p AcquireParams, caller protocol.Run, req party.Request) ([]lockcore.Lease, error) {
	if req.Run == "" {
		return a.Locker.Enter(ctx, req, !p.Try)
	}
	return openrun.Enter(ctx, a.Locker, caller, req, !p.Try)
}

func request(p AcquireParams, caller protocol.Run, info activity.Info) party.Request {
	comment := p.Comment
	if comment == "" {
		comment = fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
	}
	ttl, holdTTL := time.Duration(p.TTL), time.Duration(p.HoldTTL)
	if p.HoldOnly && ttl == 0 && holdTTL > 0 {
		// The part ends before this attempt does, and must not make the hold last longer than was asked for.
		ttl = min(holdTTL, holdOnlyTTL)
	}
	who := partyOf(p.LockID, "", caller)
	return party.Request{
		LockID:    who.lockID,
		Run:       who.run,
		Resources: p.Resources,
		Part:      who.part(caller, p.Part),
		Order:     party.Order{Schedule: p.Schedule, Attempt: uint32(max(info.Attempt, 0))},
		TTL:       ttl,
		Persist:   true,
		HoldTTL:   holdTTL,
		Reacquire: p.Reacquire,
		NewFence:  p.NewFence,
		Saga:      p.Saga,
		Owner:     p.Owner.Of(caller),
		Started:   p.Started, NeverVictim: p.NeverVictim,
		Comment: protocol.Cut(comment, 1024),
		MaxWait: protocol.InlineWait(info),
	}
}

// holdOnlyTTL is the TTL of a part that leaves at once, if none is given: lockcore's default.
const holdOnlyTTL = 30 * time.Second
