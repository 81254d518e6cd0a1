package activities

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// barTimeout bounds one attempt to raise a bar: an attempt that cannot reach the database must say so, and not wait in its slot.
	barTimeout = 10 * time.Second
	// shortestBar and longestBar bound the delay between two attempts. A part that was cut off usually leaves before its TTL ends,
	// when its next renewal fails.
	shortestBar = 100 * time.Millisecond
	longestBar  = 2 * time.Second
	// testBar bounds an attempt in the SDK's test environment, and testPause is the delay between two calls of it.
	testBar   = 500 * time.Millisecond
	testPause = 20 * time.Millisecond
)

// Bar bars the steps of a saga up to a schedule number, before the saga's first compensation: it returns when no step that the saga
// has scheduled so far can still run on the resources. Running steps are cut off, waiting steps leave their queues, and later
// attempts are refused with lockstep.Superseded.
//
// As long as a step may still run, because it has neither returned nor lost its lock, the attempt fails with a retryable
// lockstep.Busy that says when to make the next one. So Bar waits in back-off, without a slot.
//
// A run that was made by a reset, or that continues another, takes over what the run before holds. Bar may be repeated with the
// same input. It takes nothing.
//
// The SDK's test environment skips the time of back-offs, and makes 10 attempts by default. There an attempt also waits, up to
// 500 ms, so that a step that was cut off has time to return.
func (a *Activities) Bar(ctx context.Context, p BarParams) (BarResult, error) {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return BarResult{}, err
	}
	who := partyOf(p.LockID, "", caller)
	if who.run == "" {
		return BarResult{}, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: strconv.Quote(wire.Cut(p.LockID, 64)), Bound: "the lock ID of the workflow that calls, or none",
		})
	}
	bounded, cancel := context.WithTimeout(ctx, barTimeout)
	defer cancel()
	bar := party.Raise{LockID: who.lockID, Run: who.run, Saga: p.Saga, Order: party.LastAttempt(p.Schedule), Resources: p.Resources}
	err = currentrun.Raise(bounded, a.Locker, caller, bar)
	if !currentrun.Connects(activity.GetClient(ctx)) {
		for end := time.Now().Add(testBar); errors.Is(err, lockcore.ErrBusy) && bounded.Err() == nil && time.Now().Before(end); {
			timer := time.NewTimer(testPause)
			select {
			case <-bounded.Done():
			case <-timer.C:
				err = currentrun.Raise(bounded, a.Locker, caller, bar)
			}
			timer.Stop()
		}
	}
	if busy := new(lockcore.BusyError); errors.As(err, &busy) {
		return BarResult{}, wire.WaitingFailure(busy, barDelay(busy))
	}
	return BarResult{}, wire.Failure(err)
}

// barDelay returns the delay until the first of the parts that may still run has ended, within bounds.
func barDelay(busy *lockcore.BusyError) time.Duration {
	delay := longestBar
	for _, part := range busy.Holders {
		delay = min(delay, part.ExpiresIn)
	}
	return max(delay, shortestBar)
}
