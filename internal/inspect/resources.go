package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Resource is what stands on one resource.
type Resource struct {
	Name string `json:"resource"`
	// Holders are those who hold it, whom it was granted, and who drain; Waiters its queue.
	Holders []Entry `json:"holders,omitempty"`
	Waiters []Entry `json:"waiters,omitempty"`
	// LongestWait is that of the waiter that has waited longest.
	LongestWait time.Duration `json:"longestWait,omitempty"`
}

// Entry is a party on a resource.
type Entry struct {
	Party Party `json:"party"`
	// For is how long it has held, or waited.
	For time.Duration `json:"for"`
	lockcore.Status
}

// Resources lists what stands on the resources that a filter selects, the hottest first: the most
// waiters, then the longest wait, then by name.
func Resources(ctx context.Context, l *lockcore.Locker, f lockcore.Filter) ([]Resource, error) {
	var all []Resource
	for s, err := range l.Status(ctx, f) {
		if err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].Name != s.Resource {
			all = append(all, Resource{Name: s.Resource})
		}
		r := &all[len(all)-1]
		e := Entry{Party: PartyOf(&s), Status: s}
		if s.State != lockcore.StateWaiting {
			e.For = sinceOf(&s)
			r.Holders = append(r.Holders, e)
			continue
		}
		e.For = s.Silent
		r.Waiters = append(r.Waiters, e)
		r.LongestWait = max(r.LongestWait, e.For)
	}
	slices.SortStableFunc(all, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// sinceOf is how long an entry stands, by this machine's clock: a moment for people, never less
// than nothing.
func sinceOf(s *lockcore.Status) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, time.Since(s.Since))
}
