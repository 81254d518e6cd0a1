package currentrun

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// releaseBatch is the largest number of resources in one release.
const releaseBatch = 100

// Release ends the locks of a workflow, or of one of its steps, as workflow code has decided. own is the run that carries it out: it decided
// the release, was made by a reset of the run that did, or follows a run that handed over. mayInherit reports whether no run after own may
// continue with the locks of earlier runs; except, if not empty, is a run whose locks stay.
//
// If the saga has committed, Release logs the locks that it had lost without noticing.
func Release(
	ctx context.Context, locker Locker, logger log.Logger, own wire.Run, p wire.ReleaseParams, except string, mayInherit func() (bool, error),
) error {
	r := lockcore.Release{LockID: own.LockID(), Run: own.RunID, Order: lockcore.LastAttempt(p.Schedule)}
	switch {
	case p.Step != "":
		r.LockID = own.StepLockID(p.Step)
	case p.LockID != "" && p.LockID != r.LockID: // one of the caller's choice has no runs
		return release(ctx, locker, logger, lockcore.Release{LockID: p.LockID, Order: r.Order}, p.Resources, false)
	}
	if p.Handed { // the orders of own begin again at 1
		r.Run = p.Run
	}
	err := release(ctx, locker, logger, r, p.Resources, p.Committed)
	if err != nil || p.Handed {
		return err
	}
	if p.Run != "" && p.Run != own.RunID { // a reset has made own out of the run that decided this
		r.Run = p.Run
		names := p.Resources
		if p.Step == "" { // only what is there: a release of what is not would erase the evidence that it was lost
			held, err := inherited(ctx, locker, own, p)
			if err != nil {
				return err
			}
			names = held[p.Run]
		}
		if err := release(ctx, locker, logger, r, names, false); err != nil {
			return err
		}
	}
	if p.Step != "" || !p.Inherits && !p.All {
		return nil
	}
	held, err := inherited(ctx, locker, own, p)
	if delete(held, except); err != nil || len(held) == 0 {
		return err
	}
	if may, err := mayInherit(); !may {
		return err
	}
	r.Order, r.Reason = lockcore.LastAttempt(math.MaxInt32), "released by a later run of its workflow"
	for r.Run = range held {
		if err := release(ctx, locker, logger, r, held[r.Run], false); err != nil {
			return err
		}
	}
	return nil
}

// release calls Locker.Release, or ReleaseCommitted, for any number of resources.
func release(ctx context.Context, locker Locker, logger log.Logger, r lockcore.Release, names []string, committed bool) error {
	for batch := range slices.Chunk(names, releaseBatch) {
		r.Resources = batch
		if !committed {
			if err := locker.Release(ctx, r); err != nil {
				return err
			}
			continue
		}
		missed, err := locker.ReleaseCommitted(ctx, r)
		for i := range missed {
			logger.Error("lockstep: a saga committed although it had lost a lock: another party may have held it before the commit",
				"lockId", r.LockID, "run", r.Run, "resource", missed[i].Resource, "error", &missed[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inherited lists the resources of a release that other runs of own's workflow hold, by run.
func inherited(ctx context.Context, locker Locker, own wire.Run, p wire.ReleaseParams) (map[string][]string, error) {
	byRun := map[string][]string{}
	for s, err := range locker.Status(ctx, lockcore.Filter{LockID: own.LockID(), Contended: true}) { // in the order of the names
		known := byRun[s.Run]
		switch {
		case errors.Is(err, lockcore.ErrDamaged): // its locks are out of reach, those of other documents are not
		case err != nil:
			return nil, err
		case s.Run == "" || s.Run == own.RunID || s.State == lockcore.StateDraining || len(known) > 0 && known[len(known)-1] == s.Resource:
		case p.All || slices.Contains(p.Resources, s.Resource):
			byRun[s.Run] = append(known, s.Resource)
		}
	}
	return byRun, nil
}
