package currentrun

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// releaseBatch is the most resources that are released at once.
const releaseBatch = 100

// Releaser is the part of a *party.Locker that Release and ReleaseInherited need.
type Releaser interface {
	ReleaseHeld(ctx context.Context, r party.Release) (held []string, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// Release is Releaser.ReleaseHeld for any number of resources.
func Release(ctx context.Context, locker Releaser, r party.Release, names []string) (held []string, err error) {
	for batch := range slices.Chunk(names, releaseBatch) {
		r.Resources = batch
		found, err := locker.ReleaseHeld(ctx, r)
		if err != nil {
			return nil, err
		}
		held = append(held, found...)
	}
	return held, nil
}

// ReleaseInherited releases what other runs of own's workflow still hold on the resources, or with all on any resource. It calls
// isLatest if there is something, and releases nothing if a later run than own may continue with it.
func ReleaseInherited(ctx context.Context, locker Releaser, own wire.Run, names []string, all bool, isLatest func() (bool, error)) error {
	byRun := map[string][]string{}
	for s, err := range locker.Status(ctx, lockcore.Filter{LockID: own.LockID(), Contended: true}) {
		switch {
		case err != nil:
			return err
		case s.Run == "" || s.Run == own.RunID || s.State == lockcore.StateDraining:
		case all || slices.Contains(names, s.Resource):
			byRun[s.Run] = append(byRun[s.Run], s.Resource)
		}
	}
	if len(byRun) == 0 {
		return nil
	}
	if latest, err := isLatest(); !latest {
		return err
	}
	for run, names := range byRun {
		slices.Sort(names)
		_, err := Release(ctx, locker, party.Release{
			LockID: own.LockID(), Run: run, Order: party.LastAttempt(math.MaxInt32), Reason: "released by a later run of its workflow",
		}, slices.Compact(names))
		if err != nil {
			return err
		}
	}
	return nil
}
