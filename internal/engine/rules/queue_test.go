package rules_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

// settles reports whether any write of a document grants a waiter the resource.
func settles(d *rules.Document, settings rules.Settings) bool {
	after, _ := rules.Settle{Resource: "r"}.Apply(d, d.At, settings)
	return slices.ContainsFunc(after.Entries, func(e rules.Entry) bool {
		existed := slices.ContainsFunc(d.Entries, func(b rules.Entry) bool {
			return b.State == e.State && b.LockID == e.LockID && b.Part == e.Part && b.ExpiresAt.Equal(e.ExpiresAt)
		})
		return e.ClaimedAt != nil && !existed
	})
}

// Next must predict the answer to a request.
func TestNext_RandomDocuments_AgreesWithAcquire(t *testing.T) {
	t.Parallel()
	answers := map[rules.Answer]int{}
	for seed := range uint64(200) {
		pick := rand.New(rand.NewPCG(seed, 0)).IntN
		d, now := &rules.Document{}, start
		policies := randomPolicies{pools: seed%2 == 1}
		for i := range 40 {
			now = now.Add(time.Duration(pick(8_000)) * time.Millisecond)
			settings := settings
			settings.Policies = policies.at(pick, now)
			d, _ = random(pick, d, i).Apply(d, now, settings)
			d.At = now.Add(time.Duration(pick(5_000)) * time.Millisecond)
			d.Policy = settings.Policies.For("r", d.At)
			q := d.Queue()
			require.Equal(t, settles(d, settings), q.Due(), "seed %d: %+v", seed, d)
			op := randomAcquire(pick, d, rules.Acquire{Resource: "r", Caller: rules.Caller{LockID: []string{"w", "a", "w/1", "b"}[pick(4)], Part: "p", Order: int64(i + 5)}})
			op.Queue, op.Reacquire, op.HeldSince, op.Refresh, op.TakeOver = true, true, 0, false, ""
			if len(d.Waiters) > 0 && pick(4) > 0 {
				w := d.Waiters[pick(len(d.Waiters))]
				op.LockID, op.Part = w.LockID, w.Part
			}
			for _, w := range d.Waiters { // a request does not change while it waits
				if w.LockID == op.LockID && w.Part == op.Part {
					op.Run, op.Within, op.Saga, op.Mode, op.Limit, op.HoldOnly = w.Run, w.Within, w.Saga, w.Mode, w.Limit, w.Hold != nil
					op.Reacquire = w.Mode != rules.Pool || w.Member != ""
				}
			}
			op.Keep = op.Keep || op.HoldOnly
			if op.Mode == rules.Exclusive {
				op.Limit = 0
			}
			if lost := d.LossEvidence(op.LockID, op.Run, op.LostSince) != nil; lost && !op.Reacquire {
				continue
			}
			look := rules.Next(d, op.Waiter())
			answers[look.Answer]++
			after, asked := op.Apply(d, d.At, settings)
			claim, kept := after.Claim(op.Caller), after.Kept(op.LockID)
			granted := slices.Contains([]rules.Outcome{rules.Granted, rules.Joined, rules.Again}, asked.Outcome) || (claim != nil && claim.Alive(d.At)) ||
				(kept != nil && kept.ClaimedAt != nil && kept.ClaimedAt.Equal(d.At))
			switch look.Answer {
			case rules.NextGo: // a claim without room becomes a waiter again
				granted = granted || (d.Claim(op.Caller) != nil && asked.Outcome == rules.Queued)
				require.True(t, granted, "seed %d: %s for %+v in %+v", seed, asked.Outcome, op, d)
			case rules.NextWait:
				require.False(t, granted, "seed %d: %s for %+v in %+v", seed, asked.Outcome, op, d)
			}
			if look.ValidFor > 0 { // until then nothing changes by time alone
				before := d.Clone()
				before.At = d.At.Add(look.ValidFor - time.Millisecond)
				before.Policy = settings.Policies.For("r", before.At)
				require.Equal(t, look.Answer, rules.Next(before, op.Waiter()).Answer, "seed %d: %+v in %+v", seed, op, d)
				require.Equal(t, q.Due(), before.Queue().Due(), "seed %d: %+v", seed, d)
			}
		}
	}
	for _, a := range []rules.Answer{rules.NextWait, rules.NextGo, rules.NextSettle, rules.NextGone} {
		require.Greater(t, answers[a], 20, "answer %d is too rare: %v", a, answers)
	}
}

func TestNext_BarredRequest_IsGone(t *testing.T) {
	t.Parallel()
	d, _ := rules.Raise{Resource: "r", LockID: "a", Run: "one", Saga: "s", Order: 2}.Apply(nil, start, settings)
	d, _ = rules.Acquire{Resource: "r", Call: "c", Caller: rules.Caller{LockID: "a", Run: "one", Part: "p", Order: 3}, Mode: rules.Exclusive}.Apply(d, start, settings)
	op := rules.Acquire{Caller: rules.Caller{LockID: "a", Run: "one", Part: "q", Order: 2, Saga: "s"}, Mode: rules.Exclusive}
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)

	keeps := rules.Acquire{Resource: "r", Call: "c", Caller: rules.Caller{LockID: "a", Run: "one", Part: "p", Order: 3}, Mode: rules.Exclusive, Keep: true, HoldTTL: 60_000}
	d, _ = keeps.Apply(nil, start, settings)
	d, _ = rules.Raise{Resource: "r", LockID: "a", Run: "one", Saga: "s", Order: 2}.Apply(d, start, settings)
	require.Empty(t, d.Bars, "it is in the hold")
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)
	op.LockID, op.Within = "a/1", "a"
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)
}

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
