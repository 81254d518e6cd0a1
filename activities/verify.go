package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Verify verifies, by a majority write to each resource, that the workflow has held what it used without a gap. It renews these holds, releases
// nothing, and fails with lockstep.Lost if one is lost. It has no result.
//
// In the SDK's test environment, in which mocked steps take no locks, a hold counts as lost only if there is evidence.
func (a *lockActivities) Verify(ctx context.Context, p wire.VerifyParams) (wire.VerifyResult, error) {
	if len(p.Used) == 0 {
		return wire.VerifyResult{}, wire.Failure(&lockcore.InvalidError{Field: "len(used)", Value: "0", Bound: "1 or more"})
	}
	run, replaced, err := a.run(ctx, "", p.Collection)
	if err == nil && replaced {
		err = currentrun.Replaced("", p.Used[0].Resource, p.Collection)
	}
	if err != nil {
		return wire.VerifyResult{}, err
	}
	v := lockcore.Verify{LockID: run.LockID(), Run: run.RunID, Inherits: !currentrun.IsRealClient(activity.GetClient(ctx))}
	if p.Inherits || p.Run != "" && p.Run != run.RunID { // a reset has made the run
		v.Inherits, v.LostSince = true, wire.LostSince(p.Started)
	}
	for _, u := range p.Used {
		v.Uses = append(v.Uses, lockcore.Use{Resource: u.Resource, By: lockcore.LastAttempt(u.Schedule)})
	}
	err = currentrun.Verify(ctx, a.locker, run, v)
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost", "lockId", v.LockID, "error", err)
	}
	return wire.VerifyResult{}, wire.Failure(err)
}
