package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// leastPause is the least time between two listings. After a listing that took long, the next comes
// only after ten times that: the viewers together keep the database busy for a tenth of the time.
const leastPause = 1500 * time.Millisecond

// listing is the last one, which all viewers share.
type listing struct {
	mu   sync.Mutex
	all  []inspect.Resource
	at   time.Time
	next time.Time
}

// resources lists what stands on all resources, and when that was read. Callers do not write to it.
func (s *server) resources(ctx context.Context) ([]inspect.Resource, time.Time, error) {
	l := &s.list
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	if began.Before(l.next) {
		return l.all, l.at, nil
	}
	all, err := s.Resources(ctx, lockcore.Filter{})
	if err != nil {
		return nil, began, err
	}
	l.all, l.at = all, began
	l.next = time.Now().Add(max(leastPause, 10*time.Since(began)))
	s.seen.compare(all, began)
	return all, began, nil
}

// mostSeen is how many ends are remembered, of all resources together.
const mostSeen = 5000

// seen is what the listings saw end, since the first.
type seen struct {
	mu    sync.Mutex
	since time.Time
	last  map[key]inspect.Entry
	ended []ended
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
	// Before is when it was gone.
	Before time.Time
}

func (s *seen) compare(all []inspect.Resource, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = at
	}
	stand := map[key]inspect.Entry{}
	for i := range all {
		for _, e := range slices.Concat(all[i].Holders, all[i].Waiters) {
			waits := e.State == lockcore.StateWaiting
			stand[key{e.Resource, e.LockID, e.Part, waits, e.Since}] = e
		}
	}
	for k, e := range s.last {
		if _, stands := stand[k]; !stands {
			s.ended = append(s.ended, ended{e, k.waits, at})
		}
	}
	s.last = stand
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
