package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// It has no result.
func (a *lockActivities) Release(ctx context.Context, p wire.ReleaseParams) (wire.ReleaseResult, error) {
	run, replaced, err := a.run(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	if replaced && p.Committed {
		activity.GetLogger(ctx).Error("lockstep: a saga committed although the collection with its locks was dropped or replaced",
			"resources", p.Resources, "collection", p.Collection)
	}
	if len(p.Leases) > 0 {
		if err := a.locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	err = currentrun.Release(ctx, a.locker, activity.GetLogger(ctx), run, p, "", func() (bool, error) { return currentrun.IsCurrent(ctx, run) })
	return wire.ReleaseResult{}, wire.Failure(err)
}
