package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// IncompleteError reports documents that cannot be decoded, in which the answer may be. It matches lockcore.ErrDamaged.
type IncompleteError struct {
	// Resources are the names of the documents, for people.
	Resources []string
}

func (e *IncompleteError) Error() string {
	quoted := make([]string, len(e.Resources))
	for i, name := range e.Resources {
		quoted[i] = strconv.Quote(name)
	}
	return fmt.Sprintf("%s cannot be decoded, so the answer is not complete: %s; lockstep doctor has advice", table.Count(len(quoted), "document"), firstNames(quoted))
}

// Is makes errors.Is(err, lockcore.ErrDamaged) true.
func (*IncompleteError) Is(target error) bool { return target == lockcore.ErrDamaged }

// checkComplete returns an *IncompleteError if a document with more than plain holds cannot be decoded.
func (s *Site) checkComplete(ctx context.Context) error {
	var damaged []string
	for st, err := range s.Locker.Status(ctx, lockcore.Filter{Contended: true}) {
		switch {
		case errors.Is(err, lockcore.ErrDamaged):
			damaged = append(damaged, s.ResourceName(st.Resource))
		case err != nil:
			return err
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	slices.Sort(damaged) // an index lists them in another order
	return &IncompleteError{damaged}
}

// Deadlocks lists the current deadlocks. The queues are not all read at the same moment, so only a deadlock that is
// found twice counts. If documents cannot be decoded, it returns the deadlocks of the others and an *IncompleteError.
func (s *Site) Deadlocks(ctx context.Context) ([]lockcore.Deadlock, error) {
	found, err := s.Locker.Deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		again, err := s.Locker.Deadlocks(ctx)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(d lockcore.Deadlock) bool {
			return !slices.ContainsFunc(again, func(other lockcore.Deadlock) bool { return slices.Equal(d.Waits, other.Waits) })
		})
	}
	return found, s.checkComplete(ctx)
}

// DeadlockText describes the waits of a deadlock, and names the victim.
func (s *Site) DeadlockText(d lockcore.Deadlock) string {
	d.Waits = slices.Clone(d.Waits)
	for i := range d.Waits {
		w := &d.Waits[i]
		w.Owner, w.For = table.Plain(s.OwnerName(w.Owner)), table.Plain(s.OwnerName(w.For))
		w.Resource = table.Plain(s.ResourceName(w.Resource))
	}
	return d.String() + "; " + d.Waits[d.Victim].Owner + " gives up"
}

// Orphan is a hold or a wait that a janitor would end now.
type Orphan struct {
	Party    Party  `json:"party"`
	Resource string `json:"resource"`
	// Held is set for a hold, not for a wait.
	Held   bool   `json:"held"`
	Reason string `json:"reason"`
}

// questionsPerSecond paces the questions of a single round.
const questionsPerSecond = 200

// Orphans plays a janitor's round without changing anything, and returns what a real round would end. If Temporal did
// not answer all questions, or documents cannot be decoded, it returns the orphans that it found and an error.
func (s *Site) Orphans(ctx context.Context, logger sdklog.Logger) ([]Orphan, error) {
	dry := &dryLocker{Steps: s.Locker, site: s}
	j := janitor.New(janitor.Options{
		Locker: dry, Temporal: s.Temporal.Service, Namespace: s.Temporal.Namespace, NamespaceID: s.Temporal.NamespaceID,
		RequestsPerSecond: questionsPerSecond, Logger: withoutInfo{logger},
	})
	result, err := j.Round(ctx)
	if err != nil {
		return nil, err
	}
	if result.Failed > 0 {
		err = fmt.Errorf("temporal did not answer %d of %s: what these runs have left is not known", result.Failed, table.Count(result.Asked, "question"))
	}
	slices.SortFunc(dry.found, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Party.Name, b.Party.Name))
	})
	return dry.found, errors.Join(err, s.checkComplete(ctx))
}

// dryLocker reads locks, and records the janitor's changes instead of making them.
type dryLocker struct {
	*lockcore.Steps
	site  *Site
	mu    sync.Mutex
	found []Orphan
}

func (l *dryLocker) add(lockID, run, resource string, held bool, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := l.site.PartyOf(&lockcore.Status{Holder: lockcore.Holder{LockID: lockID, Run: run}})
	l.found = append(l.found, Orphan{owner, resource, held, reason})
}

// End records a hold.
func (l *dryLocker) End(_ context.Context, r lockcore.Release) (bool, error) {
	for _, resource := range r.Resources {
		l.add(r.LockID, r.Run, resource, true, r.Reason)
	}
	return true, nil
}

// LeaveQueue records a wait.
func (l *dryLocker) LeaveQueue(_ context.Context, lease lockcore.Lease) (bool, error) {
	l.add(lease.LockID, lease.Run, lease.Resource, false, "its run is closed, or its step has ended")
	return true, nil
}

// Extend does nothing.
func (*dryLocker) Extend(context.Context, string, string, string) (time.Duration, error) {
	return 0, nil
}

// Refresh does nothing.
func (*dryLocker) Refresh(context.Context, lockcore.Lease) error { return nil }

// WatchFor does nothing.
func (*dryLocker) WatchFor(string) {}

// withoutInfo drops the janitor's reports of releases, because nothing is released.
type withoutInfo struct{ sdklog.Logger }

// Info logs nothing.
func (withoutInfo) Info(string, ...any) {}
