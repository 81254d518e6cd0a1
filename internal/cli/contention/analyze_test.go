package contention

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func TestRead_DuplicateSpans_CountOnce(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	want := s.report(t)
	file := s.otlp(t, 3)
	r := reportOf(t, append(file, file...), Options{})
	require.Equal(t, len(s.spans), r.Read.Duplicates)
	require.Equal(t, 2*len(s.spans), r.Read.LockSpans)
	want.Read, r.Read = Reading{}, Reading{}
	require.Equal(t, want, r)
}

func TestHolds_WrittenByTwoProcesses_CountOnce(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1050, nil)
	s.hold("r", "A", 1, 0, 1000, nil)
	s.wait("r", "B", 2, 500, 1000, nil, heldBy("A", 1))
	s.wait("r", "B", 2, 500, 1000, nil, heldBy("A", 1))
	r := s.report(t)
	require.Len(t, r.Holds, 1)
	require.Len(t, r.Waits, 1)
	require.Equal(t, 2, r.Read.Repeated)
	require.Equal(t, begin.Add(time.Second), r.Holds[0].End, "the process that wrote the later one found it gone")
}

func TestDeadlocks_SpanAndWait_CountOnce(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r1", "A", 1, 0, 2000, nil)
	s.hold("r2", "B", 2, 0, 3000, nil)
	s.wait("r2", "A", 0, 500, 1500, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}, heldBy("B", 2))
	s.wait("r1", "B", 3, 400, 2000, nil, heldBy("A", 1))
	s.add(telemetry.SpanDeadlock, 1490, 1500, about("r2", "A", attrs{telemetry.Outcome: telemetry.OutcomeOK, telemetry.Cycle: "A waits for B, B for A"}))
	s.add(telemetry.SpanDeadlock, 1491, 1501, about("r2", "A", attrs{telemetry.Outcome: telemetry.OutcomeGone}))
	s.wait("r9", "Z", 0, 500, 1600, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock})  // its deadlock's span was not read
	s.wait("r2", "A", 0, 1600, 1700, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}) // nor was this one's
	r := s.report(t)
	require.Len(t, r.Deadlocks, 3)
	require.Equal(t, 3, r.Totals.Deadlocks)
	require.Equal(t, "A", r.Deadlocks[0].Victim)
	require.Equal(t, "A waits for B, B for A", r.Deadlocks[0].Cycle)
	require.Equal(t, "Z", r.Deadlocks[1].Victim)
	require.Equal(t, 1, r.Totals.Waited)
	require.False(t, r.Waits[1].Blockers[0].Last, "nobody let it in")
}

func TestLosses_FoundBySteps_HaveTheirHolds(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, attrs{telemetry.Outcome: telemetry.OutcomeRevoked, telemetry.Reason: "by hand"})
	s.add(telemetry.SpanRenew, 1100, 1101, attrs{telemetry.Outcome: telemetry.OutcomeLost, telemetry.BatchSize: 3})
	s.add(telemetry.SpanRenew, 1200, 1201, about("r", "A", attrs{telemetry.Outcome: telemetry.OutcomeLost}))
	s.add(telemetry.SpanAcquire, 1300, 1301, about("r", "A", attrs{telemetry.Outcome: telemetry.OutcomeLost, telemetry.Part: "2/Credit"}))
	r := s.report(t)
	require.Len(t, r.Losses, 4)
	require.Equal(t, 3, r.Totals.Lost)
	require.Equal(t, "by hand", r.Losses[0].Reason)
	require.Equal(t, -1, r.Losses[1].Hold, "a renewal of several names none")
	require.Equal(t, 0, r.Losses[2].Hold)
	require.Equal(t, 0, r.Losses[3].Hold)
}

func TestHolds_WithoutSpan_FollowFromAcquires(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.wait("r", "A", 1, 0, 1000, nil)
	s.step("r", "A", "1/Debit", 1, 1010, 2000, telemetry.OutcomeGranted)
	s.wait("r", "B", 2, 1500, 4000, nil, heldBy("A", 1))
	s.wait("r", "C", 3, 1500, 5000, nil, heldBy("lost", 9))
	r := s.report(t)
	require.Len(t, r.Holds, 1)
	h := r.Holds[0]
	require.Equal(t, OutcomeOpen, h.Outcome)
	require.Equal(t, begin.Add(time.Second), h.Start, "the database's clock goes before the process's")
	require.Equal(t, begin.Add(4*time.Second), h.End, "then it let B in")
	require.Equal(t, begin.Add(2*time.Second), h.Steps[0].End)
	require.Equal(t, 0, r.Waits[0].Hold)
	require.Equal(t, 3, r.Totals.Acquisitions, "two more were granted whose holds were not read")
	require.InDelta(t, 0, r.Waits[1].Unexplained, 1e-9)
	c := r.Waits[2]
	require.Equal(t, []string{"A", "lost"}, owners(c.Blockers))
	require.Equal(t, -1, c.Blockers[1].Hold)
	require.True(t, c.Blockers[1].Last)
	require.InDelta(t, 1, c.Unexplained, 1e-9, "from when A's hold ended, for as long as that is all that is known")
}

func TestSteps_WithSkewedClock_AreMovedIntoTheHold(t *testing.T) {
	t.Parallel()
	for _, skew := range []int{-60_000, -700, 700, 60_000} {
		s := &scene{}
		s.step("r", "A", "1/Debit", 1, 100_000+skew, 100_800+skew, telemetry.OutcomeGranted)
		s.hold("r", "A", 1, 100_000, 101_000, nil)
		s.wait("r", "B", 2, 100_100, 101_000, nil, heldBy("A", 1))
		r := s.report(t)
		step := r.Holds[0].Steps[0]
		require.Equal(t, 800*time.Millisecond, step.End.Sub(step.Start), "its length is right whatever its clock says")
		require.Equal(t, "Debit", r.Waits[0].Blockers[0].Step)
		require.Empty(t, r.Overlong)
	}
}

func TestSteps_WithRepeatedAcquire_CountOnce(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.step("r", "A", "1/Debit", 1, 100, 0, telemetry.OutcomeGranted)
	s.step("r", "A", "1/Debit", 1, 200, 0, telemetry.OutcomeAgain)
	s.step("r", "A", "2/Credit", 1, 300, 400, telemetry.OutcomeJoined)
	s.hold("r", "A", 1, 100, 1000, nil)
	r := s.report(t)
	require.Len(t, r.Holds[0].Steps, 2)
	require.Equal(t, begin.Add(100*time.Millisecond), r.Holds[0].Steps[0].Start)
	require.Equal(t, "Credit", r.Holds[0].Steps[1].Name)
	require.Equal(t, "worker-1", r.Holds[0].Host)
}

func TestAnalyze_SpanEndsBeforeStart_HasNoLength(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 1000, 500, nil)
	s.wait("r", "B", 2, 900, 400, nil, heldBy("A", 1))
	r := s.report(t)
	require.Zero(t, r.Totals.Wait.Total)
	require.Zero(t, r.Totals.Hold.Total)
	require.Equal(t, "nobody had to wait", r.Resources[0].Why)
}

func TestAnalyze_WithOptions_SelectsResourcesAndTimes(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	r := reportOf(t, s.otlp(t, 4), Options{Resource: "account/1"})
	require.Len(t, r.Resources, 1)
	require.Equal(t, 1, r.Totals.Wait.Count)
	require.Equal(t, []string{"C", "B"}, []string{r.Roots[0].Owner, r.Roots[1].Owner}, "a tree goes where it goes")
	require.Equal(t, "B", r.Owners[0].Name)
	require.Len(t, r.Waits, 2, "the chain's too")

	r = reportOf(t, s.otlp(t, 4), Options{Since: begin.Add(5600 * time.Millisecond)})
	require.Empty(t, r.Waits)
	require.Len(t, r.Holds, 1)
	r = reportOf(t, s.otlp(t, 4), Options{Until: begin.Add(1600 * time.Millisecond)})
	require.Equal(t, 1, r.Totals.Wait.Count)
	r = reportOf(t, s.otlp(t, 4), Options{Resource: "nothing"})
	require.Empty(t, r.Resources)
	require.Empty(t, r.Holds)
}

func TestLosses_FromEventsOnOtherSpans(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, attrs{telemetry.Outcome: telemetry.OutcomeOrphaned, telemetry.Reason: "terminated"})
	step := s.add("RunActivity:Debit", 0, 3000, nil)
	step.events = []sceneEvent{
		{telemetry.EventLost, 2000, attrs{telemetry.Resource: "r", telemetry.LockID: lockID("A"), telemetry.Part: "1/Debit", telemetry.Reason: "terminated"}},
		{"something else", 2001, attrs{telemetry.Resource: "r", telemetry.LockID: lockID("A")}},
	}
	s.add(telemetry.SpanRenew, 1999, 2000, attrs{telemetry.Outcome: telemetry.OutcomeLost, telemetry.BatchSize: 3}) // the same loss
	s.add(telemetry.SpanRenew, 60_000, 60_001, attrs{telemetry.Outcome: telemetry.OutcomeLost, telemetry.BatchSize: 1})
	otlp := s.otlp(t, 3)
	want := reportOf(t, otlp, Options{})
	require.Len(t, want.Losses, 3)
	require.Equal(t, "orphaned", want.Losses[0].Outcome)
	require.Equal(t, Loss{
		Hold: 0, Resource: "r", LockID: lockID("A"), Owner: "A", At: begin.Add(2 * time.Second), Outcome: "lost", Reason: "terminated",
		Trace: want.Losses[1].Trace, Span: want.Losses[1].Span,
	}, want.Losses[1])
	require.NotEmpty(t, want.Losses[1].Span)
	require.Equal(t, -1, want.Losses[2].Hold)
	for _, file := range [][]byte{s.jaeger(t), append(otlp, otlp...)} {
		require.Equal(t, want.Losses, reportOf(t, file, Options{}).Losses)
	}
}

func TestQueue_LeaveAndArrivalTogether_DoesNotGrow(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.wait("r", "A", 1, 0, 1000, nil)
	s.wait("r", "B", 2, 1000, 2000, nil)
	r := s.report(t)
	require.Equal(t, 1, r.Resources[0].LongestQueue)
	require.Len(t, r.Resources[0].Queue, 2)
}

// patience is a context that is cancelled at the last call of Err.
type patience struct {
	context.Context
	cancel      context.CancelCauseFunc
	asked, last int
}

var errGaveUp = errors.New("gave up")

func (p *patience) Err() error {
	if p.asked++; p.asked == p.last {
		p.cancel(errGaveUp)
	}
	return p.Context.Err()
}

// Analyze is cancelled at each of its checks in turn.
func TestAnalyze_Cancelled_ReturnsTheCause(t *testing.T) {
	t.Parallel()
	const n = 20
	analyze := func(last int) (*patience, *Report, error) {
		var all []parsedSpan
		for i := range int64(n) {
			all = append(all, madeSpan(kindHold, "r", string(rune('a'+i)), "exclusive", i+1, i*1000, (i+1)*1000))
			all = append(all, madeSpan(kindWait, "r", string(rune('a'+i)), "exclusive", i+1, 0, i*1000))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		p := &patience{Context: ctx, cancel: cancel, last: last}
		r, err := Analyze(p, madeSpans(all), Options{})
		return p, r, err
	}
	patient, r, err := analyze(0)
	require.NoError(t, err)
	require.Len(t, r.Waits, n)
	require.Greater(t, patient.asked, 3*n, "blockers, roots and trees ask for each wait")
	for last := 1; last <= patient.asked; last++ {
		p, r, err := analyze(last)
		require.ErrorIs(t, err, errGaveUp, "at %d", last)
		require.Nil(t, r, "at %d", last)
		require.LessOrEqual(t, p.asked-last, 3, "at %d: what is left is not begun", last)
	}
}
