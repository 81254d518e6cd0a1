package activities

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// keepTimeout bounds one command to the database, or one question to Temporal.
	keepTimeout = 10 * time.Second
	// keepAgain is after what time an extension that failed is tried again.
	keepAgain = time.Second
	// keepBeat is how often a heartbeat is given if the caller has set no timeout for it.
	keepBeat = 10 * time.Second
)

// Keep keeps the holds of the lock ID alive on the resources, every third of their HoldTTL, until its context is
// cancelled. It takes nothing. If a hold is lost it fails with lockstep.Lost; an error of the database is tried
// again. It needs a HeartbeatTimeout, by which it learns that the workflow has ended. In a run that was made by a reset it goes on
// for the hold of the run before. In the SDK's test environment it ends after one extension: the environment does not skip
// time while an activity runs.
//
// Its context is cancelled when the workflow cancels it, when another attempt has taken its place, when the
// worker stops, and when the workflow run has closed. It asks Temporal which it was, and releases the locks only if no run of
// the workflow is open, which could go on with them.
func (a *Activities) Keep(ctx context.Context, p KeepParams) (KeepResult, error) {
	info := activity.GetInfo(ctx)
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return KeepResult{}, err
	}
	who := partyOf(p.LockID, "", caller)
	if p.Once {
		_, err := a.extend(ctx, who, caller, p)
		return KeepResult{}, wire.Failure(err)
	}
	beat := keepBeat
	if info.HeartbeatTimeout > 0 {
		beat = info.HeartbeatTimeout / 3
	}
	var due time.Time
	for ctx.Err() == nil {
		activity.RecordHeartbeat(ctx)
		if !time.Now().Before(due) {
			again, err := a.extend(ctx, who, caller, p)
			if errors.Is(err, lockcore.ErrLost) || errors.Is(err, lockcore.ErrInvalid) {
				return KeepResult{}, wire.Failure(err)
			}
			due = time.Now().Add(again)
		}
		if !currentrun.Connects(activity.GetClient(ctx)) {
			return KeepResult{}, nil
		}
		timer := time.NewTimer(min(beat, time.Until(due)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	a.endKeep(ctx, info, who, p.Resources)
	return KeepResult{}, ctx.Err()
}

// extend extends the holds, also those that a run before the caller has left to it, or hands them over.
func (a *Activities) extend(ctx context.Context, who asker, caller wire.Run, p KeepParams) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	again := time.Duration(math.MaxInt64)
	var errs []error
	for _, name := range p.Resources {
		after, err := a.Locker.Extend(bounded, who.lockID, who.run, name, p.HandOver)
		var other *party.OtherRunError
		if errors.As(err, &other) {
			if current, asked := currentrun.IsCurrent(bounded, caller); current {
				after, err = a.Locker.Extend(bounded, who.lockID, other.Other, name, p.HandOver)
			} else {
				err = errors.Join(err, asked)
			}
		}
		if p.Once && p.Inherits && errors.Is(err, lockcore.ErrLost) {
			continue // a run before has released it
		}
		errs = append(errs, err)
		again = min(again, after)
	}
	err := errors.Join(errs...)
	if err == nil {
		return again, nil
	}
	if ctx.Err() == nil {
		activity.GetLogger(ctx).Warn("lockstep: a hold was not extended", "lockId", who.lockID, "error", err)
	}
	return keepAgain, err
}

// endKeep releases what a run that has closed left behind.
func (a *Activities) endKeep(ctx context.Context, info activity.Info, who asker, resources []string) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if !hasClosed(bounded, info) {
		return
	}
	holds := lockcore.Filter{LockID: who.lockID, Contended: true, States: []lockcore.State{lockcore.StateHolding}}
	for s, err := range a.Locker.Status(bounded, holds) {
		if err == nil && s.Run == who.run && slices.Contains(resources, s.Resource) {
			_, err = a.Locker.ReleaseHeld(bounded, party.Release{
				LockID: who.lockID, Run: who.run, Resources: []string{s.Resource}, FirstFence: s.FirstFence,
				Reason: "released by its keep-alive, since its workflow run is closed",
			})
		}
		if err != nil {
			activity.GetLogger(ctx).Warn("lockstep: a lock of a closed workflow was not released, and stands until it expires",
				"resource", s.Resource, "error", err)
		}
	}
}

// hasClosed reports whether the activity's workflow is known to have ended for good: no run of it is open, which could go on
// with its locks.
func hasClosed(ctx context.Context, info activity.Info) bool {
	now, err := currentrun.Describe(ctx, activity.GetClient(ctx).WorkflowService(), info.Namespace, info.WorkflowExecution.ID, "")
	return err == nil && currentrun.HasEnded(now.GetStatus())
}
