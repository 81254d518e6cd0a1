package contention

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func TestSharedHoldsBlockOnlyWhatTheyMust(t *testing.T) {
	t.Parallel()
	shared := attrs{telemetry.Mode: "shared"}
	s := &scene{}
	s.hold("r", "reader1", 1, 0, 1000, shared)
	s.hold("r", "reader2", 2, 0, 2000, shared)
	s.wait("r", "writer", 3, 500, 2000, nil, heldBy("reader2", 2))
	s.hold("r", "writer", 3, 2000, 3000, nil)
	s.wait("r", "late", 4, 1500, 3000, shared, heldBy("writer", 3))
	s.hold("r", "late", 4, 3000, 3500, shared)
	s.wait("r", "alone", 5, 3100, 3400, shared)
	r := s.report(t)
	require.Equal(t, []string{"reader1", "reader2"}, owners(r.Waits[0].Blockers))
	require.Equal(t, []string{"reader2", "writer"}, owners(r.Waits[1].Blockers), "reader2 was in the way of the writer before it")
	require.InDelta(t, 0, r.Waits[1].Unexplained, 1e-9)
	require.Empty(t, r.Waits[2].Blockers, "a shared hold is in no reader's way")
	require.InDelta(t, 0.3, r.Waits[2].Unexplained, 1e-9)
}

func TestSemaphoreIsBlockedBySharedHolds(t *testing.T) {
	t.Parallel()
	shared, limited := attrs{telemetry.Mode: "shared"}, attrs{telemetry.Mode: "shared", telemetry.Limit: 2}
	s := &scene{}
	s.hold("pool", "one", 1, 0, 1000, shared)
	s.hold("pool", "two", 2, 0, 2000, shared)
	s.wait("pool", "three", 3, 500, 1000, limited, heldBy("one", 1))
	s.hold("pool", "three", 3, 1000, 2000, shared)
	r := s.report(t)
	require.Equal(t, []string{"one", "two"}, owners(r.Waits[0].Blockers))
	require.True(t, r.Waits[0].Blockers[0].Last)
	require.False(t, r.Waits[0].Blockers[1].Last)
}

// A hold that was released for a dead worker still keeps others out, until its part's promise ends or somebody is let in.
func TestWhatDrainsIsInTheWay(t *testing.T) {
	t.Parallel()
	s := &scene{}
	a := s.hold("r", "A", 1, 0, 1000, attrs{telemetry.Outcome: telemetry.OutcomeOrphaned})
	a.events = append(a.events, sceneEvent{telemetry.EventDrained, 3000, nil})
	s.wait("r", "B", 5, 500, 2500, nil, heldBy("A", 2)) // a part that drains may have a later fence than its hold
	s.hold("r", "B", 5, 2500, 4000, nil)
	s.wait("r", "C", 6, 600, 4000, nil, heldBy("B", 5))
	for _, file := range [][]byte{s.otlp(t, 5), s.jaeger(t)} {
		r := reportOf(t, file, Options{})
		b, c := r.Waits[0], r.Waits[1]
		require.Equal(t, []string{"A"}, owners(b.Blockers))
		require.True(t, b.Blockers[0].Named && b.Blockers[0].Last)
		require.InDelta(t, 2.0, b.Blockers[0].To, 1e-9)
		require.InDelta(t, 0, b.Unexplained, 1e-9)
		require.Equal(t, []string{"A", "B"}, owners(c.Blockers))
		require.InDelta(t, 1.9, c.Blockers[0].To, 1e-9, "no longer than until B held")
		require.Equal(t, begin.Add(3*time.Second).UTC(), r.Holds[0].DrainedUntil)
	}
}

// The limit that a request asked with says so too, where its span names nobody.
func TestALimitTellsThatSharedHoldsWereInTheWay(t *testing.T) {
	t.Parallel()
	shared, limited := attrs{telemetry.Mode: "shared"}, attrs{telemetry.Mode: "shared", telemetry.Limit: 2}
	s := &scene{}
	s.hold("pool", "one", 1, 0, 1000, shared)
	s.hold("pool", "two", 2, 0, 2000, shared)
	s.wait("pool", "three", 3, 500, 1000, limited)
	require.Equal(t, []string{"one", "two"}, owners(s.report(t).Waits[0].Blockers))
}

func owners(of []Blocker) []string {
	names := []string{}
	for _, b := range of {
		names = append(names, b.Owner)
	}
	return names
}

func TestUpgradeIsNotBlockedByItself(t *testing.T) {
	t.Parallel()
	shared := attrs{telemetry.Mode: "shared"}
	s := &scene{}
	s.hold("r", "A", 1, 0, 3000, shared)
	s.hold("r", "B", 2, 0, 2000, shared)
	s.wait("r", "A", 3, 1000, 2000, nil)
	r := s.report(t)
	require.Equal(t, []string{"B"}, owners(r.Waits[0].Blockers))
	require.Equal(t, "A", r.Holds[r.Waits[0].Hold].Owner, "the hold that was upgraded")
}

func TestHandOversAreToldApart(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, nil)
	s.wait("r", "B", 2, 500, 1000, nil, heldBy("A", 1))
	s.hold("r", "B", 2, 1600, 2000, nil)                                // its worker took 0.6 s to take it
	s.wait("r", "C", 3, 900, 2000, nil, heldBy("A", 1), heldBy("B", 0)) // B had no fence yet
	s.hold("r", "C", 3, 2000, 2100, nil)
	r := s.report(t)
	c := r.Waits[1]
	require.Equal(t, []string{"A", "B"}, owners(c.Blockers))
	require.True(t, c.Blockers[1].Named)
	require.Equal(t, int64(2), c.Blockers[1].Fence)
	require.InDelta(t, 0.6, c.Unexplained, 1e-9)
	require.InDelta(t, 0.6, c.HandOver, 1e-9)
	require.Zero(t, r.Waits[0].HandOver)
	require.InDelta(t, 0.6, r.Totals.HandOver, 1e-9)

	s = &scene{}
	s.wait("r", "B", 2, 0, 1000, nil)
	s.hold("r", "B", 2, 5000, 5100, nil)
	s.wait("r", "C", 3, 500, 5100, nil)
	r = s.report(t)
	require.InDelta(t, 4, r.Resources[0].HandOver, 1e-9)
	require.Contains(t, r.Resources[0].Why, "71 % of the waiting was hand-overs")
}

// B was granted and never took it; C names B, which has no fence, since nobody's end let C in.
func TestAClaimThatWasSleptThroughIsAHandOver(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, nil)
	s.wait("r", "C", 3, 500, 31_000, nil, heldBy("A", 1), heldBy("B", 0))
	s.hold("r", "C", 3, 31_000, 32_000, nil)
	w := s.report(t).Waits[0]
	require.Equal(t, []string{"A", "B"}, owners(w.Blockers))
	require.True(t, w.Blockers[1].Last)
	require.InDelta(t, 30, w.Unexplained, 1e-9)
	require.InDelta(t, 30, w.HandOver, 1e-9)
}

func TestLastIsWhoseEndLetItIn(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, nil)
	s.hold("r", "B", 2, 1000, 2000, nil)
	s.wait("r", "C", 3, 500, 2000, nil, heldBy("A", 1)) // all that C knew was who held when it came
	s.hold("q", "X", 1, 0, 900, nil)
	s.hold("q", "Y", 2, 0, 1010, nil)
	s.wait("q", "Z", 3, 500, 1000, nil, heldBy("Y", 2)) // Y's end let it in, by a clock that ran backwards
	shared := attrs{telemetry.Mode: "shared"}
	s.hold("pool", "K", 1, 0, 990, shared)
	s.hold("pool", "L", 2, 0, 600, shared)
	s.hold("pool", "M", 3, 0, 1005, shared) // stands longer, and so let nobody in
	s.wait("pool", "N", 4, 500, 1000, attrs{telemetry.Mode: "shared", telemetry.Limit: 3}, heldBy("L", 2))
	r := s.report(t)
	for _, w := range r.Waits {
		for _, b := range w.Blockers {
			require.Equal(t, b.Owner == map[string]string{"r": "B", "q": "Y", "pool": "K"}[w.Resource], b.Last, "%s: %s", w.Owner, b.Owner)
		}
	}
}
