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
// In a run that was made by a reset, and has the wait from the run before, it gives up the place of that one and is over.
//
// It takes nothing. It keeps alive the place in the queue, and the holds of the lock ID on the resources in Held.
func (a *Activities) Wait(ctx context.Context, p WaitParams) (WaitResult, error) {
	if err := protocol.CheckCluster(ctx, a.Cluster); err != nil {
		return WaitResult{}, protocol.Failure(err)
	}
	info := activity.GetInfo(ctx)
	owner := p.Owner
	if owner == "" {
		owner = info.WorkflowExecution.ID
	}
	lockID := a.lockID(p.LockID, "", info)
	if p.Run != "" && p.Run != info.WorkflowExecution.RunID {
		return WaitResult{}, protocol.Failure(a.Locker.Leave(ctx, lockcore.Lease{
			Resource: p.Resource.Name, LockID: lockID, Part: p.Part, Order: p.Order,
		}))
	}
	a.Locker.Tend(p.Resource.Name)
	again, err := a.Locker.Recheck(ctx, lockcore.Request{
		LockID: lockID, Resources: []lockcore.Resource{p.Resource}, Part: p.Part, Order: p.Order,
		Owner: protocol.Cut(owner, protocol.MaxName), Started: p.Started, NeverVictim: p.NeverVictim,
	}, p.Resource.Name, info.Attempt <= 1, p.Held...)
	var busy *lockcore.BusyError
	var deadlock *lockcore.DeadlockError
	switch {
	case err == nil:
		return WaitResult{}, nil
	case errors.As(err, &deadlock):
		return WaitResult{Deadlock: deadlock.Cycle}, nil
	case errors.As(err, &busy) && p.MaxWait > 0:
		left := time.Duration(p.MaxWait) - time.Since(info.ScheduledTime)
		if left <= 0 {
			return WaitResult{}, protocol.TriedFailure(busy, "")
		}
		return WaitResult{}, protocol.WaitingFailure(busy, min(again, left))
	case errors.As(err, &busy):
		return WaitResult{}, protocol.WaitingFailure(busy, again)
	default:
		return WaitResult{}, protocol.Failure(err)
	}
}
