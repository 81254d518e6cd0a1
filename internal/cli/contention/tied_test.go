package contention

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// relock gives the spans of an owner at a resource another lock ID, and so the waits that name them.
func (s *scene) relock(resource, owner, id string) {
	for i := range s.spans {
		span := &s.spans[i]
		if span.attrs[telemetry.Resource] != resource {
			continue
		}
		all := []attrs{span.attrs}
		for j := range span.events {
			all = append(all, span.events[j].attrs)
		}
		for _, a := range all {
			for _, key := range []string{telemetry.LockID, telemetry.BlockedByID} {
				if a[key] == lockID(owner) {
					a[key] = id
				}
			}
		}
	}
}

func stepLockID(owner, step string) string {
	return wire.Run{Namespace: namespace, WorkflowID: owner}.StepLockID(step)
}

// waitsMeanwhile: W holds the door; meanwhile it waits for the book, which X holds; A waits for the door.
func waitsMeanwhile() *scene {
	s := &scene{}
	s.hold("book", "X", 1, 0, 1500, nil)
	s.hold("door", "W", 2, 0, 2000, nil)
	s.wait("book", "W", 3, 100, 1500, nil, heldBy("X", 1))
	s.wait("door", "A", 4, 500, 2000, nil, heldBy("W", 2))
	return s
}

// A step with a lock ID of its own ends, whatever another step of its workflow waits for.
func TestStepIsARootWhileAnotherStepOfItsWorkflowWaits(t *testing.T) {
	t.Parallel()
	for name, book := range map[string]string{"a step": stepLockID("W", "2/Read"), "the workflow": lockID("W")} {
		s := waitsMeanwhile()
		s.relock("door", "W", stepLockID("W", "1/Open"))
		s.relock("book", "W", book)
		r := s.report(t)
		require.Equal(t, []string{
			"W 1.5 in 1", "  A on door 1.5 of 1.5",
			"X 1.4 in 1", "  W on book 1.4 of 1.4",
		}, outline(r), name)
		require.Equal(t, "100 % of the waiting was for W, which held it 2.0 s", r.Resources[0].Why, name)
	}
}

// What a workflow keeps stands over all that its steps wait for. A step waits for the rest of its
// own locks, and plain Go is one thread of work, whatever its lock IDs look like.
func TestHoldIsTiedToWaits(t *testing.T) {
	t.Parallel()
	step := stepLockID("W", "1/Open")
	for name, ids := range map[string]struct{ door, book string }{
		"a workflow's, and a step's of it": {lockID("W"), step},
		"one step's":                       {step, step},
		"plain Go's, of one owner":         {"shop/billing/1", "shop/billing/2"},
	} {
		s := waitsMeanwhile()
		s.relock("door", "W", ids.door)
		s.relock("book", "W", ids.book)
		r := s.report(t)
		require.Equal(t, []string{
			"X 2.4 in 2", "  W on book 1.4 of 2.4", "    A on door 1.0 of 1.0",
			"W 0.5 in 1", "  A on door 0.5 of 0.5",
		}, outline(r), name)
		require.Contains(t, r.Resources[0].Why, "it waited itself 1.4 s for book", name)
	}
}

// W's second step waits for X, and X for W's first step: that one ends, and so there is no circle.
func TestWaitingForAnotherStepIsNoCircle(t *testing.T) {
	t.Parallel()
	circle := func() *scene {
		s := &scene{}
		s.hold("door", "W", 1, 0, 1200, nil)
		s.hold("book", "X", 2, 0, 2000, nil)
		s.wait("book", "W", 3, 200, 2000, nil, heldBy("X", 2))
		s.wait("door", "X", 4, 300, 1200, nil, heldBy("W", 1))
		return s
	}
	s := circle()
	s.relock("door", "W", stepLockID("W", "1/Open"))
	s.relock("book", "W", stepLockID("W", "2/Read"))
	require.Equal(t, []string{
		"W 1.8 in 2", "  X on door 0.9 of 1.8", "    W on book 0.9 of 0.9",
		"X 0.9 in 1", "  W on book 0.9 of 0.9",
	}, outline(s.report(t)))

	s = circle()
	s.relock("book", "W", stepLockID("W", "2/Read"))
	require.Equal(t, []string{"X 1.8 in 1", "  W on book 1.8 of 1.8", "W 0.9 in 1", "  X on door 0.9 of 0.9"}, outline(s.report(t)),
		"what the workflow keeps waits for its steps")
}

// What a step's hold spent its time on is not what another step waited for.
func TestWhatAStepsHoldWasSpentOn(t *testing.T) {
	t.Parallel()
	s := audits(40_000, 2000)
	for i := range 3 {
		audit := fmt.Sprint("audit", i)
		s.relock("r", audit, stepLockID(audit, "1/Total"))
		s.wait("other", audit, 0, 60_000*i+2000, 60_000*i+40_000, nil)
	}
	_, text := concluded(t, s)
	require.Contains(t, text["long-holds"], "For 76.0 s of their 80.0 s no step ran and no lock was waited for")

	s = &scene{}
	for i, owner := range []string{"a", "b", "c", "d"} {
		from := i * 1000
		if i > 0 {
			s.wait("r", owner, 10+i, from-900, from, nil)
		}
		s.hold("r", owner, 10+i, from, from+990, nil)
		s.step("r", owner, "1/Debit", 10+i, from, from+90, telemetry.OutcomeGranted)
		s.wait("other", owner, 20+i, from+100, from+900, nil)
		s.relock("r", owner, stepLockID(owner, "1/Debit"))
	}
	require.Equal(t, "those who held it stood between steps: their steps ran 270 ms of the 3.0 s that they kept others waiting",
		s.report(t).Resources[1].Why)
}
