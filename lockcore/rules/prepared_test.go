package rules_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// A prepared document must give the answers of the document itself, also for documents that no operation leaves.
func TestWaits_RandomDocuments_MatchesDocument(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	found, ahead := 0, 0
	for seed := range uint64(20_000) {
		d := scenarios.Damaged(rand.New(rand.NewPCG(seed, 2)).IntN, now)
		d.At = now
		waits, queue := d.Waits(), d.Queue()
		for i := range d.Waiters {
			wantEntries, wantAhead := d.Blockers(i)
			entries, first := waits.Blockers(i, math.MaxInt)
			require.Equal(t, wantEntries, entries, "seed %d, waiter %d", seed, i)
			require.Same(t, wantAhead, first, "seed %d, waiter %d", seed, i)
			found += min(1, len(entries))
			if first != nil {
				ahead++
			}
			few, _ := waits.Blockers(i, 1)
			require.Len(t, few, min(1, len(wantEntries)))
			w := &d.Waiters[i]
			if next := queue.Next(w); d.NeedsNoClaim(w.Party()) && next.Answer != rules.NextGone {
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

// shared returns a document with shared holders and exclusive waiters.
func shared(holders, waiters int) *rules.Document {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	d := &rules.Document{ID: "r", At: now}
	for i := range holders {
		d.Entries = append(d.Entries, rules.Entry{
			LockID: fmt.Sprint("holder", i), Part: "p", Order: 1, Mode: rules.Shared, State: rules.StateRunning, ExpiresAt: now.Add(time.Minute), Fence: int64(i + 1),
		})
	}
	for i := range waiters {
		d.Waiters = append(d.Waiters, rules.Waiter{
			LockID: fmt.Sprint("waiter", i), Part: "p", Order: 1, Mode: rules.Exclusive, Limit: 1,
			Since: now, OverdueAt: now.Add(time.Minute), ExpiresAt: now.Add(time.Minute),
		})
	}
	return d
}

// Asking for every waiter must not cost waiters × holders: twice as many of both may allocate about twice as much.
func TestQueue_ManyHoldersAndWaiters_AllocatesInProportion(t *testing.T) {
	bytes := func(n int) int64 {
		d := shared(n, n)
		return testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				q := d.Queue()
				for i := range d.Waiters {
					if q.Next(&d.Waiters[i]).Answer != rules.NextWait {
						b.Fatal("a waiter does not wait")
					}
				}
			}
		}).AllocedBytesPerOp()
	}
	small, large := bytes(100), bytes(400)
	require.Less(t, float64(large)/float64(small), 6.0, "%d and %d bytes", small, large)
}
