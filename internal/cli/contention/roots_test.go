package contention

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// outline returns the trees as lines: owners with what they caused or waited.
func outline(r *Report) (lines []string) {
	var below func(indent string, list []Waiter)
	below = func(indent string, list []Waiter) {
		for _, w := range list {
			lines = append(lines, fmt.Sprintf("%s%s on %s %.1f of %.1f", indent, w.Owner, w.Resource, w.Waited, w.Total))
			below(indent+"  ", w.Waiters)
		}
	}
	for _, root := range r.Roots {
		lines = append(lines, fmt.Sprintf("%s %.1f in %d", root.Owner, root.Caused, root.Waits))
		below("  ", root.Waiters)
	}
	return lines
}

// checkTrees checks the invariants of trees.
func checkTrees(t require.TestingT, r *Report) {
	for i := range r.Roots {
		root := &r.Roots[i]
		require.Less(t, root.Hold, len(r.Holds))
		below := 0.0
		for _, w := range root.Waiters {
			below += w.Total
		}
		if root.Omitted == 0 {
			require.InDelta(t, root.Caused, below, 1e-6, "what a root caused is what waited for it, and behind that")
		}
		eachWaiter(root.Waiters, func(w *Waiter) {
			require.Less(t, w.Wait, len(r.Waits))
			require.GreaterOrEqual(t, w.Total, w.Waited)
			require.Equal(t, w.Owner, r.Waits[w.Wait].Owner)
		})
	}
}

// Every explained instant of a wait has a root, and none counts twice for one root.
func TestRoots_RandomSpans_ExplainWhatBlockersDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var spans []parsedSpan
		for _, k := range []spanKind{kindHold, kindWait} {
			for i := range rapid.IntRange(0, 12).Draw(t, "n") {
				from := rapid.Int64Range(0, 100).Draw(t, "from")
				s := madeSpan(k, rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "resource"), fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "id")),
					rapid.SampledFrom([]string{"shared", "exclusive"}).Draw(t, "mode"), int64(20*i+1), 1_000_000*from,
					1_000_000*(from+rapid.Int64Range(0, 60).Draw(t, "length")))
				spans = append(spans, s)
			}
		}
		r := analyzed(t, madeSpans(spans), Options{})
		checkTrees(t, r)
		caused := 0.0
		for i := range r.Roots {
			require.LessOrEqual(t, r.Roots[i].Caused, r.Totals.Wait.Total+1e-6)
			caused += r.Roots[i].Caused
		}
		require.GreaterOrEqual(t, caused+1e-6, r.Totals.Wait.Total-r.Totals.Unexplained)
	})
}

// While B waited for C, C was the root of A's wait; after that, B was.
func TestRoots_Chain_EndsAtOwnerWithoutWait(t *testing.T) {
	t.Parallel()
	r := threeInARow().report(t)
	require.Equal(t, []string{
		"C 6.2 in 2", "  B on account/2 3.1 of 6.2", "    A on account/1 3.1 of 3.1",
		"B 0.9 in 1", "  A on account/1 0.9 of 0.9",
	}, outline(r))
	require.Equal(t, "held account/2 5.0 s, in step Charge", r.Roots[0].Did)
	require.Equal(t, "account/2", r.Holds[r.Roots[0].Hold].Resource)
	require.Equal(t, "held account/1 5.0 s, of which its steps ran 1.3 s", r.Roots[1].Did)
}

func TestRoots_Cycle_IsCutWhereItCloses(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("p", "X", 1, 0, 1000, nil)
	s.hold("q", "Y", 2, 0, 1000, nil)
	s.wait("q", "X", 0, 200, 600, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}, heldBy("Y", 2))
	s.wait("p", "Y", 0, 200, 700, attrs{telemetry.Outcome: telemetry.OutcomeLeft}, heldBy("X", 1))
	r := s.report(t)
	require.Equal(t, []string{"X 0.5 in 1", "  Y on p 0.5 of 0.5", "Y 0.4 in 1", "  X on q 0.4 of 0.4"}, outline(r))
	require.Equal(t, "waited itself, in a circle", r.Roots[1].Did)
}

// Two readers, which wait for one writer, block a third wait.
func TestRoots_TwoPathsAtOnce_CountOnce(t *testing.T) {
	t.Parallel()
	s := &scene{}
	shared := attrs{telemetry.Mode: "shared"}
	s.hold("rates", "writer", 1, 0, 2000, nil)
	for i, reader := range []string{"reader1", "reader2"} {
		s.hold("book", reader, 10+i, 0, 3000, shared)
		s.wait("rates", reader, 2+i, 500, 2000, shared, heldBy("writer", 1))
	}
	s.wait("book", "W", 20, 1000, 3000, nil, heldBy("reader1", 10), heldBy("reader2", 11))
	r := s.report(t)
	require.InDelta(t, 1.5+1.5+1, r.Roots[0].Caused, 1e-9)
	require.Equal(t, 3, r.Roots[0].Waits)
	require.Len(t, r.Roots[0].Waiters, 2)
}

// A hold that was not read is a root, and so is an owner whose own wait is unexplained.
func TestRoots_UnreadHold_IsNamed(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.wait("r", "A", 2, 0, 1000, nil, heldBy("unread", 1))
	s.hold("p", "B", 3, 0, 1000, nil)
	s.wait("q", "B", 4, 200, 800, nil)
	s.wait("p", "C", 5, 100, 1000, nil, heldBy("B", 3))
	r := s.report(t)
	require.Equal(t, []string{"B 0.9 in 1", "  C on p 0.9 of 0.9"}, outline(r))
}

func TestRoots_SmallBranches_AreOmitted(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "long", 1, 0, 100_000, nil)
	for i := range 25 {
		s.wait("r", fmt.Sprintf("w%02d", i), 0, 1000*i, 60_000, attrs{telemetry.Outcome: telemetry.OutcomeLeft}, heldBy("long", 1))
	}
	s.wait("r", "brief", 0, 1000, 1100, attrs{telemetry.Outcome: telemetry.OutcomeLeft}, heldBy("long", 1))
	root := s.report(t).Roots[0]
	require.Equal(t, 26, root.Waits)
	require.Len(t, root.Waiters, maxWaiters)
	require.Equal(t, 6, root.Omitted)
	require.Equal(t, "w00", root.Waiters[0].Owner)
}

// Types are found by run or by workflow ID, in both formats.
func TestTypes_GroupWaitsByTypeAndStep(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	s.types("Transfer", "A", "B")
	s.types("Audit", "C")
	for _, file := range [][]byte{s.otlp(t, 4), s.jaeger(t)} {
		r := reportOf(t, file, Options{})
		require.Equal(t, []TypePair{
			{Waiter: "Transfer", Blocker: "Transfer", Waited: 4, Waits: 1, Steps: []StepPair{{Waiter: "Debit", Blocker: "Debit", Waited: 4, Waits: 1}}},
			{Waiter: "Transfer", Blocker: "Audit", Waited: 3.1, Waits: 1, Steps: []StepPair{{Waiter: "Credit", Blocker: "Charge", Waited: 3.1, Waits: 1}}},
		}, r.Types)
		require.Equal(t, "Audit", r.Roots[0].WorkflowType)
		require.Equal(t, "Transfer", r.Waits[0].WorkflowType)
		require.Equal(t, "Audit", r.Holds[0].WorkflowType)
	}
	r := threeInARow().report(t)
	require.Equal(t, TypePair{Waited: 7.1, Waits: 2, Steps: r.Types[0].Steps}, r.Types[0], "without such spans")
}

func TestLoad_CoversAllResources(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r1", "A", 1, 0, 1200, nil)
	s.hold("r2", "B", 2, 600, 1200, nil)
	s.wait("r1", "C", 3, 300, 1200, nil, heldBy("A", 1))
	s.wait("r2", "D", 4, 905, 1200, nil, heldBy("B", 2))
	load := s.report(t).Load
	require.Len(t, load, loadPoints)
	require.Equal(t, begin, load[0].At)
	for at, want := range map[int][2]float64{0: {1, 0}, 29: {1, 0}, 30: {1, 1}, 59: {1, 1}, 60: {2, 1}, 90: {2, 1.5}, 119: {2, 2}} {
		require.InDelta(t, want[0], load[at].Held, 1e-9, "held, %d", at)
		require.InDelta(t, want[1], load[at].Waiting, 1e-9, "waiting, %d", at)
	}
	require.Empty(t, (&scene{}).report(t).Load)
}

// relock changes the lock ID of an owner at a resource, also in the waits that name it.
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

// waitsMeanwhile: W holds the door and waits for the book, which X holds; A waits for the door.
func waitsMeanwhile() *scene {
	s := &scene{}
	s.hold("book", "X", 1, 0, 1500, nil)
	s.hold("door", "W", 2, 0, 2000, nil)
	s.wait("book", "W", 3, 100, 1500, nil, heldBy("X", 1))
	s.wait("door", "A", 4, 500, 2000, nil, heldBy("W", 2))
	return s
}

// A hold of a single step does not depend on the waits of other steps.
func TestRoots_StepLockID_IgnoresOtherSteps(t *testing.T) {
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

// A workflow keeps its hold while its steps wait. A step waits for its other locks, and an owner without Temporal is one thread of work,
// whatever its lock IDs are.
func TestRoots_Hold_FollowsItsOwnersWaits(t *testing.T) {
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

// W's second step waits for X, and X for W's first step, which ends: this is not a deadlock.
func TestRoots_WaitForAnotherStep_IsNotACycle(t *testing.T) {
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

func TestConclusion_StepLockID_IgnoresOtherSteps(t *testing.T) {
	t.Parallel()
	s := audits(40_000, 2000)
	for i := range 3 {
		audit := fmt.Sprint("audit", i)
		s.relock("r", audit, stepLockID(audit, "1/Total"))
		s.wait("other", audit, 0, 60_000*i+2000, 60_000*i+40_000, nil)
	}
	_, text := concluded(t, s)
	require.Contains(t, text["long-holds"], "For 76.0 s of their 80.0 s no step ran and no lock was waited for")
}
