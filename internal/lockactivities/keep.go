package lockactivities

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

const (
	// keepTimeout bounds one round of commands to the database, and one question to Temporal.
	keepTimeout = 10 * time.Second
	// keepRetry is the delay before a failed extension is repeated.
	keepRetry = time.Second
	// defaultHeartbeat is the interval between two heartbeats if the caller has set no HeartbeatTimeout.
	defaultHeartbeat = 10 * time.Second
)

// Keep extends the holds of the lock ID on the resources every third of their HoldTTL, until its context is cancelled. It takes no lock.
// If a hold is lost it fails with lockstep.Lost; an error of the database is retried. It needs a HeartbeatTimeout, by which it learns
// that the workflow has ended. In a run that was made by a reset it extends the hold of the run before. In the SDK's test environment it
// ends after one extension, because the environment does not skip time while an activity runs.
//
// Its context is cancelled when the workflow cancels it, when another attempt has replaced it, when the worker stops, and when the
// workflow run has closed. Keep asks Temporal for the reason, and releases the locks only if no run of the workflow is open, because an
// open run could continue with them.
func (a *Activities) Keep(ctx context.Context, p wire.KeepParams) (wire.KeepResult, error) {
	info := activity.GetInfo(ctx)
	caller, replaced, err := a.caller(ctx, p.LockID, p.Collection)
	if err == nil && replaced && len(p.Resources) > 0 {
		err = currentrun.Replaced(p.LockID, p.Resources[0], p.Collection)
	}
	if err != nil {
		return wire.KeepResult{}, err
	}
	self := identityOf(p.LockID, "", caller)
	if p.Once {
		_, err := a.extend(ctx, self, caller, p)
		return wire.KeepResult{}, wire.Failure(err)
	}
	heartbeat := defaultHeartbeat
	if info.HeartbeatTimeout > 0 {
		heartbeat = info.HeartbeatTimeout / 3
	}
	var due time.Time
	for ctx.Err() == nil {
		activity.RecordHeartbeat(ctx)
		if !time.Now().Before(due) {
			delay, err := a.extend(ctx, self, caller, p)
			if errors.Is(err, lockcore.ErrLost) || errors.Is(err, lockcore.ErrInvalid) {
				return wire.KeepResult{}, wire.Failure(err)
			}
			due = time.Now().Add(delay)
		}
		if !currentrun.IsRealClient(activity.GetClient(ctx)) {
			return wire.KeepResult{}, nil
		}
		timer := time.NewTimer(min(heartbeat, time.Until(due)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	a.releaseIfEnded(ctx, info, self, p.Resources)
	return wire.KeepResult{}, ctx.Err()
}

// extend extends the holds, including those that an earlier run has left to the caller. It returns the delay before the next extension.
func (a *Activities) extend(ctx context.Context, self identity, caller wire.Run, p wire.KeepParams) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	soonest := time.Duration(math.MaxInt64)
	var errs []error
	for _, name := range p.Resources {
		delay, err := a.Locker.Extend(bounded, self.lockID, self.run, name)
		var other *party.OtherRunError
		if errors.As(err, &other) {
			if current, failed := currentrun.IsCurrent(bounded, caller); current {
				delay, err = a.Locker.Extend(bounded, self.lockID, other.Other, name)
			} else {
				err = errors.Join(err, failed)
			}
		}
		errs = append(errs, err)
		soonest = min(soonest, delay)
	}
	err := errors.Join(errs...)
	if err == nil {
		return soonest, nil
	}
	if ctx.Err() == nil {
		activity.GetLogger(ctx).Warn("lockstep: a hold was not extended", "lockId", self.lockID, "error", err)
	}
	return keepRetry, err
}

// releaseIfEnded releases the holds if no run of the workflow is open.
func (a *Activities) releaseIfEnded(ctx context.Context, info activity.Info, self identity, resources []string) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	now, err := currentrun.Describe(bounded, activity.GetClient(ctx).WorkflowService(), info.Namespace, info.WorkflowExecution.ID, "")
	if err != nil || !currentrun.HasEnded(now.GetStatus()) {
		return
	}
	holds := lockcore.Filter{LockID: self.lockID, Contended: true, States: []lockcore.State{lockcore.StateHolding}}
	for s, err := range a.Locker.Status(bounded, holds) {
		if errors.Is(err, party.ErrDamaged) && !slices.Contains(resources, s.Resource) {
			continue
		}
		if err == nil && s.Run == self.run && slices.Contains(resources, s.Resource) {
			err = a.Locker.Release(bounded, party.Release{
				LockID: self.lockID, Run: self.run, Resources: []string{s.Resource}, FirstFence: s.FirstFence,
				Reason: "released by its keep-alive, since its workflow run is closed",
			})
		}
		if err != nil {
			activity.GetLogger(ctx).Warn("lockstep: a lock of a closed workflow was not released, and remains until it expires",
				"resource", s.Resource, "error", err)
		}
	}
}
