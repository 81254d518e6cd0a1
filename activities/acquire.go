package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Acquire asks once for the resources. When they are busy the request stays in the queue and the
// attempt fails with a retryable lockstep.Busy; the next attempt finds its place again. With Park the failure is not
// retryable, and the caller waits by Wait; with Try it is not either, and nothing stays in the queue.
func (a *Activities) Acquire(ctx context.Context, p AcquireParams) (AcquireResult, error) {
	if err := protocol.CheckCluster(ctx, a.Cluster); err != nil {
		return AcquireResult{}, protocol.Failure(err)
	}
	info := activity.GetInfo(ctx)
	req := a.request(p, info)
	if err := a.withdrawn(ctx, p, req); err != nil {
		return AcquireResult{}, protocol.Failure(err)
	}
	leases, err := a.enter(ctx, p, req)
	if err == nil && p.Downgrade {
		err = a.downgrade(ctx, req.Resources, leases)
	}
	if err == nil && p.HoldOnly {
		err = a.Locker.Leave(ctx, leases...)
	}
	switch {
	case err == nil:
		return AcquireResult{LockID: req.LockID, Leases: protocol.Leases(leases)}, nil
	case p.Try:
		return AcquireResult{}, protocol.TriedFailure(err, "")
	case p.Park:
		return AcquireResult{}, protocol.ParkFailure(err, req.Order.Attempt, p.Run != "" && p.Run != info.WorkflowExecution.RunID, nil)
	default:
		if busy := new(lockcore.BusyError); errors.As(err, &busy) {
			a.Locker.Tend(busy.Resource)
		}
		return AcquireResult{}, protocol.Failure(err)
	}
}

// withdrawn tells an attempt that queues for itself that one before it gave up its place to end a deadlock.
func (a *Activities) withdrawn(ctx context.Context, p AcquireParams, req lockcore.Request) error {
	if p.Try || p.Park || req.Order.Attempt <= 1 {
		return nil
	}
	req.Order.Attempt = 1
	return a.Locker.Withdrawn(ctx, req)
}

// enter takes the locks. Those of a lock ID that the caller has chosen may be any party's, and are asked for as they are;
// a run's own may be in the hands of a closed run of the same workflow, see protocol.Enter.
func (a *Activities) enter(ctx context.Context, p AcquireParams, req lockcore.Request) ([]lockcore.Lease, error) {
	if p.LockID != "" {
		return a.Locker.Enter(ctx, req, !p.Try)
	}
	return protocol.Enter(ctx, a.Locker, a.run("", activity.GetInfo(ctx)), req, !p.Try, p.Former...)
}

func (a *Activities) request(p AcquireParams, info activity.Info) lockcore.Request {
	owner := p.Owner
	if owner == "" {
		owner = info.WorkflowExecution.ID
	}
	comment := p.Comment
	if comment == "" {
		comment = fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
	}
	ttl, holdTTL := time.Duration(p.TTL), time.Duration(p.HoldTTL)
	if p.HoldOnly && ttl == 0 && holdTTL > 0 {
		// The part ends before this attempt does, and must not make the hold last longer than was asked for.
		ttl = min(holdTTL, holdOnlyTTL)
	}
	return lockcore.Request{
		LockID:    a.lockID(p.LockID, p.LockRun, info),
		Resources: p.Resources,
		Part:      p.Part,
		Order:     lockcore.Order{Schedule: p.Schedule, Attempt: uint32(max(info.Attempt, 0))},
		TTL:       ttl,
		Keep:      true,
		HoldTTL:   holdTTL,
		Reacquire: p.Reacquire,
		NewFence:  p.NewFence,
		Owner:     protocol.Cut(owner, protocol.MaxName),
		Started:   p.Started, NeverVictim: p.NeverVictim,
		Comment: protocol.Cut(comment, 1024),
	}
}

// holdOnlyTTL is the TTL of a part that leaves at once, where none is given: lockcore's default.
const holdOnlyTTL = 30 * time.Second

// downgrade makes shared what was asked for so, and puts the leases as they are then into their places.
func (a *Activities) downgrade(ctx context.Context, asked []lockcore.Resource, leases []lockcore.Lease) error {
	shared := map[string]bool{}
	for _, r := range asked {
		shared[r.Name] = r.Mode == lockcore.ModeShared
	}
	for i, lease := range leases {
		if !shared[lease.Resource] || lease.Mode == lockcore.ModeShared {
			continue
		}
		down, err := a.Locker.Downgrade(ctx, lease)
		if err != nil {
			return err
		}
		leases[i] = down
	}
	return nil
}
