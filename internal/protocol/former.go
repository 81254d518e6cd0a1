package protocol

import (
	"context"
	"errors"
	"iter"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
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
// still run keep them until they leave, or their TTL ends. One that continued as new may have handed its locks over, and is asked
// about; closed are the IDs of runs of which the caller knows that nobody goes on with their locks.
func Enter(ctx context.Context, locker Enterer, own Run, req lockcore.Request, queue bool, closed ...string) ([]lockcore.Lease, error) {
	leases, err := locker.Enter(ctx, req, queue)
	for range mostFormer {
		former := own.leftBy(ctx, own.former(req, err), closed)
		if len(former) == 0 {
			break
		}
		names := make([]string, 0, len(req.Resources))
		for _, r := range req.Resources {
			names = append(names, r.Name)
		}
		for _, run := range former {
			lockID := run.LockID()
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

// former lists the other runs of this workflow that are in the way.
func (r Run) former(req lockcore.Request, err error) (former []Run) {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return nil
	}
	for _, h := range busy.Holders {
		if h.Draining || h.LockID == req.LockID {
			continue
		}
		if other, ok := r.other(h.LockID); ok && !slices.Contains(former, other) {
			former = append(former, other)
		}
	}
	return former
}

// other is the run whose lock ID it is, where that is another one of the same workflow.
func (r Run) other(lockID string) (other Run, ok bool) {
	run, err := ParseLockID(lockID)
	if err != nil || lockID == r.LockID() {
		return Run{}, false
	}
	other = r
	other.RunID = run.RunID
	return other, other.LockID() == lockID
}

// Lister is what [LeftOn] needs of a *lockcore.Locker.
type Lister interface {
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// LeftOn lists the runs of the same workflow with whose locks nobody goes on, and which have something on the resources, or
// wait for one. It is for a run that was reset, and does not know of every reset before. lockID is that in which the run locks.
func LeftOn(ctx context.Context, locker Lister, own Run, lockID string, names []string) (left []Run, err error) {
	for _, name := range names {
		for s, err := range locker.Status(ctx, lockcore.Filter{
			Resource: name, States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateWaiting},
		}) {
			if err != nil {
				return nil, err
			}
			if other, ok := own.other(s.LockID); ok && s.LockID != lockID && !slices.Contains(left, other) {
				left = append(left, other)
			}
		}
	}
	return own.leftBy(ctx, left, nil), nil
}

// leftBy are those of former runs with whose locks nobody goes on. That is so where the run which asks is open, and so the
// only one of its workflow that is: no other run can come to lock in the name of one before it. It may do so itself for
// one that it continues.
func (r Run) leftBy(ctx context.Context, former []Run, closed []string) []Run {
	if len(former) == 0 {
		return nil
	}
	service := activity.GetClient(ctx).WorkflowService()
	now, err := Describe(ctx, service, r.Namespace, r.WorkflowID, "")
	if err != nil || HasEnded(now.GetStatus()) || now.GetExecution().GetRunId() != r.RunID {
		return nil
	}
	return slices.DeleteFunc(former, func(f Run) bool {
		return !slices.Contains(closed, f.RunID) && isContinued(ctx, service, f, now)
	})
}

// isContinued tells whether the current run goes on with the locks of one before it, or that is not known. The first run of a
// chain goes on with nobody's.
func isContinued(ctx context.Context, service Describer, former Run, now *workflowpb.WorkflowExecutionInfo) bool {
	if now.GetFirstRunId() == now.GetExecution().GetRunId() {
		return false
	}
	run, err := Describe(ctx, service, former.Namespace, former.WorkflowID, former.RunID)
	switch {
	case err != nil:
		return true
	case run.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return false
	}
	heir, known := Heir(run, now)
	return heir != "" || !known
}
