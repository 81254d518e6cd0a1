package lockactivities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// It has no result.
func (a *Activities) Release(ctx context.Context, p wire.ReleaseParams) (wire.ReleaseResult, error) {
	caller, replaced, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	if replaced && p.Committed {
		activity.GetLogger(ctx).Error("lockstep: a saga committed although the collection with its locks was dropped or replaced",
			"resources", p.Resources, "collection", p.Collection)
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	err = currentrun.Release(ctx, a.Locker, activity.GetLogger(ctx), caller, p, "", func() (bool, error) { return currentrun.IsCurrent(ctx, caller) })
	return wire.ReleaseResult{}, wire.Failure(err)
}
