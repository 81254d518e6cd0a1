package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
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
		return ReleaseResult{}, protocol.Failure(err)
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, protocol.CoreLeases(p.Leases)...); err != nil {
			return ReleaseResult{}, protocol.Failure(err)
		}
	}
	if len(p.Used) > 0 {
		return ReleaseResult{}, protocol.Failure(a.verify(ctx, p, caller))
	}
	_, err = openrun.Release(ctx, a.Locker, party.Release{LockID: who.lockID, Run: who.run, Order: party.LastAttempt(p.Schedule)}, p.Resources)
	if err == nil && ofWorkflow && (p.Inherits || p.All) {
		err = openrun.ReleaseInherited(ctx, a.Locker, caller, p.Resources, p.All, func() (bool, error) { return openrun.IsCurrent(ctx, caller) })
	}
	return ReleaseResult{}, protocol.Failure(err)
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
func (a *Activities) verify(ctx context.Context, p ReleaseParams, caller protocol.Run) error {
	v := party.Verify{LockID: caller.LockID(), Run: caller.RunID, Inherits: p.Inherits || !openrun.Connects(activity.GetClient(ctx))}
	if p.Before != "" {
		before, err := openrun.RunsBefore(ctx, caller)
		if err != nil {
			return err
		}
		v.Before = append(before, p.Before)
	}
	for _, u := range p.Used {
		v.Uses = append(v.Uses, party.Use{Resource: u.Resource, By: party.LastAttempt(u.Schedule)})
	}
	err := openrun.Verify(ctx, a.Locker, caller, v)
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost", "lockId", v.LockID, "error", err)
	}
	return err
}
