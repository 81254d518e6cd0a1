package lockactivities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// It may be repeated with the same input after an unknown outcome.
func (a *Activities) Release(ctx context.Context, p wire.ReleaseParams) (wire.ReleaseResult, error) {
	caller, replaced, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	if replaced && p.Committed {
		activity.GetLogger(ctx).Error("lockstep: a saga committed although the collection with its locks was dropped or replaced",
			"resources", p.Resources, "collection", p.Collection)
	}
	self := identityOf(p.LockID, p.Step, caller)
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	release := party.Release{LockID: self.lockID, Run: self.run, Order: party.LastAttempt(p.Schedule)}
	ofBefore := p.Handed && self.run != ""
	if ofBefore { // the orders of this run begin again at 1
		release.Run = p.Run
	}
	if p.Committed && release.Run != "" {
		err = currentrun.ReleaseCommitted(ctx, a.Locker, activity.GetLogger(ctx), release, p.Resources)
	} else {
		err = currentrun.Release(ctx, a.Locker, release, p.Resources)
	}
	if ofBefore {
		return wire.ReleaseResult{}, wire.Failure(err)
	}
	if err == nil && self.run != "" && p.Run != "" && p.Run != self.run { // a reset has made the caller out of the run that decided this
		err = a.releaseOf(ctx, p, caller, release)
	}
	if err == nil && self.run != "" && p.Step == "" && (p.Inherits || p.All) {
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
