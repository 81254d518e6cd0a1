package ui

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

// alarms is what the home page reports before all else: what should not last.
type alarms struct {
	// Deadlocks are described by their waits, and Orphans by their number and the first of them. Deadlocks and Forgotten have the first
	// few, and More counts the others.
	Deadlocks []string
	Orphans   string
	// Stuck holders keep others waiting until a person does something, and Forgotten waiters wait in vain.
	Stuck     []*inspect.Node
	Forgotten []inspect.Forgotten
	// Unknown has the reasons for which some of this is not known.
	Unknown []string
	More    int
}

// maxAlarms is the number of deadlocks, and of forgotten waiters, that the home page lists.
const maxAlarms = 5

// moment bounds the time for which the home page waits for alarms. The next view shows those that are late.
const moment = 300 * time.Millisecond

// alarmsIn returns the alarms of a listing. It waits only for a moment: a page that looks for a problem must not be late because of it.
func (s *server) alarmsIn(ctx context.Context, resources []inspect.Resource) *alarms {
	a := &alarms{}
	a.Forgotten = firstOf(s.Forgotten(resources), &a.More)
	deadline := time.Now().Add(moment)
	deadlocks, err, _ := s.deadlocks.soon(ctx, deadline)
	a.fails("deadlocks", err)
	for _, d := range firstOf(deadlocks, &a.More) {
		a.Deadlocks = append(a.Deadlocks, s.DeadlockText(d))
	}
	if s.Temporal.Service == nil {
		return a
	}
	orphans, err, _ := s.orphans.soon(ctx, deadline)
	a.fails("orphans", err)
	if len(orphans) > 0 {
		a.Orphans = s.OrphansText(orphans)
	}
	a.Stuck, err, _ = s.stuck.soon(ctx, deadline)
	a.fails("stuck workflows", err)
	return a
}

// firstOf returns the first alarms of a kind, and adds the number of the others to more.
func firstOf[T any](all []T, more *int) []T {
	n := min(len(all), maxAlarms)
	*more += len(all) - n
	return all[:n]
}

func (a *alarms) fails(about string, err error) {
	if err != nil {
		a.Unknown = append(a.Unknown, about+": "+err.Error())
	}
}

// readStuck asks Temporal about the root blockers.
func (s *server) readStuck(ctx context.Context) ([]*inspect.Node, error) {
	l, _, err := s.list.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Stuck(ctx, l.all)
}
