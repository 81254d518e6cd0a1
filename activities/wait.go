package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Wait returns when a request that a guarded step or Acquire has queued is worth making again. As long as it waits, each attempt fails with a retryable lockstep.Busy that says when the next one is to
// be made, so that it uses no slot and adds nothing to the history; whoever grants the lock completes it in between.
// For that its activity ID has to be protocol.WaitID of the request's schedule number; under another ID it finds the grant
// at its next attempt.
//
// It has no result: what became of the request is told to the next Acquire or attempt of the step, also if its place was given up
// to end a deadlock. If an attempt of Wait finds that out itself, it fails with lockstep.Deadlock, which is not retryable.
//
// In a run that was made by a reset, and has the wait from the run before, it gives up the place of that one and is over.
//
// It takes nothing. It keeps alive the place in the queue; what the lock ID holds is extended by the janitor.
func (a *Activities) Wait(ctx context.Context, p WaitParams) error {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return err
	}
	info, who := activity.GetInfo(ctx), partyOf(p.LockID, caller)
	if p.Run != "" && p.Run != caller.RunID {
		caller.RunID = p.Run
		return protocol.Failure(a.Locker.Leave(ctx, lockcore.Lease{
			Resource: p.Resource.Name, LockID: who.lockID, Run: p.Run, Part: caller.Part(p.Part), Order: p.Order,
		}))
	}
	a.Locker.Tend(p.Resource.Name)
	again, err := a.Locker.Recheck(ctx, lockcore.Request{
		LockID: who.lockID, Run: who.run, Resources: []lockcore.Resource{p.Resource}, Part: who.part(caller, p.Part), Order: p.Order,
		Owner: p.Owner.Of(caller), Started: p.Started, NeverVictim: p.NeverVictim,
	}, info.Attempt <= 1)
	protocol.TellAncestors(err, caller, p.Ancestors)
	var busy *lockcore.BusyError
	switch {
	case errors.As(err, &busy) && p.MaxWait > 0:
		left := time.Duration(p.MaxWait) - time.Since(info.ScheduledTime)
		if left <= 0 {
			return protocol.TriedFailure(busy, "")
		}
		return protocol.WaitingFailure(busy, min(again, left))
	case errors.As(err, &busy):
		return protocol.WaitingFailure(busy, again)
	default:
		return protocol.Failure(err)
	}
}
