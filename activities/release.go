package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Release ends what the lock ID holds and asks for on the resources, up to the schedule number. Releasing what is not held is not
// an error. With Used it verifies instead, by a majority write to each resource, that the workflow holds what it used: it renews
// these holds, releases nothing, and fails with lockstep.Lost if something is lost.
//
// It may be run again after an unknown outcome, with the same input. In the SDK's test environment, in which mocked steps take no
// locks, a hold is lost only if there is evidence.
func (a *Activities) Release(ctx context.Context, p ReleaseParams) (ReleaseResult, error) {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return ReleaseResult{}, err
	}
	who := partyOf(p.LockID, p.Step, caller)
	ofWorkflow := who.run != "" && p.Step == ""
	if err := checkUsed(p, ofWorkflow); err != nil {
		return ReleaseResult{}, wire.Failure(err)
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return ReleaseResult{}, wire.Failure(err)
		}
	}
	if len(p.Used) > 0 {
		return ReleaseResult{}, wire.Failure(a.verify(ctx, p, caller))
	}
	_, err = currentrun.Release(ctx, a.Locker, party.Release{LockID: who.lockID, Run: who.run, Order: party.LastAttempt(p.Schedule)}, p.Resources)
	if err == nil && ofWorkflow && (p.Inherits || p.All) {
		err = currentrun.ReleaseInherited(ctx, a.Locker, caller, p.Resources, p.All, func() (bool, error) { return currentrun.IsCurrent(ctx, caller) })
	}
	return ReleaseResult{}, wire.Failure(err)
}

// checkUsed refuses to verify in the call that releases: the workflow must have recorded that nothing was lost before it releases.
func checkUsed(p ReleaseParams, ofWorkflow bool) error {
	var bound string
	switch {
	case len(p.Used) == 0:
		return nil
	case len(p.Resources) > 0 || p.All:
		bound = "none with resources or all: verify in one call, release in the next"
	case !ofWorkflow:
		bound = "none with another lock ID or a step: only what the workflow holds is verified"
	default:
		return nil
	}
	return &lockcore.InvalidError{Field: "used", Value: fmt.Sprintf("%q", p.Used[0].Resource), Bound: bound}
}

// verify makes sure that the caller's workflow holds what it used.
func (a *Activities) verify(ctx context.Context, p ReleaseParams, caller wire.Run) error {
	v := party.Verify{LockID: caller.LockID(), Run: caller.RunID, Inherits: p.Inherits || !currentrun.Connects(activity.GetClient(ctx))}
	if p.Before != "" {
		before, err := currentrun.RunsBefore(ctx, caller)
		if err != nil {
			return err
		}
		v.Before = append(before, p.Before)
	}
	for _, u := range p.Used {
		v.Uses = append(v.Uses, party.Use{Resource: u.Resource, By: party.LastAttempt(u.Schedule)})
	}
	err := currentrun.Verify(ctx, a.Locker, caller, v)
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost", "lockId", v.LockID, "error", err)
	}
	return err
}
