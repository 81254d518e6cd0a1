package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// readResources lists what stands on all resources, and notes what has ended since.
func (s *server) readResources(ctx context.Context) ([]inspect.Resource, error) {
	began := time.Now()
	all, err := s.Resources(ctx, lockcore.Filter{})
	if err == nil {
		s.seen.compare(all, began, time.Now())
	}
	return all, err
}

// mostSeen is how many ends are remembered, of all resources together.
const mostSeen = 5000

// seen is what the listings saw end, since the first.
type seen struct {
	mu sync.Mutex
	// since is when the first listing began, and lastAt when the last did.
	since, lastAt time.Time
	last          map[key]inspect.Entry
	ended         []ended
}

// key names a hold or a wait.
type key struct {
	resource, lockID, part string
	waits                  bool
	began                  time.Time
}

// ended is a hold or a wait that the last listing did not find any more.
type ended struct {
	inspect.Entry
	Waited bool
	// After is the last look that found it, and Before the one that did not: it ended between the
	// two.
	After, Before time.Time
}

// compare takes in a listing that was read from began to done.
func (s *seen) compare(all []inspect.Resource, began, done time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = began
	}
	stand := map[key]inspect.Entry{}
	for i := range all {
		for _, e := range slices.Concat(all[i].Holders, all[i].Waiters) {
			// A claim goes over into a hold, and what drains has ended before.
			if waits := e.State == lockcore.StateWaiting; waits || e.State == lockcore.StateHolding {
				stand[key{e.Resource, e.LockID, e.Part, waits, e.Since}] = e
			}
		}
	}
	for k, e := range s.last {
		if _, stands := stand[k]; !stands {
			s.ended = append(s.ended, ended{e, k.waits, s.lastAt, done})
		}
	}
	s.last, s.lastAt = stand, began
	s.ended = slices.Delete(s.ended, 0, max(0, len(s.ended)-mostSeen))
}

// mostRecent is how many ends are shown of a resource.
const mostRecent = 20

// on lists what was seen to end on a resource, the latest first, and from when on that was looked at.
func (s *seen) on(is func(resource string) bool) (found []ended, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.ended) {
		if is(e.Resource) && len(found) < mostRecent {
			found = append(found, e)
		}
	}
	return found, s.since
}
