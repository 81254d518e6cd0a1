package contention

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// Without Temporal, three parts of one lock ID held from 0, 200 and 400 ms on, and each wrote a span.
func TestHolds_WithSeveralParts_AreJoined(t *testing.T) {
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

// A Lock around code of a workflow holds while the workflow waits for a signal, say. No step runs under it, no worker can die in it, and its part
// is not the name of a step.
func TestSteps_Lock_HeldAndDidNotRun(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]attrs{
		"of this version":       {telemetry.Part: "run-A/lock/1", telemetry.HoldOnly: true},
		"of an earlier version": {telemetry.Part: "run-A/lock/1"},
		"of another language":   {telemetry.Part: "run-A/reserve", telemetry.HoldOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{}
			acquire := attrs{telemetry.Order: "1.1", telemetry.Hold: 1, telemetry.Outcome: telemetry.OutcomeGranted, telemetry.Comment: "Approval, lock/1"}
			maps.Copy(acquire, more)
			s.add(telemetry.SpanAcquire, 0, 2, about("r", "A", acquire))
			s.hold("r", "A", 1, 0, 13_800, nil)
			s.wait("r", "B", 2, 1000, 13_800, nil, heldBy("A", 1))
			r := s.report(t)
			require.Len(t, r.Holds[0].Steps, 1)
			step := r.Holds[0].Steps[0]
			require.True(t, step.HoldOnly)
			if name != "of another language" { // whose parts have names of their own
				require.Equal(t, "Lock 1", step.Name)
			}
			require.Equal(t, "held r 13.8 s, by "+step.Name+" of the workflow", r.Roots[0].Did)
			require.Contains(t, r.Resources[0].Why, "for A, which held it 13.8 s, by "+step.Name+" of the workflow")
			require.Equal(t, step.Name+" of the workflow holds it, across whatever the workflow waits for: take it later, or release it sooner", r.Conclusion[0].Advice)
			require.Empty(t, r.Overlong)
			var b strings.Builder
			require.NoError(t, WriteTable(&b, r, 10))
			require.NotContains(t, b.String(), "ran ")
		})
	}
	s := &scene{}
	s.add(telemetry.SpanAcquire, 0, 2, about("r", "A", attrs{telemetry.Part: "run-A/lock/1", telemetry.Order: "1.1", telemetry.Hold: 1, telemetry.Outcome: telemetry.OutcomeGranted}))
	s.hold("r", "A", 1, 0, 9000, attrs{telemetry.Outcome: telemetry.OutcomeExpired})
	require.Nil(t, s.report(t).Holds[0].WorkerDied)
}

// attempt adds an attempt's acquire and, unless to is 0, its leave.
func (s *scene) attempt(owner, part, order string, from, to int, outcome, host string) {
	request := attrs{telemetry.Part: part, telemetry.Order: order, telemetry.Hold: 1, telemetry.Outcome: outcome, telemetry.Host: host}
	s.add(telemetry.SpanAcquire, from-2, from, about("r", owner, request))
	if to > 0 {
		s.add(telemetry.SpanLeave, to, to+1, about("r", owner, attrs{telemetry.Part: part, telemetry.Order: order, telemetry.Outcome: telemetry.OutcomeOK}))
	}
}

// The tenth attempt of a step follows the ninth, whose worker was killed; then no step runs.
func TestSteps_DeadAttempt_EndsAtTheNext(t *testing.T) {
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
	require.Contains(t, r.Resources[0].Why, "of which its steps ran 2.4 s: the rest of the time it stood between steps; a worker died, or hung, in step Debit, which delayed its saga by 1.9 s")
}

// A killed worker has not exported the acquire of its attempt. The next attempt joins the hold, and a compensation waits until the dead
// attempt's part has drained.
func TestSteps_UnreadAttempt_IsADeath(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.attempt("A", "run-A/1/Debit", "3.1", 100, 900, telemetry.OutcomeGranted, "worker-2")
	s.attempt("A", "run-A/2/Credit", "4.2", 11_000, 11_200, telemetry.OutcomeJoined, "worker-2")
	queued := attrs{telemetry.Part: "run-A/3/Refund", telemetry.Order: "5.1", telemetry.Outcome: telemetry.OutcomeQueued}
	maps.Copy(queued, attrs{telemetry.BlockedByID: lockID("A"), telemetry.BlockedByFence: 1})
	s.add(telemetry.SpanAcquire, 11_290, 11_300, about("r", "A", queued))
	s.attempt("A", "run-A/3/Refund", "6.1", 30_900, 31_000, telemetry.OutcomeJoined, "worker-2")
	s.hold("r", "A", 1, 100, 31_100, nil)
	s.wait("r", "B", 2, 2000, 31_100, nil, heldBy("A", 1))
	r := s.report(t)
	require.Equal(t, &Death{Step: "Credit", From: at(900), To: at(30_900), Ended: "retried"}, r.Holds[0].WorkerDied)
	require.Equal(t, []any{"4.1", at(900), at(11_000), true}, []any{
		r.Holds[0].Steps[1].Order, r.Holds[0].Steps[1].Start, r.Holds[0].Steps[1].End, r.Holds[0].Steps[1].EndUnseen})
	rules, text := concluded(t, s)
	require.Equal(t, []string{"dead-workers"}, rules)
	require.Contains(t, text["dead-workers"], "in which a worker died or hung; 28.9 s of it for step Credit of A. A heartbeat timeout")

	// An attempt that failed before it had the lock was read.
	s.add(telemetry.SpanAcquire, 10_000, 10_100, about("r", "A", attrs{
		telemetry.Part: "run-A/2/Credit", telemetry.Order: "4.1", telemetry.Outcome: telemetry.OutcomeError}))
	require.Nil(t, s.report(t).Holds[0].WorkerDied)
}

// Holds of Lockstep itself are listed only if they are asked for, and never as deaths.
func TestHolds_OfLockstepItself_AreLeftOut(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.step(janitor.LockName(namespace), "j", "1/Run", 1, 0, 0, telemetry.OutcomeGranted)
	s.hold(janitor.LockName(namespace), "j", 1, 0, 9000, attrs{telemetry.Outcome: telemetry.OutcomeExpired})
	require.Empty(t, s.report(t).Holds)
	spans := s.read(t)
	require.ErrorContains(t, spans.CheckSelected(Options{}), "all lock spans are about locks of Lockstep's own")
	asked, err := Analyze(t.Context(), spans, Options{Resource: janitor.LockName("")})
	require.NoError(t, err)
	require.Nil(t, asked.Holds[0].WorkerDied)
}

func TestDeadlocks_InTheTable_HaveNoNamespace(t *testing.T) {
	t.Parallel()
	s := &scene{}
	cycle := strings.NewReplacer("X", namespace+"/a b", "Y", namespace+"/c").Replace("X waits for Y on r, Y waits for X on q")
	s.add(telemetry.SpanDeadlock, 0, 10, about("r", "c", attrs{telemetry.Outcome: telemetry.OutcomeOK, telemetry.Cycle: cycle}))
	var table bytes.Buffer
	require.NoError(t, WriteTable(&table, s.report(t), 10))
	require.Contains(t, table.String(), "  a b waits for c on r, c waits for a b on q\n")
}

func TestSteps_WithoutLeave_EndWhenTheHoldExpires(t *testing.T) {
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

// Lock IDs without a namespace ID are not workflows, even with a slash.
func TestHolds_PlainLockID_HasNoWorkflow(t *testing.T) {
	t.Parallel()
	s := &scene{}
	plain := func(id string) attrs { return attrs{telemetry.LockID: id, telemetry.Owner: ""} }
	blocker := attrs{telemetry.BlockedByID: "billing/hourly/eu", telemetry.BlockedByFence: 9}
	part := attrs{telemetry.LockID: "billing/nightly", telemetry.Owner: "", telemetry.Part: "1/Debit"}
	expired := attrs{telemetry.Outcome: telemetry.OutcomeExpired, telemetry.EndedBy: "billing/nightly"}
	maps.Copy(expired, plain("billing/weekly"))
	s.hold("r", "", 1, 0, 1000, expired)
	s.wait("r", "", 2, 100, 1000, part)
	s.hold("r", "", 2, 1000, 1100, plain("billing/nightly"))
	s.wait("q", "", 3, 100, 1000, plain("billing/nightly"), blocker)
	s.wait("p", "", 4, 100, 200, attrs{telemetry.LockID: "billing/nightly", telemetry.Owner: "", telemetry.Outcome: telemetry.OutcomeDeadlock})
	s.types("Billing", "nightly", "weekly", "hourly")
	r := s.report(t)
	for i := range r.Holds {
		require.Empty(t, r.Holds[i].Workflow+r.Holds[i].WorkflowType)
	}
	for i := range r.Waits {
		require.Empty(t, r.Waits[i].Workflow+r.Waits[i].WorkflowType+r.Waits[i].Run)
		for _, b := range r.Waits[i].Blockers {
			require.Empty(t, b.Workflow)
		}
	}
	require.Empty(t, r.Types)
	require.Equal(t, "billing/nightly", r.Deadlocks[0].Victim)
	var table bytes.Buffer
	require.NoError(t, WriteTable(&table, r, 10))
	require.NotContains(t, table.String(), "Billing")
	require.Contains(t, table.String(), "its room went to billing/nightly")
}
