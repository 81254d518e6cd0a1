package contention

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// concluded returns the rules of the conclusion, and their texts.
func concluded(t *testing.T, s *scene) (rules []string, text map[string]string) {
	t.Helper()
	text = map[string]string{}
	for _, f := range s.report(t).Conclusion {
		rules = append(rules, f.Rule)
		text[f.Rule] += f.Text + ". " + f.Advice + "."
	}
	return rules, text
}

// crossing is a deadlock between two owners, of which the second is the victim.
func crossing(s *scene, a, b, first, second string, at int) {
	s.hold(first, a, 1000+at, at, at+90, nil)
	s.hold(second, b, 1001+at, at, at+70, nil)
	s.wait(second, a, 1002+at, at+20, at+70, nil, heldBy(b, 1001+at))
	s.wait(first, b, 0, at+30, at+60, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}, heldBy(a, 1000+at))
	s.add(telemetry.SpanDeadlock, at+59, at+60, about(first, b, attrs{telemetry.Outcome: telemetry.OutcomeOK, telemetry.Cycle: fmt.Sprintf("%[1]s waits for %[2]s on %[3]s, %[2]s waits for %[1]s on %[4]s", b, a, first, second)}))
}

func TestConclusion_Deadlocks_AreGroupedByType(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i := range 3 {
		transfer, audit := fmt.Sprintf("t%d", i), fmt.Sprintf("a%d", i)
		crossing(s, transfer, audit, "account/1", "account/2", i*100)
		s.types("Transfer", transfer)
		s.types("Audit", audit)
	}
	crossing(s, "t8", "t9", "account/7", "account/8", 500)
	s.types("Transfer", "t8", "t9")
	_, text := concluded(t, s)
	require.Equal(t, "3 deadlocks between Audit and Transfer. Let each take all its locks in one guard: it takes them in the order of their names.",
		text["deadlocks"], "one among transfers is too few")
	require.Equal(t, []string{"Audit", "Transfer"}, s.report(t).Deadlocks[0].WorkflowTypes)

	s = &scene{}
	crossing(s, "x", "y", "account/1", "account/2", 0)
	crossing(s, "v", "w", "account/1", "account/2", 100)
	_, text = concluded(t, s)
	require.Contains(t, text["deadlocks"], "2 deadlocks of which not all types are known. Let each take")

	s = &scene{} // only the victims' waits were read: nothing is known about the cycle
	for i := range 2 {
		s.wait("r", fmt.Sprint("victim", i), 0, 100*i, 100*i+90, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock})
	}
	_, text = concluded(t, s)
	require.Contains(t, text["deadlocks"], "2 deadlocks of which not all types are known. Let each take")
}

// Two owners hold a resource shared and request it exclusively: the order of names does not help them.
func TestConclusion_UpgradeDeadlock_AdvisesExclusive(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i := range 2 {
		a, b, at := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), 1000*i
		shared := attrs{telemetry.Mode: "shared"}
		s.hold("rates", a, 1+10*i, at, at+900, shared)
		s.hold("rates", b, 2+10*i, at, at+600, shared)
		s.wait("rates", a, 3+10*i, at+200, at+600, nil, heldBy(b, 2+10*i))
		s.wait("rates", b, 0, at+300, at+500, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}, heldBy(a, 1+10*i))
		s.add(telemetry.SpanDeadlock, at+499, at+500, about("rates", b, attrs{telemetry.Outcome: telemetry.OutcomeOK,
			telemetry.Cycle: fmt.Sprintf("%[1]s waits for %[2]s on rates, %[2]s waits for %[1]s on rates", b, a)}))
		s.types("Quote", a, b)
	}
	_, text := concluded(t, s)
	require.Equal(t, "2 deadlocks among workflows of type Quote. They held rates shared, and each wanted it alone: ask for it exclusively at once.", text["deadlocks"])
}

func TestConclusion_DeadWorkers(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.step("r", "dead", "1/Debit", 1, 0, 0, telemetry.OutcomeGranted)
	dead := s.hold("r", "dead", 1, 0, 10_000, attrs{telemetry.Outcome: telemetry.OutcomeExpired, telemetry.EndedBy: lockID("next")})
	dead.events = []sceneEvent{{telemetry.EventExpired, 8000, nil}}
	s.wait("r", "next", 2, 2000, 10_000, nil, heldBy("dead", 1))
	s.wait("r", "later", 3, 3000, 10_050, nil, heldBy("dead", 1))
	r := s.report(t)
	require.Equal(t, &Death{Step: "Debit", Host: "worker-1", From: begin, To: begin.Add(10 * time.Second), Ended: "expired"}, r.Holds[0].WorkerDied)
	require.Equal(t, "held r 10.0 s: a worker died, or hung, in step Debit, and the hold expired", r.Roots[0].Did)
	rules, text := concluded(t, s)
	require.Equal(t, []string{"dead-workers"}, rules, "its long hold is not told of twice")
	require.Equal(t, "2 waits, 15.0 s in all (over 99 %), stood behind 1 hold in which a worker died or hung; 15.0 s of it for step Debit of dead. A shorter TTL frees the locks of a dead step sooner, and a heartbeat timeout lets its next attempt begin sooner.", text["dead-workers"])

	// The next attempt of the step ended it.
	s = &scene{}
	s.step("r", "A", "1/Debit", 1, 0, 0, telemetry.OutcomeGranted)
	request := attrs{telemetry.Part: "run-A/1/Debit", telemetry.Order: "1.2", telemetry.Outcome: telemetry.OutcomeJoined, telemetry.Hold: 1}
	s.add(telemetry.SpanAcquire, 8998, 9000, about("r", "A", request))
	s.add(telemetry.SpanLeave, 9900, 9901, about("r", "A", attrs{telemetry.Part: "run-A/1/Debit", telemetry.Order: "1.2", telemetry.Outcome: telemetry.OutcomeOK}))
	s.hold("r", "A", 1, 0, 10_000, nil)
	s.wait("r", "B", 2, 1000, 10_000, nil, heldBy("A", 1))
	r = s.report(t)
	require.Equal(t, "retried", r.Holds[0].WorkerDied.Ended)
	require.Equal(t, begin.Add(9*time.Second), r.Holds[0].WorkerDied.To)
	_, text = concluded(t, s)
	require.Contains(t, text["dead-workers"], "1 wait, 8.0 s in all (89 %)")
	require.Contains(t, text["dead-workers"], "heartbeat timeout")

	// A kept hold that expires between two steps has no worker.
	s = &scene{}
	s.step("r", "kept", "1/Debit", 1, 0, 1000, telemetry.OutcomeGranted)
	s.hold("r", "kept", 1, 0, 10_000, attrs{telemetry.Outcome: telemetry.OutcomeExpired})
	s.wait("r", "next", 2, 2000, 10_000, nil, heldBy("kept", 1))
	require.Nil(t, s.report(t).Holds[0].WorkerDied)
	rules, _ = concluded(t, s)
	require.NotContains(t, rules, "dead-workers")
}

// audits is three holds of r by audits, in each of which a step runs for a time and a transfer waits.
func audits(held, ran int) *scene {
	s := &scene{}
	for i := range 3 {
		from := 60_000 * i
		audit, transfer := fmt.Sprintf("audit%d", i), fmt.Sprintf("transfer%d", i)
		s.types("Audit", audit)
		s.types("Transfer", transfer)
		s.step("r", audit, "1/Total", 10*i+1, from, from+ran, telemetry.OutcomeGranted)
		s.hold("r", audit, 10*i+1, from, from+held, nil)
		s.wait("r", transfer, 10*i+2, from+10, from+held, nil, heldBy(audit, 10*i+1))
		s.hold("r", transfer, 10*i+2, from+held, from+held+50, nil)
	}
	return s
}

func TestConclusion_LongHolds_AreGroupedByType(t *testing.T) {
	t.Parallel()
	rules, text := concluded(t, audits(40_000, 39_000))
	require.Equal(t, []string{"long-holds"}, rules)
	require.Equal(t, "100 % of the waiting (2m00s) is behind holds of Audit, at least half of it behind 2 that stood 40.0 s or longer. "+
		"Step Total takes most of that time: do its slow part before the lock is taken.", text["long-holds"])
	_, text = concluded(t, audits(40_000, 2000))
	require.Contains(t, text["long-holds"], "For 76.0 s of their 80.0 s no step ran and no lock was waited for: hold over less of the saga")
	waits := audits(40_000, 15_000) // and wait for 15 s
	for i := range 3 {
		waits.wait("other", fmt.Sprintf("audit%d", i), 0, 60_000*i+20_000, 60_000*i+35_000, nil)
	}
	_, text = concluded(t, waits)
	require.Contains(t, text["long-holds"], "or longer. .", "neither is clear: no advice")
	_, text = concluded(t, audits(160, 150))
	require.Contains(t, text["long-holds"], "160 ms or longer", "short, and three times the median")
	rules, _ = concluded(t, audits(120, 110))
	require.NotContains(t, rules, "long-holds", "short, as holds are here")
}

func TestConclusion_HotResource(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i := range 12 {
		owner := string(rune('a' + i))
		if i > 0 {
			s.wait("r", owner, 10+i, max(0, i*100-150), i*100, nil)
		}
		s.hold("r", owner, 10+i, i*100, i*100+97, nil)
	}
	r := s.report(t)
	require.Equal(t, "many short holds, one after another: held 97 % of the time by 12 owners, 97 ms each (median)", r.Resources[0].Why)
	require.Equal(t, 2, r.Resources[0].LongestQueue)
	rules, text := concluded(t, s)
	require.Equal(t, []string{"hot"}, rules)
	require.Equal(t, "r has 100 % of the waiting, and is held 97 % of the time by one hold after another, 97 ms each (median). "+
		"It is wanted more often than it can be had: divide it, or shorten the steps that hold it.", text["hot"])
}

func TestConclusion_Unexplained_ComesFirst(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 500, nil)
	s.wait("r", "B", 2, 0, 1000, nil, heldBy("A", 1))
	rules, text := concluded(t, s)
	require.Equal(t, "unread", rules[0])
	require.Contains(t, text["unread"], "50 % of the waiting is explained by no hold that was read. Read the traces of all processes")

	// Granted at 500 ms, and taken at 1000.
	s = &scene{}
	s.hold("r", "A", 1, 0, 500, nil)
	s.wait("r", "B", 2, 100, 500, nil, heldBy("A", 1))
	s.hold("r", "B", 2, 1000, 1100, nil)
	s.wait("r", "C", 3, 100, 1100, nil, heldBy("B", 2))
	rules, text = concluded(t, s)
	require.NotContains(t, rules, "unread")
	require.Contains(t, text["hand-overs"], "36 % of the waiting was for locks that had been granted and were not taken yet. Look whether the workers that wait are busy or gone")
}

func TestConclusion_NoRule_IsNotEmpty(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 500, nil)
	_, text := concluded(t, s)
	require.Equal(t, "None of 1 acquisition had to wait. .", text["no-waits"])
	s = &scene{}
	for i := range 4 { // of four resources, each
		resource := fmt.Sprintf("r%d", i)
		s.hold(resource, "A"+resource, 1, 0, 200, nil)
		s.wait(resource, "B"+resource, 2, 100, 200, nil, heldBy("A"+resource, 1))
	}
	rules, text := concluded(t, s)
	require.Equal(t, []string{"none"}, rules)
	require.Contains(t, text["none"], "No single cause stands out. r0 was waited for most: 25 % of the waiting")
}

func TestConclusion_BelowThresholds_HasNoFinding(t *testing.T) {
	t.Parallel()
	totals := Totals{Wait: Distribution{Total: 100}, HandOver: 25}
	require.Len(t, handOverFinding(&totals), 1)
	totals.HandOver = 24.9
	require.Empty(t, handOverFinding(&totals))

	hot := Resource{Name: "r", Busy: 0.8, Wait: Distribution{Total: 50}, Hold: Distribution{Count: 10, Total: 20, Max: 7.9}}
	for what, change := range map[string]func(*Resource){
		"":                 func(*Resource) {},
		"idle":             func(r *Resource) { r.Busy = 0.79 },
		"others wait more": func(r *Resource) { r.Wait.Total = 49 },
		"few holds":        func(r *Resource) { r.Hold.Count = 9 },
		"one long hold":    func(r *Resource) { r.Hold.Max = 8 },
	} {
		one := hot
		change(&one)
		found := hotFinding(&Report{Totals: Totals{Wait: Distribution{Total: 100}}, Resources: []Resource{one}})
		require.Equal(t, what == "", len(found) == 1, what)
	}

	left := attrs{telemetry.Outcome: telemetry.OutcomeLeft}
	for _, c := range []struct {
		rule    string
		yes, no int
		scene   func(s *scene, n int)
	}{
		{"dead-workers", 18, 21, func(s *scene, others int) { // seconds of other waits, in addition to 1 s for the dead worker
			s.step("r", "dead", "1/Debit", 1, 0, 0, telemetry.OutcomeGranted)
			s.hold("r", "dead", 1, 0, 2000, attrs{telemetry.Outcome: telemetry.OutcomeExpired})
			s.wait("r", "next", 2, 1000, 2000, nil, heldBy("dead", 1))
			s.hold("q", "A", 3, 0, 60_000, nil)
			s.wait("q", "B", 4, 100, 100+1000*others, left, heldBy("A", 3))
		}},
		{"long-holds", 420, 380, func(s *scene, share int) { // of 1,000 ms, for a hold of 1.2 s
			for i, waited := range []int{share, (1000 - share) / 4, (1000 - share) / 4, (1000 - share) / 4, (1000 - share) / 4} {
				resource, by := fmt.Sprintf("r%d", i), fmt.Sprintf("h%d", i)
				s.hold(resource, by, 1, 0, 1200, nil)
				s.wait(resource, "w"+by, 0, 100, 100+waited, left, heldBy(by, 1))
			}
		}},
		{"unread", 740, 760, func(s *scene, covered int) { // of 1,000 ms
			s.hold("r", "A", 1, 0, covered, nil)
			s.wait("r", "B", 2, 0, 1000, nil, heldBy("A", 1))
		}},
	} {
		for n, want := range map[int]bool{c.yes: true, c.no: false} {
			s := &scene{}
			c.scene(s, n)
			rules, _ := concluded(t, s)
			require.Equal(t, want, slices.Contains(rules, c.rule), "%s: %d: %v", c.rule, n, rules)
		}
	}
}

// Of four owners, each holds r after the other, runs a step for 90 ms, and is between steps for 900 ms.
func TestWhy_HoldsLongerThanSteps_IsExplained(t *testing.T) {
	t.Parallel()
	const between = "its holders were between two steps: their steps ran 270 ms of the 3.0 s that they kept others waiting"
	const waited = "its holders waited themselves: for 2.4 s of the 3.0 s that they kept others waiting, most for other; " +
		"their steps ran 270 ms"
	for name, c := range map[string]struct {
		waits, oneStep bool // for another resource; the lock ID is that of the step
		want           string
	}{
		"they are between steps":   {false, false, between},
		"they wait":                {true, false, waited},
		"other steps of theirs do": {true, true, between},
	} {
		s := &scene{}
		for i, owner := range []string{"a", "b", "c", "d"} {
			from := i * 1000
			if i > 0 {
				s.wait("r", owner, 10+i, from-900, from, nil)
			}
			s.hold("r", owner, 10+i, from, from+990, nil)
			s.step("r", owner, "1/Debit", 10+i, from, from+90, telemetry.OutcomeGranted)
			if c.waits {
				s.wait("other", owner, 20+i, from+100, from+900, nil)
			}
			if c.oneStep {
				s.relock("r", owner, stepLockID(owner, "1/Debit"))
			}
		}
		all := s.report(t).Resources
		require.Equal(t, c.want, all[slices.IndexFunc(all, func(r Resource) bool { return r.Name == "r" })].Why, name)
	}
}
