package activities

import (
	"context"
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// barTimeout bounds one attempt to raise a bar: an attempt that cannot reach the database must say so, and not wait in its slot.
	barTimeout = 10 * time.Second
	// shortestBar and longestBar bound the delay between two attempts. A part that was cut off usually leaves before its TTL ends,
	// when its next renewal fails.
	shortestBar = 100 * time.Millisecond
	longestBar  = 2 * time.Second
)

// Bar bars the steps of a saga up to a schedule number, before the saga's first compensation: it returns when no step that the saga
// has scheduled so far can still run on the resources. Steps that run are cut off, those that wait in a queue leave it, and later
// attempts are refused with lockstep.Superseded.
//
// As long as a step may still run, because it has neither returned nor lost its lock, the attempt fails with a retryable
// lockstep.Busy that says when to make the next one. So Bar waits in back-off, without a slot.
//
// A run that was made by a reset, or that continues another, takes over what the run before holds. Bar may be repeated with the
// same input. It takes nothing.
func (a *Activities) Bar(ctx context.Context, p BarParams) (BarResult, error) {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return BarResult{}, err
	}
	who := partyOf(p.LockID, "", caller)
	bounded, cancel := context.WithTimeout(ctx, barTimeout)
	defer cancel()
	err = openrun.Raise(bounded, a.Locker, caller, party.Raise{
		LockID: who.lockID, Run: who.run, Saga: p.Saga, Order: party.LastAttempt(p.Schedule), Resources: p.Resources,
	})
	if busy := new(lockcore.BusyError); errors.As(err, &busy) {
		return BarResult{}, protocol.WaitingFailure(busy, barDelay(busy))
	}
	return BarResult{}, protocol.Failure(err)
}

// barDelay returns the delay until the first of the parts that may still run has ended, within bounds.
func barDelay(busy *lockcore.BusyError) time.Duration {
	delay := longestBar
	for _, part := range busy.Holders {
		delay = min(delay, part.ExpiresIn)
	}
	return max(delay, shortestBar)
}
