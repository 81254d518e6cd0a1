package inspect

import (
	"context"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Deadlocks lists the deadlocks that stand. The queues are not read in one moment, so a circle
// counts if it is found twice.
func (s *Site) Deadlocks(ctx context.Context) ([]party.Deadlock, error) {
	found, err := s.Locker.Deadlocks(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	again, err := s.Locker.Deadlocks(ctx)
	return slices.DeleteFunc(found, func(d party.Deadlock) bool {
		return !slices.ContainsFunc(again, func(other party.Deadlock) bool { return slices.Equal(d.Waits, other.Waits) })
	}), err
}

// DeadlockText says who waits for whom, by names for people, and who gives up.
func (s *Site) DeadlockText(d party.Deadlock) string {
	d.Waits = slices.Clone(d.Waits)
	for i := range d.Waits {
		w := &d.Waits[i]
		w.Owner, w.For = plain(s.OwnerName(w.Owner)), plain(s.OwnerName(w.For))
		w.Resource = plain(w.Resource)
	}
	return d.String() + "; " + d.Waits[d.Victim].Owner + " gives up"
}
