package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// keepTimeout bounds one command to the database, or one question to Temporal.
	keepTimeout = 10 * time.Second
	// keepAgain is after what time an extension that failed is tried again.
	keepAgain = time.Second
	// keepBeat is how often a heartbeat is given where the caller has set no timeout for it.
	keepBeat = 10 * time.Second
)

// Keep keeps the holds of the lock ID alive on the resources, every third of their HoldTTL, until its context is
// cancelled. It takes nothing. Where a hold is lost it fails with lockstep.Lost; an error of the database is tried
// again. It needs a HeartbeatTimeout, by which it learns that the workflow has ended. In a run that was made by a reset, and has
// it from the run before, it ends at once: the locks are to be taken anew first. It also does in the SDK's test environment, after
// one extension: the environment does not skip time while an activity runs.
//
// Its context is cancelled when the workflow cancels it, when another attempt has taken its place, when the
// worker stops, and when the workflow run has closed. It asks Temporal which it was, and releases the locks only of a run
// that has closed, and not of one that continued as new, which has handed over or released them itself.
func (a *Activities) Keep(ctx context.Context, p KeepParams) (KeepResult, error) {
	info := activity.GetInfo(ctx)
	if p.Run != "" && p.Run != info.WorkflowExecution.RunID {
		return KeepResult{}, nil
	}
	lockID := a.lockID(p.LockID, p.LockRun, info)
	beat := keepBeat
	if info.HeartbeatTimeout > 0 {
		beat = info.HeartbeatTimeout / 3
	}
	var due time.Time
	for ctx.Err() == nil {
		activity.RecordHeartbeat(ctx)
		if !time.Now().Before(due) {
			again, err := a.extend(ctx, lockID, p.Resources)
			if errors.Is(err, lockcore.ErrLost) || errors.Is(err, lockcore.ErrInvalid) {
				return KeepResult{}, protocol.Failure(err)
			}
			due = time.Now().Add(again)
		}
		if !protocol.Connects(activity.GetClient(ctx)) {
			return KeepResult{}, nil
		}
		timer := time.NewTimer(min(beat, time.Until(due)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	a.endKeep(ctx, info, lockID, p.Resources)
	return KeepResult{}, ctx.Err()
}

func (a *Activities) extend(ctx context.Context, lockID string, resources []string) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	again, err := a.Locker.Extend(bounded, lockID, resources...)
	if err == nil {
		return again, nil
	}
	if ctx.Err() == nil {
		activity.GetLogger(ctx).Warn("lockstep: a hold was not extended, and is tried again", "lockId", lockID, "error", err)
	}
	return keepAgain, err
}

// endKeep releases what a run that has closed left behind.
func (a *Activities) endKeep(ctx context.Context, info activity.Info, lockID string, resources []string) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if !hasClosed(bounded, info) {
		return
	}
	// Nothing of the run asks any more: all that it has asked for until now ends.
	if _, err := a.Locker.ReleaseHeld(bounded, lockcore.Release{
		LockID: lockID, Resources: resources, Orphaned: "released by its keep-alive, since its workflow run is closed",
	}); err != nil {
		activity.GetLogger(ctx).Warn("lockstep: the locks of a closed workflow were not released, and stand until they expire",
			"resources", resources, "error", err)
	}
}

// hasClosed tells whether the activity's run is known to have ended for good. One that cannot be asked about is not, nor
// is one that goes on as a new run.
func hasClosed(ctx context.Context, info activity.Info) bool {
	run, err := protocol.Describe(ctx, activity.GetClient(ctx).WorkflowService(), info.Namespace, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	return err == nil && protocol.HasEnded(run.GetStatus())
}
