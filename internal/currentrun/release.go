package currentrun

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// releaseBatch is the largest number of resources in one release.
const releaseBatch = 100

// Releaser is the part of a *party.Locker that Release and ReleaseInherited need.
type Releaser interface {
	ReleaseHeld(ctx context.Context, r party.Release) (held []string, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// Release calls Releaser.ReleaseHeld for any number of resources.
func Release(ctx context.Context, locker Releaser, r party.Release, names []string) error {
	for batch := range slices.Chunk(names, releaseBatch) {
		r.Resources = batch
		if _, err := locker.ReleaseHeld(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Inherited lists the resources that other runs of own's workflow hold, by run: those among names, or all of them if all is set.
func Inherited(ctx context.Context, locker Releaser, own wire.Run, names []string, all bool) (map[string][]string, error) {
	byRun := map[string][]string{}
	for s, err := range locker.Status(ctx, lockcore.Filter{LockID: own.LockID(), Contended: true}) {
		switch {
		case err != nil:
			return nil, err
		case s.Run == "" || s.Run == own.RunID || s.State == lockcore.StateDraining:
		case all || slices.Contains(names, s.Resource):
			byRun[s.Run] = append(byRun[s.Run], s.Resource)
		}
	}
	return byRun, nil
}

// ReleaseInherited releases what [Inherited] has listed. Call it only if no run after own may continue with these locks.
func ReleaseInherited(ctx context.Context, locker Releaser, own wire.Run, byRun map[string][]string) error {
	for run, names := range byRun {
		slices.Sort(names)
		err := Release(ctx, locker, party.Release{
			LockID: own.LockID(), Run: run, Order: party.LastAttempt(math.MaxInt32), Reason: "released by a later run of its workflow",
		}, slices.Compact(names))
		if err != nil {
			return err
		}
	}
	return nil
}
