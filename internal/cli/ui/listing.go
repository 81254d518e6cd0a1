package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// listing has all resources, and the types of the workflows that hold them, by run, as far as they are known.
type listing struct {
	all   []inspect.Resource
	types map[string]string
}

// readResources lists all resources, and records the holds and waits that have ended.
func (s *server) readResources(ctx context.Context) (l listing, err error) {
	began := time.Now()
	if l.all, err = s.Resources(ctx, lockcore.Filter{}); err != nil {
		return l, err
	}
	s.seen.compare(l.all, began, time.Now())
	l.types = s.typesOf(ctx, l.all[:min(len(l.all), maxResources)], s.list.last.types)
	return l, nil
}

const (
	// maxTyped is the number of workflow runs that one listing asks Temporal about. The next listing asks about others.
	maxTyped = 20
	// typesTimeout bounds these questions, because the list is shown without the types too.
	typesTimeout = 300 * time.Millisecond
)

// typesOf returns the types of the workflows that hold resources, by run. A run keeps its type, so it asks Temporal only
// about the runs that are not in known.
func (s *server) typesOf(ctx context.Context, resources []inspect.Resource, known map[string]string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, typesTimeout)
	defer cancel()
	types, asked := map[string]string{}, 0
	for i := range resources {
		for _, h := range resources[i].Holders {
			if s.Temporal.Service == nil || h.Party.Workflow == "" || h.Party.Namespace != s.Temporal.NamespaceID {
				continue
			}
			if name, found := known[h.Run]; found {
				types[h.Run] = name
				continue
			}
			if _, found := types[h.Run]; found || asked == maxTyped {
				continue
			}
			asked++
			d, err := s.Describe(ctx, h.Party.Workflow, h.Run)
			if err != nil {
				asked = maxTyped
				continue
			}
			types[h.Run] = d.Type // empty if Temporal does not know the run
		}
	}
	return types
}

// maxEnded bounds the ends that are remembered, of all resources together.
const maxEnded = 5000

// history has the holds and waits that ended between two listings.
type history struct {
	mu sync.Mutex
	// since and lastAt are the times of the first and the last listing.
	since, lastAt time.Time
	last          map[key]inspect.Entry
	ended         []ended
}

// key identifies a hold or a wait.
type key struct {
	resource, lockID, part string
	waits                  bool
	began                  time.Time
}

// ended is a hold or a wait that has ended.
type ended struct {
	inspect.Entry
	Waited bool
	// After and Before are the times of the last listing that had it, and of the first that had not.
	After, Before time.Time
}

// compare records the entries of the last listing that are missing in this one, which was read from began to done.
func (s *history) compare(all []inspect.Resource, began, done time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = began
	}
	current := map[key]inspect.Entry{}
	for i := range all {
		for _, e := range slices.Concat(all[i].Holders, all[i].Waiters) {
			// A claim becomes a hold; a hold that drains has ended before.
			if waits := e.State == lockcore.StateWaiting; waits || e.State == lockcore.StateHolding {
				current[key{e.Resource, e.LockID, e.Part, waits, e.Since}] = e
			}
		}
	}
	for k, e := range s.last {
		if _, found := current[k]; !found {
			s.ended = append(s.ended, ended{e, k.waits, s.lastAt, done})
		}
	}
	s.last, s.lastAt = current, began
	s.ended = slices.Delete(s.ended, 0, max(0, len(s.ended)-maxEnded))
}

// maxRecent is the number of ends that are shown of a resource.
const maxRecent = 20

// endedOn lists the ends on a resource, the latest first, and returns the time of the first listing.
func (s *history) endedOn(is func(resource string) bool) (found []ended, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.ended) {
		if is(e.Resource) && len(found) < maxRecent {
			found = append(found, e)
		}
	}
	return found, s.since
}

const (
	// listPause and checkPause are the times between two reads of the locks, and between two rounds of questions to both
	// servers.
	listPause  = 1500 * time.Millisecond
	checkPause = 5 * time.Second
	// readTimeout bounds a read.
	readTimeout = time.Minute
)

// cached shares the result of the last read among all viewers.
type cached[T any] struct {
	read func(ctx context.Context) (T, error)
	// minPause is the time between two reads. After a slow read, the next comes only after ten times its duration: all
	// viewers together keep the servers busy for a tenth of the time.
	minPause time.Duration

	mu       sync.Mutex
	last     T
	err      error
	at, next time.Time
}

// get returns the last result, which callers must not change, and the time of the read. Failures are shared too:
// otherwise each viewer would ask a database that does not answer.
func (s *cached[T]) get(ctx context.Context) (T, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if began.Before(s.next) {
		return s.last, s.at, s.err
	}
	// Other viewers wait for the result, so the read continues when this viewer disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	s.last, s.err = s.read(ctx)
	s.at = began
	pause := 10 * time.Since(began)
	if s.err != nil {
		pause = time.Since(began) // a read that timed out may succeed at once now
	}
	s.next = time.Now().Add(max(s.minPause, pause))
	return s.last, s.at, s.err
}
