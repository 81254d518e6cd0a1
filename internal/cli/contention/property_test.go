package contention

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// spanName is the name of a kind's spans.
func spanName(kind spanKind) string {
	for name, k := range kindOf {
		if k == kind {
			return name
		}
	}
	return ""
}

// madeSpans are spans as if they had been read.
func madeSpans(spans []parsedSpan) *Spans {
	s := newSpans()
	for i := range spans {
		spans[i].id = spanID{0: 1, 4: byte(i >> 24), 5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i)}
		batch{spans: s}.add(&spans[i])
	}
	_ = s.finish() // they are few
	return s
}

// analyzed is the report of spans.
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

// The blockers of random holds and waits are those that looking at every pair gives, and explained and unexplained are the wait.
func TestBlockersAreThoseOfEveryPair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(k spanKind) []parsedSpan {
			n := rapid.IntRange(0, 30).Draw(t, "n")
			spans := make([]parsedSpan, n)
			for i := range spans {
				from := rapid.Int64Range(0, 100).Draw(t, "from")
				spans[i] = madeSpan(k, rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "resource"), fmt.Sprintf("%d", rapid.IntRange(0, 5).Draw(t, "id")),
					rapid.SampledFrom([]string{"shared", "exclusive"}).Draw(t, "mode"), rapid.Int64Range(1, 40).Draw(t, "fence"),
					from, from+rapid.Int64Range(0, 60).Draw(t, "length"))
			}
			return spans
		}
		r := analyzed(t, madeSpans(append(draw(kindHold), draw(kindWait)...)), Options{})
		requireSumsOfEveryPair(t, r)
	})
}

// So are they where holds follow one another and many wait, with a few holds in between that do not fit in.
func TestBlockersOfQueuesAreThoseOfEveryPair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		owner := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "owner")) })
		var spans []parsedSpan
		add := func(k spanKind, id, mode string, fence, from, to int64) {
			s := madeSpan(k, "r", id, mode, fence, from, to)
			s.owner = owner.Draw(t, "owner")
			spans = append(spans, s)
		}
		at, n := int64(0), rapid.IntRange(5, 30).Draw(t, "holds")
		for i := range n {
			from, id, fence := at+rapid.Int64Range(0, 2).Draw(t, "gap"), fmt.Sprint("h", i), int64(10*i+1)
			if rapid.Bool().Draw(t, "waited") { // and was let in when the one before left
				add(kindWait, id, "exclusive", fence, rapid.Int64Range(0, at).Draw(t, "since"), at)
			}
			at = from + rapid.Int64Range(1, 9).Draw(t, "length")
			add(kindHold, id, "exclusive", fence, from, at)
		}
		mode := rapid.SampledFrom([]string{"shared", "exclusive"})
		for range rapid.IntRange(0, 3).Draw(t, "others") {
			from := rapid.Int64Range(0, at).Draw(t, "from")
			add(kindHold, fmt.Sprint("o", len(spans)), mode.Draw(t, "mode"), rapid.Int64Range(1, int64(10*n)).Draw(t, "fence"), from, from+rapid.Int64Range(0, at).Draw(t, "length"))
		}
		for range rapid.IntRange(1, 10).Draw(t, "waits") {
			from := rapid.Int64Range(0, at).Draw(t, "from")
			id := fmt.Sprint(rapid.SampledFrom([]string{"h", "w"}).Draw(t, "id"), rapid.IntRange(0, n).Draw(t, "id"))
			add(kindWait, id, mode.Draw(t, "mode"), rapid.Int64Range(1, int64(10*n)).Draw(t, "fence"), from, rapid.Int64Range(from, at).Draw(t, "to"))
		}
		// Some name holds, which stand in their row or beside it.
		for i := range spans {
			named := &spans[rapid.IntRange(0, len(spans)-1).Draw(t, "named")]
			if spans[i].kind == kindWait && named.kind == kindHold && named.mode == "exclusive" && rapid.Bool().Draw(t, "names") && named.fence < spans[i].fence {
				spans[i].named = []namedHold{{lockID: named.lockID, fence: named.fence}}
			}
		}
		requireSumsOfEveryPair(t, analyzed(t, madeSpans(spans), Options{}))
	})
}

// requireSumsOfEveryPair looks at every pair of a wait and a hold, at every instant.
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

// handedOver is for how long a wait lasted while nobody was in its way and somebody had been let in who did not hold yet.
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

// blockedAt are the nanoseconds of a wait in which a hold was in its way, as it was all the time where the wait names it.
func blockedAt(r *Report, w *Wait, h *Hold, named bool) map[time.Duration]bool {
	at := map[time.Duration]bool{}
	granted := fenceOf(w)
	if h.Resource != w.Resource || !named && (h.LockID == w.LockID || h.Fence >= granted) {
		return at
	}
	for n := range w.End.Sub(w.Start) {
		now := w.Start.Add(n)
		blocks := named || w.Mode == "exclusive" || h.Mode == "exclusive" || w.Part == limited
		for k := range r.Waits { // who stands before it, and wants all
			x := &r.Waits[k]
			blocks = blocks || x.Resource == w.Resource && x.Mode == "exclusive" && x.Start.Before(w.Start) && x.End.After(now)
		}
		if blocks && !now.Before(h.Start) && now.Before(h.End) {
			at[n] = true
		}
	}
	return at
}

// limited is the part of waits that asked with a limit.
const limited = "limited"

// fenceOf is that of a wait of [TestBlockersAreThoseOfEveryPair].
func fenceOf(w *Wait) int64 { return int64(w.Position) }
