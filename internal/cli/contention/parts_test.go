package contention

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// In plain Go three parts of one lock ID held, from 0, 200 and 400 ms on, and each told of its own stay.
func TestPartsOfAHoldTellOfOne(t *testing.T) {
	t.Parallel()
	stays := [][2]int{{0, 1000}, {200, 3000}, {400, 600}}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		s := &scene{}
		for _, i := range order {
			s.hold("r", "A", 1, stays[i][0], stays[i][1], nil)
		}
		s.wait("r", "B", 2, 500, 3000, nil, heldBy("A", 1))
		s.hold("r", "B", 2, 3000, 3100, nil)
		r := s.report(t)
		require.Zero(t, r.Read.Repeated)
		require.Equal(t, 2, r.Totals.Acquisitions)
		require.Len(t, r.Holds, 2)
		require.Equal(t, []time.Time{at(0), at(3000)}, []time.Time{r.Holds[0].Start, r.Holds[0].End})
		require.Zero(t, r.Waits[0].Unexplained)
		require.InDelta(t, 2.5, r.Holds[0].Blocked, 1e-9)
		require.True(t, r.Waits[0].Blockers[0].Last)
	}
}

// attempt adds an attempt's acquire, and its leave, which is missing where to is 0.
func (s *scene) attempt(owner, part, order string, from, to int, outcome, host string) {
	request := attrs{telemetry.Part: part, telemetry.Order: order, telemetry.Hold: 1, telemetry.Outcome: outcome, telemetry.Host: host}
	s.add(telemetry.SpanAcquire, from-2, from, about("r", owner, request))
	if to > 0 {
		s.add(telemetry.SpanLeave, to, to+1, about("r", owner, attrs{telemetry.Part: part, telemetry.Order: order, telemetry.Outcome: telemetry.OutcomeOK}))
	}
}

// The tenth attempt of a step takes over from the ninth, whose worker was killed; then the saga stands between steps.
func TestAttemptThatDiedRanUntilTheNextOne(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.attempt("A", "1/Debit", "7.9", 100, 0, telemetry.OutcomeGranted, "worker-1")
	s.attempt("A", "1/Debit", "7.10", 2000, 2500, telemetry.OutcomeJoined, "worker-2")
	s.hold("r", "A", 1, 100, 9000, nil)
	s.wait("r", "B", 2, 3000, 9000, nil, heldBy("A", 1))
	r := s.report(t)
	steps := r.Holds[0].Steps
	require.Len(t, steps, 2)
	require.Equal(t, []any{at(100), at(2000), true}, []any{steps[0].Start, steps[0].End, steps[0].EndUnseen})
	require.Equal(t, []any{at(2000), at(2500), false}, []any{steps[1].Start, steps[1].End, steps[1].EndUnseen})
	require.Len(t, r.Overlong, 1)
	require.InDelta(t, 2.4, r.Overlong[0].Ran, 1e-9)
	require.Equal(t, "Debit", r.Waits[0].Blockers[0].Step)
	require.True(t, r.Waits[0].Blockers[0].BetweenSteps, "nothing ran while B waited")
	require.Contains(t, r.Resources[0].Why, "of which its steps ran 2.4 s: the rest of the time it stood between steps; a worker died, or hung, in step Debit, whose next attempt entered 1.9 s later")
}

// One that died with nobody after it may have run until its hold ended, or its promise did, and no longer.
func TestStepNotSeenToLeaveRanNoLongerThanItsPromise(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.attempt("A", "1/Debit", "1.1", 100, 0, telemetry.OutcomeGranted, "worker-1")
	expired := s.hold("r", "A", 1, 100, 8000, attrs{telemetry.Outcome: telemetry.OutcomeExpired})
	expired.events = append(expired.events, sceneEvent{telemetry.EventExpired, 5000, attrs{}})
	s.wait("r", "B", 2, 3000, 8000, nil, heldBy("A", 1))
	r := s.report(t)
	step := r.Holds[0].Steps[0]
	require.Equal(t, []any{at(5000), true}, []any{step.End, step.EndUnseen})
}

// What was downgraded is shared when it ends, and a shared wait that stood behind it names it: it explains the wait, whatever its mode says now.
func TestNamedHoldExplainsAWaitWhateverItsMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		s := &scene{}
		s.hold("r", "A", 1, 0, 9000, attrs{telemetry.Mode: "shared"})
		s.wait("r", "B", 2, 1000, 4000, attrs{telemetry.Mode: mode}, heldBy("A", 1))
		s.hold("r", "B", 2, 4000, 4500, attrs{telemetry.Mode: mode})
		r := s.report(t)
		w := r.Waits[0]
		require.Zero(t, w.Unexplained)
		i := slices.IndexFunc(w.Blockers, func(b Blocker) bool { return b.Owner == "A" })
		require.Equal(t, []any{true, true, 0.0, 3.0}, []any{w.Blockers[i].Named, w.Blockers[i].Last, w.Blockers[i].From, w.Blockers[i].To})
		require.InDelta(t, 3, r.Holds[0].Blocked, 1e-9)
		require.Equal(t, "A", r.Owners[0].Name)
	}
}
