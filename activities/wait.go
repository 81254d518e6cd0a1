package activities

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// firstPause and longestPause are those between two looks at a queue that is full, which double.
	firstPause   = time.Second
	longestPause = time.Minute
)

// Wait returns when a request that a guarded step or Acquire has queued is worth making again. As long as it waits, each attempt fails with a retryable lockstep.Busy that says when the next one is to
// be made, so that it uses no slot and adds nothing to the history; the worker that grants the lock completes it in between.
// For that its activity ID has to be wire.WaitID of the request's schedule number; under another ID it finds the grant
// at its next attempt. While the database cannot be reached, an attempt fails with a retryable lockstep.Unavailable that says so.
//
// It has no result: what became of the request is told to the next Acquire or attempt of the step, also if its place was given up
// to end a deadlock. If an attempt of Wait finds that out itself, it fails with lockstep.Deadlock, which is not retryable.
//
// A request that found the queue full has no place. It waits until there is room, and looks with growing pauses.
//
// In a run that was made by a reset, and has the wait from the run before, it gives up the place of that one and is over.
//
// It takes nothing. It keeps alive the place in the queue; what the lock ID holds is extended by the janitor.
func (a *Activities) Wait(ctx context.Context, p WaitParams) error {
	if err := p.Check(); err != nil {
		return wire.Failure(err)
	}
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return err
	}
	info, who := activity.GetInfo(ctx), partyOf(p.LockID, p.Step, caller)
	if p.Run != "" && p.Run != caller.RunID {
		caller.RunID = p.Run
		return wire.Failure(a.Locker.LeaveQueue(ctx, lockcore.Lease{
			Resource: p.Resource.Name, LockID: who.lockID, Run: p.Run, Part: caller.Part(p.Part), Order: p.Order,
		}))
	}
	switch pause := pauseOf(p.Vain, info.Attempt); {
	case p.Full > 0:
		return waiting(p.MaxWait, info, pause, a.untilRoom(ctx, p, who, info.Attempt))
	case p.Vain > 1 && info.Attempt <= 1: // the request was made just before, and the one before it
		return wire.UnavailableFailure(pause, nil)
	}
	a.Locker.WatchFor(p.Resource.Name)
	again, err := a.Locker.Recheck(ctx, party.Request{
		LockID: who.lockID, Run: who.run, Within: who.within, Resources: []lockcore.Resource{p.Resource}, Part: who.part(caller, p.Part), Order: p.Order,
		Owner: p.Owner.Of(caller), Started: p.Started, NeverVictim: p.NeverVictim,
	})
	wire.TellAncestors(err, caller, p.Ancestors)
	return waiting(p.MaxWait, info, again, err)
}

// waiting is the failure of an attempt that is to be made again, if others are in the way. Any other error is told as it is.
func waiting(maxWait Duration, info activity.Info, again time.Duration, err error) error {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return wire.Failure(err)
	}
	if maxWait > 0 {
		left := time.Duration(maxWait) - time.Since(info.ScheduledTime)
		if left <= 0 {
			return wire.TriedFailure(busy, "")
		}
		again = min(again, left)
	}
	return wire.WaitingFailure(busy, again)
}

// pauseOf is how long to wait without a place before the next look.
func pauseOf(vain int, attempt int32) time.Duration {
	pause := min(longestPause, firstPause<<min(max(vain, 1)+int(max(attempt, 1))-2, 16))
	return pause*3/4 + rand.N(pause/4) //nolint:gosec // spreads looks, guards nothing
}

// untilRoom returns a *BusyError as long as the queue is full. The first attempt does not look, since the request was made just
// before.
func (a *Activities) untilRoom(ctx context.Context, p WaitParams, who asker, attempt int32) error {
	full := &lockcore.BusyError{Resource: p.Resource.Name, LockID: who.lockID, Waiting: p.Full, Full: true}
	if attempt <= 1 {
		return full
	}
	full.Waiting = 0
	for _, err := range a.Locker.Status(ctx, lockcore.Filter{Resource: p.Resource.Name, States: []lockcore.State{lockcore.StateWaiting}}) {
		if err != nil {
			return err
		}
		full.Waiting++
	}
	if full.Waiting < p.Full {
		return nil
	}
	return full
}
