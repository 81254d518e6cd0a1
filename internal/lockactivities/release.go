package lockactivities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// With Used it verifies instead, by a majority write to each resource, that the workflow holds what it used: it renews these holds,
// releases nothing, and fails with lockstep.Lost if one is lost.
//
// It may be repeated with the same input after an unknown outcome. In the SDK's test environment, in which mocked steps take no locks, a
// hold counts as lost only if there is evidence.
func (a *Activities) Release(ctx context.Context, p wire.ReleaseParams) (wire.ReleaseResult, error) {
	caller, replaced, err := a.caller(ctx, p.LockID, p.Collection)
	if err == nil && replaced && len(p.Used) > 0 {
		err = currentrun.Replaced(p.LockID, p.Used[0].Resource, p.Collection)
	}
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	self := identityOf(p.LockID, p.Step, caller)
	ofWorkflow := self.run != "" && p.Step == ""
	if err := checkUsed(p, ofWorkflow); err != nil {
		return wire.ReleaseResult{}, wire.Failure(err)
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	if len(p.Used) > 0 {
		return wire.ReleaseResult{}, wire.Failure(a.verify(ctx, p, caller))
	}
	release := party.Release{LockID: self.lockID, Run: self.run, Order: party.LastAttempt(p.Schedule)}
	err = currentrun.Release(ctx, a.Locker, release, p.Resources)
	if err == nil && self.run != "" && p.Run != "" && p.Run != self.run { // a reset has made the caller out of the run that decided this
		err = a.releaseOf(ctx, p, caller, release)
	}
	if err == nil && ofWorkflow && (p.Inherits || p.All) {
		err = a.releaseInherited(ctx, p, caller)
	}
	return wire.ReleaseResult{}, wire.Failure(err)
}

// releaseOf carries out a release of the run that decided it. Of the workflow's holds it ends only what is there: a release of what is not
// would erase the evidence that it was lost.
func (a *Activities) releaseOf(ctx context.Context, p wire.ReleaseParams, caller wire.Run, release party.Release) error {
	names := p.Resources
	if p.Step == "" {
		held, err := currentrun.Inherited(ctx, a.Locker, caller, p.Resources, false)
		if err != nil {
			return err
		}
		names = held[p.Run]
	}
	release.Run = p.Run
	return currentrun.Release(ctx, a.Locker, release, names)
}

// checkUsed refuses to verify and release in one call: the workflow must have recorded that nothing was lost before it releases.
func checkUsed(p wire.ReleaseParams, ofWorkflow bool) error {
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

// verify returns an error unless the caller's workflow still holds what it used.
func (a *Activities) verify(ctx context.Context, p wire.ReleaseParams, caller wire.Run) error {
	v := party.Verify{LockID: caller.LockID(), Run: caller.RunID, Inherits: p.Inherits || !currentrun.IsRealClient(activity.GetClient(ctx))}
	if p.Before != "" {
		v.LostSince = time.Unix(0, 0) // all that the documents remember
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

// releaseInherited releases what earlier runs of the workflow still hold, unless a run after the caller may continue with it.
func (a *Activities) releaseInherited(ctx context.Context, p wire.ReleaseParams, caller wire.Run) error {
	held, err := currentrun.Inherited(ctx, a.Locker, caller, p.Resources, p.All)
	if err != nil || len(held) == 0 {
		return err
	}
	if current, err := currentrun.IsCurrent(ctx, caller); !current {
		return err
	}
	return currentrun.ReleaseInherited(ctx, a.Locker, caller, held)
}
