package contention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func TestBlockers_SharedHolds_BlockExclusiveRequests(t *testing.T) {
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

func TestBlockers_WithLimit_IncludeSharedHolds(t *testing.T) {
	t.Parallel()
	shared, limited := attrs{telemetry.Mode: "shared"}, attrs{telemetry.Mode: "shared", telemetry.Limit: 2}
	s := &scene{}
	s.hold("pool", "one", 1, 0, 1000, shared)
	s.hold("pool", "two", 2, 0, 2000, shared)
	s.wait("pool", "three", 3, 500, 1000, limited, heldBy("one", 1))
	s.hold("pool", "three", 3, 1000, 2000, shared)
	s.wait("pool", "four", 4, 510, 1000, limited) // names none
	r := s.report(t)
	for _, w := range r.Waits {
		require.Equal(t, []string{"one", "two"}, owners(w.Blockers))
		require.True(t, w.Blockers[0].Last)
		require.False(t, w.Blockers[1].Last)
	}
}

// A hold that was released for a dead worker keeps others out until its part expires or another owner is granted the resource.
func TestBlockers_DrainingHold_BlocksUntilNextHold(t *testing.T) {
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

func owners(of []Blocker) []string {
	names := []string{}
	for _, b := range of {
		names = append(names, b.Owner)
	}
	return names
}

func TestBlockers_Upgrade_ExcludeOwnHold(t *testing.T) {
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

func TestHandOver_ClaimNotTaken_IsMeasured(t *testing.T) {
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

// B was granted the resource and never took it. C names B without a fence, since no hold's end let C in.
func TestHandOver_ClaimNeverTaken_LastsUntilTheGrant(t *testing.T) {
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

func TestBlockers_Last_EndedAtTheGrant(t *testing.T) {
	t.Parallel()
	s := &scene{}
	s.hold("r", "A", 1, 0, 1000, nil)
	s.hold("r", "B", 2, 1000, 2000, nil)
	s.wait("r", "C", 3, 500, 2000, nil, heldBy("A", 1)) // the hold that C saw when it came
	s.hold("q", "X", 1, 0, 900, nil)
	s.hold("q", "Y", 2, 0, 1010, nil)
	s.wait("q", "Z", 3, 500, 1000, nil, heldBy("Y", 2)) // Y's end let it in; the clock ran backwards
	shared := attrs{telemetry.Mode: "shared"}
	s.hold("pool", "K", 1, 0, 990, shared)
	s.hold("pool", "L", 2, 0, 600, shared)
	s.hold("pool", "M", 3, 0, 1005, shared) // ended later, and so let no waiter in
	s.wait("pool", "N", 4, 500, 1000, attrs{telemetry.Mode: "shared", telemetry.Limit: 3}, heldBy("L", 2))
	r := s.report(t)
	for _, w := range r.Waits {
		for _, b := range w.Blockers {
			require.Equal(t, b.Owner == map[string]string{"r": "B", "q": "Y", "pool": "K"}[w.Resource], b.Last, "%s: %s", w.Owner, b.Owner)
		}
	}
}

// spanName returns the name of a kind's spans.
func spanName(kind spanKind) string {
	for name, k := range kindOf {
		if k == kind {
			return name
		}
	}
	return ""
}

// madeSpans returns spans as if they had been read.
func madeSpans(spans []parsedSpan) *Spans {
	s := newSpans(MaxSpans)
	for i := range spans {
		spans[i].id = spanID{0: 1, 4: byte(i >> 24), 5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i)}
		batch{spans: s}.add(&spans[i])
	}
	_ = s.finish() // they are few
	return s
}

// analyzed returns the report of spans.
func analyzed(t require.TestingT, spans *Spans, o Options) *Report {
	r, err := Analyze(context.Background(), spans, o)
	require.NoError(t, err)
	return r
}

func madeSpan(kind spanKind, resource, lockID, mode string, fence, from, to int64) parsedSpan {
	return parsedSpan{name: spanName(kind), lockSpan: lockSpan{
		kind: kind, start: 1e18 + from, end: 1e18 + to, resource: resource, lockID: lockID, mode: mode, outcome: telemetry.OutcomeGranted,
		fence: fence, position: fence, // the position is for fenceOf
	}}
}

// Holds follow one another on one or two resources, alone or several at a time, while requests wait; others come at any time. Owners
// return, or have several holds at a time; sometimes clocks differ. Some waits name holds.
func TestBlockers_RandomSpans_EqualBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := func(from, to int, of string) int { return rapid.IntRange(from, to).Draw(t, of) }
		limit, owners := rapid.SampledFrom([]int64{0, 5}).Draw(t, "limit"), rapid.SampledFrom([]int{5, 12, 500}).Draw(t, "owners")
		resources, alone := number(1, 2, "resources"), rapid.SampledFrom([]int{0, 1, 5, 9}).Draw(t, "alone")
		var spans []parsedSpan
		add := func(k spanKind, id string, fence, from, to int64) {
			mode := "shared"
			if number(0, 8, "mode") < alone {
				mode = "exclusive"
			}
			s := madeSpan(k, fmt.Sprint("r", number(1, resources, "resource")), id, mode, fence, from, to)
			s.owner = fmt.Sprint(number(0, owners, "owner"))
			if s.limit = limit; limit > 0 {
				s.part = limited
			}
			spans = append(spans, s)
		}
		longest := rapid.SampledFrom([]int64{9, 40}).Draw(t, "longest")
		at, n := int64(0), number(0, 30, "holds")
		for i := range n {
			id, fence := fmt.Sprint("h", number(0, 2*n, "id")), int64(10*i+1)
			if rapid.Bool().Draw(t, "waited") { // and was granted when the previous hold ended
				add(kindWait, id, fence, rapid.Int64Range(0, at).Draw(t, "since"), at)
			}
			from := max(0, at+rapid.SampledFrom([]int64{0, 0, 0, 1, 2, -3}).Draw(t, "late"))
			length := rapid.Int64Range(0, longest).Draw(t, "length")
			add(kindHold, id, fence, from, from+length)
			if at += rapid.Int64Range(0, 5).Draw(t, "next"); longest == 9 && rapid.Bool().Draw(t, "one after another") {
				at = from + length
			}
		}
		for range number(0, 10, "others") {
			from := rapid.Int64Range(0, at).Draw(t, "from")
			add(rapid.SampledFrom([]spanKind{kindHold, kindWait, kindWait}).Draw(t, "kind"), fmt.Sprint("h", number(0, 2*n, "id")),
				int64(number(1, 10*n+10, "fence")), from, from+rapid.Int64Range(0, at).Draw(t, "length"))
		}
		for i := range spans {
			s := &spans[i]
			for range number(0, 2, "names") {
				named := &spans[number(0, len(spans)-1, "named")]
				if s.kind == kindWait && named.kind == kindHold && named.resource == s.resource && named.fence < s.fence && named.lockID != s.lockID {
					s.named = append(s.named, namedHold{lockID: named.lockID, fence: named.fence})
				}
			}
		}
		requireSumsOfEveryPair(t, analyzed(t, madeSpans(spans), Options{}))
	})
}

// requireSumsOfEveryPair compares a report with the result of looking at every pair of a wait and a hold, at every nanosecond.
func requireSumsOfEveryPair(t require.TestingT, r *Report) {
	type sums struct {
		length time.Duration
		waits  int
	}
	holds, owners := make([]time.Duration, len(r.Holds)), map[string]sums{}
	for i := range r.Waits {
		w := &r.Waits[i]
		length := w.End.Sub(w.Start)
		covered, by := map[time.Duration]bool{}, map[string]map[time.Duration]bool{}
		found := 0
		for j := range r.Holds {
			h := &r.Holds[j]
			named := slices.ContainsFunc(w.Blockers, func(b Blocker) bool { return b.Hold == j && b.Named })
			at := blockedAt(r, w, h, named)
			if len(at) > 0 || named {
				found++
			}
			holds[j] += time.Duration(len(at))
			for n := range at {
				covered[n] = true
				if by[h.Owner] == nil {
					by[h.Owner] = map[time.Duration]bool{}
				}
				by[h.Owner][n] = true
			}
			if named && by[h.Owner] == nil {
				by[h.Owner] = map[time.Duration]bool{}
			}
		}
		for owner, at := range by {
			o := owners[owner]
			owners[owner] = sums{o.length + time.Duration(len(at)), o.waits + 1}
		}
		require.Equal(t, found, len(w.Blockers)+w.Omitted)
		require.InDelta(t, (length - time.Duration(len(covered))).Seconds(), w.Unexplained, 1e-12)
		require.InDelta(t, handedOver(r, w, covered).Seconds(), w.HandOver, 1e-12)
	}
	for i := range r.Holds {
		require.InDelta(t, holds[i].Seconds(), r.Holds[i].Blocked, 1e-12)
	}
	for _, o := range r.Owners {
		require.InDelta(t, owners[o.Name].length.Seconds(), o.Blocked, 1e-12, o.Name)
		require.Equal(t, owners[o.Name].waits, o.BlockedWaits, o.Name)
	}
}

// handedOver returns how long a wait lasted while no hold was in its way and another waiter had been granted the resource and not taken it.
func handedOver(r *Report, w *Wait, covered map[time.Duration]bool) (length time.Duration) {
	for n := range w.End.Sub(w.Start) {
		now := w.Start.Add(n)
		if !covered[n] && slices.ContainsFunc(r.Waits, func(x Wait) bool {
			return x.Resource == w.Resource && x.Hold >= 0 && !now.Before(x.End) && now.Before(r.Holds[x.Hold].Start)
		}) {
			length++
		}
	}
	return length
}

// blockedAt returns the nanoseconds of a wait in which a hold was in its way. A hold that the wait names always was.
func blockedAt(r *Report, w *Wait, h *Hold, named bool) map[time.Duration]bool {
	at := map[time.Duration]bool{}
	granted := fenceOf(w)
	if h.Resource != w.Resource || !named && (h.LockID == w.LockID || h.Fence >= granted) {
		return at
	}
	for n := range w.End.Sub(w.Start) {
		now := w.Start.Add(n)
		blocks := named || w.Mode == "exclusive" || h.Mode == "exclusive" || w.Part == limited
		for k := range r.Waits { // an exclusive request ahead in the queue
			x := &r.Waits[k]
			blocks = blocks || x.Resource == w.Resource && x.Mode == "exclusive" && x.Start.Before(w.Start) && x.End.After(now)
		}
		if blocks && !now.Before(h.Start) && now.Before(h.End) {
			at[n] = true
		}
	}
	return at
}

// A wait may have thousands of blockers, in any order.
func TestSelectFirst_AnyOrder_TakesFewComparisons(t *testing.T) {
	t.Parallel()
	const size = 20_000
	for name, of := range map[string]func(i int) int{
		"ascending": func(i int) int { return i }, "descending": func(i int) int { return -i }, "two runs": func(i int) int { return i % (size / 2) },
		"mixed": func(i int) int { return i * 7919 % size },
	} {
		type element struct{ value, index int }
		compare := func(x, y *element) int { return cmp.Or(cmp.Compare(x.value, y.value), cmp.Compare(x.index, y.index)) }
		for _, n := range []int{0, 1, 50, size / 2, size} {
			list := make([]element, size)
			for i := range list {
				list[i] = element{of(i), i}
			}
			sorted := slices.Clone(list)
			slices.SortFunc(sorted, func(x, y element) int { return compare(&x, &y) })
			comparisons := 0
			selectFirst(list, n, func(x, y *element) int {
				comparisons++
				return compare(x, y)
			})
			require.ElementsMatch(t, sorted[:min(n, 50)], sortedFirst(list[:n], 50, compare), name)
			require.Less(t, comparisons, 12*size, "%s: sorting takes 14 for each element", name)
		}
	}
}

func sortedFirst[T any](list []T, n int, compare func(x, y *T) int) []T {
	slices.SortFunc(list, func(x, y T) int { return compare(&x, &y) })
	return list[:min(n, len(list))]
}

// limited is the part of waits with a limit.
const limited = "limited"

// fenceOf returns the fence of a wait, which madeSpan stores as its position.
func fenceOf(w *Wait) int64 { return int64(w.Position) }

// 5,000 requests wait for a semaphore of 50. Each wait lists the longest of its blockers and the last; the sums include all.
func TestBlockers_LongSemaphoreQueue_AreExact(t *testing.T) {
	t.Parallel()
	const n, limit, depth = 6_000, 50, 2500
	spans := make([]parsedSpan, 0, 2*n)
	for i := range int64(n) { // every 10 ns one ends and another begins
		id := fmt.Sprint(i)
		h := madeSpan(kindHold, "r", id, "shared", i+1, 10*i, 10*(i+limit))
		if i%500 == 7 {
			h.end += 20 // 20 ns longer
		}
		spans = append(spans, h)
		w := madeSpan(kindWait, "r", id, "shared", i+1, max(0, 10*(i-depth)), 10*i)
		w.limit = limit
		if i > 0 {
			spans = append(spans, w)
		}
	}
	r := analyzed(t, madeSpans(spans), Options{})
	last := &r.Waits[len(r.Waits)-1]
	require.Equal(t, depth+limit-1, len(last.Blockers)+last.Omitted, "more than are looked at one by one")
	require.Zero(t, last.Unexplained)
	i := slices.IndexFunc(last.Blockers, func(b Blocker) bool { return b.Last })
	require.Equal(t, fmt.Sprint(n-1-limit), last.Blockers[i].LockID)
	long := 0
	for _, b := range last.Blockers {
		if r.Holds[b.Hold].End.Sub(r.Holds[b.Hold].Start) == 10*limit+20 {
			long++
		}
	}
	require.Equal(t, 5, long, "those that were longest in its way")
	h := &r.Holds[n/2]
	require.InDelta(t, 10*limit*float64(depth)/1e9, h.Blocked, 2*10*limit*float64(limit)/1e9)
}

func inPool(member string, priority int) attrs {
	a := attrs{telemetry.Mode: "pool", telemetry.Member: member}
	if priority > 0 {
		a[telemetry.Priority] = priority
	}
	return a
}

// onePool is a pool of two members, one of which is wanted by two.
func onePool() *scene {
	s := &scene{}
	s.hold("phones", "A", 1, 0, 1000, inPool("phone-1", 0))
	s.hold("phones", "B", 2, 0, 5000, inPool("phone-2", 0))
	s.wait("phones", "C", 3, 400, 1000, inPool("phone-1", 1), heldBy("A", 1))
	s.hold("phones", "C", 3, 1000, 2000, inPool("phone-1", 1))
	s.wait("phones", "D", 4, 100, 2000, inPool("phone-1", 0), heldBy("A", 1), heldBy("C", 3))
	s.hold("phones", "D", 4, 2000, 2500, inPool("phone-1", 0))
	return s
}

func TestMembersAndPriorities_HaveTheirWaits(t *testing.T) {
	t.Parallel()
	r := onePool().report(t)
	require.Len(t, r.Members, 2)
	first, second := r.Members[0], r.Members[1]
	require.Equal(t, []string{"phones", "phone-1", "phone-2"}, []string{first.Resource, first.Name, second.Name})
	require.Equal(t, 2, first.Wait.Count)
	require.InDelta(t, 2.5, first.Wait.Total, 1e-9)
	require.Equal(t, 3, first.Hold.Count)
	require.InDelta(t, 2.5, first.Hold.Total, 1e-9)
	require.Zero(t, second.Wait.Count)
	require.InDelta(t, 5, second.Hold.Max, 1e-9)
	require.Len(t, r.Priorities, 2)
	require.Equal(t, []int{1, 3}, []int{r.Priorities[0].Priority, r.Priorities[1].Priority})
	require.InDelta(t, 0.6, r.Priorities[0].Wait.Total, 1e-9)
	require.InDelta(t, 1.9, r.Priorities[1].Wait.Total, 1e-9)
	require.Equal(t, "phone-1", r.Waits[0].Member)
	require.Equal(t, 3, r.Waits[0].Priority)

	var table strings.Builder
	require.NoError(t, WriteTable(&table, r, 10))
	require.Regexp(t, `MEMBERS OF POOLS.*\n.*\n +phone-1 +phones +2 +2.5 s +1.9 s +3 +2.5 s +1.0 s\n +phone-2 +phones +0 +- +- +1 +5.0 s +5.0 s\n`, table.String())
	require.Regexp(t, `WAITS BY PRIORITY.*\n.*\n +1 +1 +600 ms .*\n +3 +1 +1.9 s `, table.String())
	require.Empty(t, threeInARow().report(t).Priorities)
}

// The grant of one member does not end the draining of another.
func TestBlockers_DrainingMember_IsNotEndedByGrantOfAnother(t *testing.T) {
	t.Parallel()
	s := &scene{}
	drains := sceneEvent{telemetry.EventDrained, 3000, nil}
	s.add(telemetry.SpanHold, 0, 1000, about("phones", "A", attrs{
		telemetry.Fence: 1, telemetry.Outcome: telemetry.OutcomeRevoked, telemetry.Mode: "pool", telemetry.Member: "phone-1",
	}), drains)
	s.hold("phones", "B", 2, 1500, 2000, inPool("phone-2", 0))
	s.wait("phones", "C", 3, 1200, 3000, inPool("phone-1", 0))
	r := s.report(t)
	require.Equal(t, "A", r.Waits[0].Blockers[0].Owner)
	require.InDelta(t, 1.8, r.Waits[0].Blockers[0].To, 1e-9)
}
