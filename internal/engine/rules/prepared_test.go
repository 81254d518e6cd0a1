package rules_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

// A prepared document must give the answers of the document itself, also for documents that no operation leaves.
func TestWaits_RandomDocuments_MatchesDocument(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	found, ahead := 0, 0
	for seed := range uint64(20_000) {
		d := scenarios.Damaged(rand.New(rand.NewPCG(seed, 2)).IntN, now)
		d.At = now
		queue := d.Queue()
		for i := range d.Waiters {
			wantEntries, wantAhead := blockers(d, i)
			entries, first := queue.Blockers(i, math.MaxInt)
			require.Equal(t, wantEntries, entries, "seed %d, waiter %d", seed, i)
			require.Same(t, wantAhead, first, "seed %d, waiter %d", seed, i)
			found += min(1, len(entries))
			if first != nil {
				ahead++
			}
			few, _ := queue.Blockers(i, 1)
			require.Len(t, few, min(1, len(wantEntries)))
			w := &d.Waiters[i]
			if next := queue.Next(w); queue.NeedsNoClaim(w.Party()) && next.Answer != rules.NextGone {
				require.Equal(t, rules.NextGo, next.Answer, "seed %d, waiter %d", seed, i)
			}
		}
		waiting := 0
		for i := range d.Waiters {
			if d.Waiters[i].Waits(now) {
				waiting++
			}
		}
		require.Equal(t, waiting, queue.Waiting)
	}
	require.Positive(t, found)
	require.Positive(t, ahead)
}

// blockers is the plain form of Queue.Blockers: a pass over the document for each waiter.
func blockers(d *rules.Document, waiter int) (entries []*rules.Entry, ahead *rules.Waiter) {
	w := &d.Waiters[waiter]
	if entries = d.Blockers(w.Party()); len(entries) > 0 || d.Joins(w.Party()) {
		return entries, nil
	}
	for i := waiter - 1; i >= 0; i-- {
		a := &d.Waiters[i]
		if a.LockID == w.LockID || !d.Precedes(a) {
			continue
		}
		if ahead = a; !rules.Compatible(a.Mode, w.Mode) {
			return nil, a
		}
	}
	return nil, ahead
}
