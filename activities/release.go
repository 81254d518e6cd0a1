package activities

import (
	"context"
	"errors"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Release ends what the lock ID holds and asks for on the resources, up to the schedule number. Releasing what is not held is no
// error. With Used it is how a saga commits: first it makes sure, by a majority write to each resource, that what was used is
// held. If something is lost it ends nothing, and fails with lockstep.Lost.
//
// It may be run again after an unknown outcome, with the same input: one that had begun to release is known by that for ten
// minutes, and does the rest. In the SDK's test environment, in which mocked steps take no locks, a hold is lost only if
// there is evidence.
func (a *Activities) Release(ctx context.Context, p ReleaseParams) (ReleaseResult, error) {
	caller, err := a.caller(ctx, p.LockID, p.Collection)
	if err != nil {
		return ReleaseResult{}, err
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, protocol.CoreLeases(p.Leases)...); err != nil {
			return ReleaseResult{}, protocol.Failure(err)
		}
	}
	who := partyOf(p.LockID, p.Step, caller)
	if who.run == "" || p.Step != "" {
		return ReleaseResult{}, protocol.Failure(a.releaseOther(ctx, who, p))
	}
	if err = a.commit(ctx, p, caller); err == nil && (p.Inherits || p.All) {
		err = openrun.ReleaseInherited(ctx, a.Locker, caller, p.Resources, p.All, func() (bool, error) { return openrun.IsCurrent(ctx, caller) })
	}
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost, and nothing was released", "lockId", who.lockID, "error", err)
	}
	return ReleaseResult{}, protocol.Failure(err)
}

// commit verifies and releases what the caller's own workflow holds.
func (a *Activities) commit(ctx context.Context, p ReleaseParams, caller protocol.Run) error {
	c := party.Commit{
		LockID: caller.LockID(), Run: caller.RunID, Resources: p.Resources, Order: party.LastAttempt(p.Schedule),
		Inherits: p.Inherits || !openrun.Connects(activity.GetClient(ctx)),
	}
	if p.Before != "" && len(p.Used) > 0 {
		before, err := openrun.RunsBefore(ctx, caller)
		if err != nil {
			return err
		}
		c.Before = append(before, p.Before)
	}
	for _, u := range p.Used {
		c.Uses = append(c.Uses, party.Use{Resource: u.Resource, By: party.LastAttempt(u.Schedule)})
	}
	return openrun.Commit(ctx, a.Locker, caller, c)
}

// releaseOther releases what a lock ID of the caller's choice holds, or that of a step. It is not verified before: what of it was
// lost is told afterwards.
func (a *Activities) releaseOther(ctx context.Context, who asker, p ReleaseParams) error {
	held, err := openrun.Release(ctx, a.Locker, party.Release{LockID: who.lockID, Run: who.run, Order: party.LastAttempt(p.Schedule)}, p.Resources)
	for _, u := range p.Used {
		if slices.Contains(p.Resources, u.Resource) && !slices.Contains(held, u.Resource) {
			err = errors.Join(err, &lockcore.LostError{
				Resource: u.Resource, LockID: who.lockID, Order: party.LastAttempt(u.Schedule), Reason: "it was not held any more when it was released",
			})
		}
	}
	return err
}
