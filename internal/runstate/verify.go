package runstate

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// verifyAged asks about those of the scopes' resources that are not known to have been held within the last wire.VerifyAfter, until none is left:
// an answer may arrive long after its question, and other coroutines may open, close and lose locks in between. values is the context whose values
// the activities have.
func (s *State) verifyAged(ctx, values workflow.Context, scopes func() []*Scope) error {
	for {
		var old uses
		for _, c := range scopes() {
			if c.lost != nil {
				return c.lost
			}
			for _, u := range c.uses.held() {
				if workflow.Now(ctx).Sub(u.at) > wire.VerifyAfter() {
					old.add(u)
				}
			}
		}
		if len(old) == 0 {
			return nil
		}
		if err := s.verify(ctx, values, old); err != nil {
			return err
		}
	}
}

// verify asks the database whether the run still holds, and has held without a gap, what its steps used.
func (s *State) verify(ctx, values workflow.Context, used uses) error {
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
		all = append(all, own{
			name: wire.ActivityVerify, summary: "verify " + strings.Join(uses(piece).names(), ", "), params: p, size: size, values: values,
		})
	})
	err := s.awaitAll(ctx, all)
	s.noteLoss(err)
	if lock := wire.LockError(err); lock != nil {
		return wire.NewWaitError(lock, false)
	}
	if err != nil {
		return err
	}
	for _, u := range used {
		s.noteHeld(u.Resource, u.Schedule, asked)
	}
	return nil
}

// noteHeld records that a resource was held from the step with a schedule number until a time.
func (s *State) noteHeld(resource string, since uint32, until time.Time) {
	for _, o := range s.open {
		if i, found := o.uses.find(resource); found && o.uses[i].Schedule >= since && until.After(o.uses[i].at) {
			o.uses[i].at = until
		}
	}
}
