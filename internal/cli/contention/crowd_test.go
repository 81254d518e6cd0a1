package contention

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A semaphore's blockers, too, are those that looking at every pair gives: many hold beside one another, many wait, owners come back, or have several
// holds at a time, and clocks are off now and then. Some want the resource alone.
func TestBlockersOfSemaphoresAreThoseOfEveryPair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		owners := rapid.SampledFrom([]int{10, 500}).Draw(t, "owners")
		owner := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, owners).Draw(t, "owner")) })
		alone := rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "alone")
		mode := rapid.Custom(func(t *rapid.T) string {
			if rapid.IntRange(0, 9).Draw(t, "mode") < alone {
				return "exclusive"
			}
			return "shared"
		})
		n := rapid.IntRange(10, 40).Draw(t, "holds")
		var spans []parsedSpan
		add := func(k spanKind, id string, fence, from, to int64) *parsedSpan {
			s := madeSpan(k, "r", id, mode.Draw(t, "mode"), fence, from, to)
			s.owner = owner.Draw(t, "owner")
			s.limit, s.part = 5, limited
			spans = append(spans, s)
			return &spans[len(spans)-1]
		}
		at := int64(0)
		for i := range n {
			id, fence := fmt.Sprint("h", rapid.IntRange(0, 2*n).Draw(t, "id")), int64(10*i+1)
			if rapid.Bool().Draw(t, "waited") {
				add(kindWait, id, fence, rapid.Int64Range(0, at).Draw(t, "since"), at)
			}
			from := max(0, at+rapid.SampledFrom([]int64{0, 0, 0, 1, 2, -3}).Draw(t, "late"))
			add(kindHold, id, fence, from, from+rapid.Int64Range(0, 40).Draw(t, "length"))
			at += rapid.Int64Range(0, 5).Draw(t, "next")
		}
		for i := range spans {
			for range rapid.IntRange(0, 3).Draw(t, "names") {
				named := &spans[rapid.IntRange(0, len(spans)-1).Draw(t, "named")]
				if spans[i].kind == kindWait && named.kind == kindHold && named.fence < spans[i].fence && named.lockID != spans[i].lockID {
					spans[i].named = append(spans[i].named, namedHold{lockID: named.lockID, fence: named.fence})
				}
			}
		}
		r := analyzed(t, madeSpans(spans), Options{})
		requireSumsOfEveryPair(t, r)
	})
}

// A semaphore whose 50 places 5,000 wait for: each wait keeps those that were longest in its way, and whose end let it in; the sums have all.
func TestCrowdsAreSummedUp(t *testing.T) {
	t.Parallel()
	const n, limit, depth = 20_000, 50, 5000
	spans := make([]parsedSpan, 0, 2*n)
	for i := range int64(n) { // one ends each 10 ns, and so one begins
		id := fmt.Sprint(i)
		h := madeSpan(kindHold, "r", id, "shared", i+1, 10*i, 10*(i+limit))
		if i%1000 == 7 {
			h.end += 20 // stands 2 longer
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

// Holds that follow one another and such as stand beside one another may be in one wait's way, at the same time too where clocks are off.
func TestWhatTheRowAndTheCrowdCoverCountsOnce(t *testing.T) {
	t.Parallel()
	var spans []parsedSpan
	for i := range int64(20) {
		spans = append(spans,
			madeSpan(kindHold, "r", fmt.Sprint("x", i), "exclusive", 2*i+1, 10*i, 10*i+6),
			madeSpan(kindHold, "r", fmt.Sprint("s", i), "shared", 2*i+2, 10*i+4, 10*i+9))
	}
	for i := range int64(5) {
		spans = append(spans, madeSpan(kindWait, "r", fmt.Sprint("w", i), "exclusive", 100+i, 7*i, 200+i))
	}
	granted := madeSpan(kindWait, "r", "x3", "exclusive", 7, 5, 25) // it was not taken for 5 ns, in which others held
	spans = append(spans, granted)
	requireSumsOfEveryPair(t, analyzed(t, madeSpans(spans), Options{}))
}
