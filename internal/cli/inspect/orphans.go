package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Orphan is what a janitor would release or give up now.
type Orphan struct {
	Party    Party  `json:"party"`
	Resource string `json:"resource"`
	// Held says that it is a hold, and not a place in a queue. Reason is why it would end.
	Held   bool   `json:"held"`
	Reason string `json:"reason"`
}

// questionsPerSecond is how fast a round that changes nothing asks Temporal: it is done once.
const questionsPerSecond = 200

// Orphans does a janitor's round that changes nothing, and returns what a real one would end. If
// Temporal did not answer all questions it returns what it found, and an error.
func (s *Site) Orphans(ctx context.Context, logger sdklog.Logger) ([]Orphan, error) {
	t, idle := s.Temporal, &idleLocker{Locker: s.Locker, site: s}
	j, err := janitor.New(janitor.Options{Locker: idle, Temporal: t.Service, Namespace: t.Namespace, NamespaceID: t.NamespaceID, QuestionsPerSecond: questionsPerSecond, Logger: failures{logger}})
	if err != nil {
		return nil, err
	}
	result, err := j.Round(ctx)
	if err != nil {
		return nil, err
	}
	if result.Failed > 0 {
		err = fmt.Errorf("temporal did not answer %d of %d questions: what these runs have left is not known", result.Failed, result.Asked)
	}
	slices.SortFunc(idle.found, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Party.Name, b.Party.Name))
	})
	return idle.found, err
}

// idleLocker takes down what a janitor ends, and does nothing.
type idleLocker struct {
	*party.Locker
	mu    sync.Mutex
	found []Orphan
	site  *Site
}

func (l *idleLocker) add(lockID, run, resource string, held bool, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = append(l.found, Orphan{l.site.PartyOf(&lockcore.Status{Holder: lockcore.Holder{LockID: lockID, Run: run}}), resource, held, reason})
}

// failures logs no more than failures: nothing was released.
type failures struct{ sdklog.Logger }

// Info logs nothing.
func (failures) Info(string, ...any) {}

// Release takes a hold down.
func (l *idleLocker) Release(_ context.Context, r party.Release) error {
	for _, resource := range r.Resources {
		l.add(r.LockID, r.Run, resource, true, r.Reason)
	}
	return nil
}

// LeaveQueue takes places down.
func (l *idleLocker) LeaveQueue(_ context.Context, leases ...lockcore.Lease) error {
	for _, lease := range leases {
		l.add(lease.LockID, lease.Run, lease.Resource, false, "its run is closed, or its step has ended")
	}
	return nil
}

// Extend does nothing.
func (*idleLocker) Extend(context.Context, string, string, string, bool) (time.Duration, error) {
	return 0, nil
}

// KeepPosition does nothing.
func (*idleLocker) KeepPosition(context.Context, lockcore.Lease) error { return nil }

// WatchFor does nothing.
func (*idleLocker) WatchFor(string) {}
