package protocol

import (
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// mostFormer bounds how many former runs' locks one attempt ends.
const mostFormer = 8

// FormerRun is why a later run releases what a former one of its workflow left, as spans tell it.
const FormerRun = "released by a later run of its workflow, since its own is closed"

// Enterer is what [Enter] needs of a *lockcore.Locker.
type Enterer interface {
	Enter(ctx context.Context, req lockcore.Request, queue bool) ([]lockcore.Lease, error)
	ReleaseHeld(ctx context.Context, r lockcore.Release) (held []string, err error)
}

// Enter takes locks for a run, in an activity of it. Where another run of the same workflow is in the way, it is a closed
// one: it was reset, terminated or timed out. What it left is released, and the locks are asked for again. Steps of it that
// still run keep them until they leave, or their TTL ends.
func Enter(ctx context.Context, locker Enterer, own Run, req lockcore.Request, queue bool) ([]lockcore.Lease, error) {
	leases, err := locker.Enter(ctx, req, queue)
	for range mostFormer {
		former := own.former(req, err)
		if len(former) == 0 || !own.isCurrent(ctx) {
			break
		}
		names := make([]string, 0, len(req.Resources))
		for _, r := range req.Resources {
			names = append(names, r.Name)
		}
		for _, lockID := range former {
			// Without an order all that was asked for until now ends: a workflow's own numbers are smaller than the clock's.
			if _, failed := locker.ReleaseHeld(ctx, lockcore.Release{LockID: lockID, Resources: names, Orphaned: FormerRun}); failed != nil {
				activity.GetLogger(ctx).Warn("lockstep: what a former run left was not released, and stands until its TTL ends", "lockId", lockID, "error", failed)
				return leases, err
			}
		}
		leases, err = locker.Enter(ctx, req, queue)
	}
	return leases, err
}

// former lists the lock IDs of other runs of this workflow that are in the way.
func (r Run) former(req lockcore.Request, err error) (former []string) {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return nil
	}
	for _, h := range busy.Holders {
		held, err := ParseLockID(h.LockID)
		if err != nil || h.Draining || h.LockID == req.LockID || h.LockID == r.LockID() {
			continue
		}
		same := r
		same.RunID = held.RunID
		if same.LockID() == h.LockID && !slices.Contains(former, h.LockID) {
			former = append(former, h.LockID)
		}
	}
	return former
}

// isCurrent tells that the run is open, and so the only one of its workflow that is: no other run can come to lock in the
// name of one before it.
func (r Run) isCurrent(ctx context.Context) bool {
	now, err := Describe(ctx, activity.GetClient(ctx).WorkflowService(), r.Namespace, r.WorkflowID, "")
	return err == nil && !HasEnded(now.GetStatus()) && now.GetExecution().GetRunId() == r.RunID
}
