package runstate

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// A kept hold lasts for at least 15 minutes from the entry of the latest step that used it. So a lock that was used within the last five
// minutes cannot have expired, and a commit does not ask about it: that adds no event to the history, and leaves no moment at which a signal
// could be lost. See wire.VerifyAfter.

// verifyAged asks about those of the resources whose latest use is older than wire.VerifyAfter, until none is left: an answer may arrive long
// after its question.
func (s *State) verifyAged(ctx workflow.Context, held func() uses) error {
	for {
		old := slices.DeleteFunc(held(), func(u use) bool { return workflow.Now(ctx).Sub(s.usedAt(u)) <= wire.VerifyAfter() })
		if len(old) == 0 {
			return nil
		}
		if err := s.verify(ctx, old); err != nil {
			return err
		}
	}
}

// usedAt returns the time of the latest use of a resource by any open scope.
func (s *State) usedAt(u use) time.Time {
	for _, o := range s.open {
		if i, found := o.uses.find(u.Resource); found && o.uses[i].at.After(u.at) {
			u.at = o.uses[i].at
		}
	}
	return u.at
}

// verify asks the database whether the run still holds, and has held without a gap, what its steps used.
func (s *State) verify(ctx workflow.Context, used uses) error {
	if len(used) == 0 {
		return nil
	}
	asked := workflow.Now(ctx)
	var all []own
	split(used, use.size, func(piece []use, size int) {
		p := wire.VerifyParams{Run: runID(s.base), Inherits: s.wasReset, Started: s.started, Collection: s.collectionID()}
		for _, u := range piece {
			p.Used = append(p.Used, u.Use)
		}
		all = append(all, own{name: wire.ActivityVerify, summary: "verify " + strings.Join(uses(piece).names(), ", "), params: p, size: size})
	})
	err := s.awaitAll(ctx, all)
	s.noteLoss(err)
	if lock := wire.LockError(err); lock != nil {
		return wire.NewWaitError(lock, false)
	}
	if err != nil {
		return err
	}
	for _, o := range s.open {
		for i := range o.uses {
			if u := &o.uses[i]; used.has(u.Resource) && u.at.Before(asked) && u.Schedule > 0 {
				u.at = asked
			}
		}
	}
	return nil
}
