package activities

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// firstPause and longestPause bound the interval between two checks of a full queue, which doubles.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Wait returns when it is worth repeating a request that a guarded step or Acquire has queued. Its attempts fail with a retryable
// lockstep.Busy, which uses no slot and no history, until the worker that grants the lock completes it. If its ID is not "lockstep-wait-" and
// the request's schedule number, it ends up to 20 s late. It has no result. If the request gave up to end a deadlock, it or the next Acquire
// fails with lockstep.Deadlock.
//
// A request that found the queue full is not queued. Wait then checks at growing intervals whether there is room.
//
// In a run that was made by a reset, and continues the wait of the run before it, Wait withdraws the request of that run and returns.
//
// Wait takes no lock: it would be a part that no process renews. It keeps the request in the queue alive; the janitor extends what the lock ID holds.
func (a *lockActivities) Wait(ctx context.Context, in converter.RawValue) error {
	began := time.Now()
	p, err := decode[wire.WaitParams](in)
	if err != nil {
		return err
	}
	run, replaced, err := a.run(ctx, p.LockID, p.Collection)
	if err == nil && replaced && !p.Reacquire {
		err = currentrun.Replaced(p.LockID, p.Resource.Name, p.Collection)
	}
	if err != nil || replaced { // a request that takes lost locks again is made again
		return err
	}
	info, caller := activity.GetInfo(ctx), callerOf(run, p.LockID, p.Step, p.Part)
	caller.Order = p.Order
	if p.Run != "" && p.Run != run.RunID {
		run.RunID = p.Run
		_, err := a.locker.LeaveQueue(ctx, lockcore.Lease{
			Resource: p.Resource.Name, LockID: caller.LockID, Run: p.Run, Part: run.Part(p.Part), Order: p.Order,
		})
		return wire.Failure(err)
	}
	switch pause := fullPause(p.FullRetries, info.Attempt); {
	case p.Full > 0:
		return waitFailure(p.MaxWait, waitedFor(info, began), pause, a.checkFull(ctx, p, caller.LockID, info.Attempt))
	case p.FullRetries > 1 && info.Attempt <= 1: // the database did not answer the step just now, nor the time before
		return wire.UnavailableFailure(pause, nil)
	}
	a.locker.WatchFor(p.Resource.Name)
	resources, heldSince := wire.CoreResources([]wire.Resource{p.Resource})
	delay, err := a.locker.Recheck(ctx, lockcore.StepRequest{
		Caller: caller, Resources: resources, HeldSince: heldSince, Owner: p.Owner.Of(run), Started: p.Started, NeverVictim: p.NeverVictim, Priority: p.Priority,
		Reacquire: p.Reacquire,
	})
	wire.NoteAncestor(err, run, p.Ancestors)
	return waitFailure(p.MaxWait, waitedFor(info, began), delay, err)
}

// waitedFor returns the time since the activity was scheduled, given the time at which this process began the attempt. The clocks of the
// server and of this process may differ, so each measures its own part.
func waitedFor(info activity.Info, began time.Time) time.Duration {
	return max(info.StartedTime.Sub(info.ScheduledTime), 0) + time.Since(began)
}

// waitFailure returns the failure of a busy attempt, after which the next one follows after delay, or none if the activity has waited for
// maxWait. Any other error is an ordinary failure. nil stays nil.
func waitFailure(maxWait wire.Duration, waited, delay time.Duration, err error) error {
	busy, ok := errors.AsType[*lockcore.BusyError](err)
	if !ok {
		return wire.Failure(err)
	}
	if maxWait > 0 {
		left := time.Duration(maxWait) - waited
		if left <= 0 {
			return wire.TriedFailure(busy, "")
		}
		delay = min(delay, left)
	}
	return wire.WaitingFailure(busy, delay)
}

// fullPause returns the pause before the next check of a request that is not queued.
func fullPause(retries int, attempt int32) time.Duration {
	return pace.Jitter(pace.Backoff(firstPause, longestPause, max(retries, 1)+int(max(attempt, 1))-1), rand.N[time.Duration])
}

// checkFull returns a *BusyError as long as the queue is full. At the first attempt, the request has just been made.
func (a *lockActivities) checkFull(ctx context.Context, p wire.WaitParams, lockID string, attempt int32) error {
	full := &lockcore.BusyError{Resource: p.Resource.Name, LockID: lockID, Waiting: p.Full, Full: true}
	if attempt <= 1 {
		return full
	}
	full.Waiting = 0
	for _, err := range a.locker.Status(ctx, lockcore.Filter{Resource: p.Resource.Name, States: []lockcore.State{lockcore.StateWaiting}}) {
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
