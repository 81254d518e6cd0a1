package rules_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// settles reports whether any write of a document grants a waiter the resource.
func settles(d *rules.Document) bool {
	after, _ := rules.Settle{Policy: policy, Resource: "r"}.Apply(d, d.At)
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
		for i := range 40 {
			now = now.Add(time.Duration(pick(8_000)) * time.Millisecond)
			d, _ = random(pick, d, i).Apply(d, now)
			d.At = now.Add(time.Duration(pick(5_000)) * time.Millisecond)
			q := d.Queue()
			require.Equal(t, settles(d), q.Due(), "seed %d: %+v", seed, d)
			op := randomAcquire(pick, rules.Acquire{Policy: policy, Resource: "r", Caller: rules.Caller{LockID: []string{"w", "a", "w/1", "b"}[pick(4)], Part: "p", Order: int64(i + 5)}})
			op.Queue, op.Reacquire, op.HeldSince, op.Refresh, op.TakeOver = true, true, 0, false, ""
			if len(d.Waiters) > 0 && pick(4) > 0 {
				w := d.Waiters[pick(len(d.Waiters))]
				op.LockID, op.Part = w.LockID, w.Part
			}
			for _, w := range d.Waiters { // a request does not change while it waits
				if w.LockID == op.LockID && w.Part == op.Part {
					op.Run, op.Within, op.Saga, op.Mode, op.Limit, op.HoldOnly = w.Run, w.Within, w.Saga, w.Mode, w.Limit, w.Hold != nil
				}
			}
			op.Keep = op.Keep || op.HoldOnly
			if op.Mode == rules.Exclusive {
				op.Limit = 0
			}
			look := rules.Next(d, op.Waiter())
			answers[look.Answer]++
			after, asked := op.Apply(d, d.At)
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
	d, _ := rules.Raise{Policy: policy, Resource: "r", LockID: "a", Run: "one", Saga: "s", Order: 2}.Apply(nil, start)
	d, _ = rules.Acquire{Policy: policy, Resource: "r", Call: "c", Caller: rules.Caller{LockID: "a", Run: "one", Part: "p", Order: 3}, Mode: rules.Exclusive}.Apply(d, start)
	op := rules.Acquire{Caller: rules.Caller{LockID: "a", Run: "one", Part: "q", Order: 2, Saga: "s"}, Mode: rules.Exclusive}
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)

	keeps := rules.Acquire{Policy: policy, Resource: "r", Call: "c", Caller: rules.Caller{LockID: "a", Run: "one", Part: "p", Order: 3}, Mode: rules.Exclusive, Keep: true, HoldTTL: 60_000}
	d, _ = keeps.Apply(nil, start)
	d, _ = rules.Raise{Policy: policy, Resource: "r", LockID: "a", Run: "one", Saga: "s", Order: 2}.Apply(d, start)
	require.Empty(t, d.Bars, "it is in the hold")
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)
	op.LockID, op.Within = "a/1", "a"
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)
}
