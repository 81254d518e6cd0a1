package interceptors

import (
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// mostFormer bounds how many former runs' locks one attempt ends.
const mostFormer = 8

// enter takes a step's locks. Where another run of the same workflow is in the way, it is a closed one: it was reset,
// terminated or timed out. What it left is released, and the locks are asked for again. Steps of it that still run keep
// them until they leave, or their TTL ends.
func (a *activityInbound) enter(ctx context.Context, req lockcore.Request, queue bool) ([]lockcore.Lease, error) {
	leases, err := a.locker.Enter(ctx, req, queue)
	for range mostFormer {
		former := a.former(ctx, req, err)
		if len(former) == 0 || !isCurrent(ctx) {
			break
		}
		names := make([]string, 0, len(req.Resources))
		for _, r := range req.Resources {
			names = append(names, r.Name)
		}
		for _, lockID := range former {
			// Without an order all that was asked for until now ends: a workflow's own numbers are smaller than the clock's.
			if failed := a.locker.Release(ctx, lockcore.Release{LockID: lockID, Resources: names}); failed != nil {
				activity.GetLogger(ctx).Warn("lockstep: what a former run left was not released, and stands until its TTL ends", "lockId", lockID, "error", failed)
				return leases, err
			}
		}
		leases, err = a.locker.Enter(ctx, req, queue)
	}
	return leases, err
}

// former lists the lock IDs of other runs of this workflow that are in the way.
func (a *activityInbound) former(ctx context.Context, req lockcore.Request, err error) (former []string) {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return nil
	}
	info := activity.GetInfo(ctx)
	own := protocol.Run{Cluster: a.cluster, Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}
	for _, h := range busy.Holders {
		held, err := protocol.ParseLockID(h.LockID)
		if err != nil || h.Draining || h.LockID == req.LockID || h.LockID == own.LockID() {
			continue
		}
		same := own
		same.RunID = held.RunID
		if same.LockID() == h.LockID && !slices.Contains(former, h.LockID) {
			former = append(former, h.LockID)
		}
	}
	return former
}

// isCurrent tells that the attempt's run is open, and so the only one of its workflow that is: no other run can come to
// lock in the name of one before it.
func isCurrent(ctx context.Context) bool {
	info := activity.GetInfo(ctx)
	now, err := protocol.Describe(ctx, activity.GetClient(ctx).WorkflowService(), info.Namespace, info.WorkflowExecution.ID, "")
	return err == nil && !protocol.HasEnded(now.GetStatus()) && now.GetExecution().GetRunId() == info.WorkflowExecution.RunID
}
