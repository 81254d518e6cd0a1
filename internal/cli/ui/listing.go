package ui

import (
	"context"
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

func (s *server) readResources(ctx context.Context) (l listing, err error) {
	if l.all, err = s.Resources(ctx, lockcore.Filter{}); err != nil {
		return l, err
	}
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
