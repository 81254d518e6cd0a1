package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

var crowdPolicy = rules.Policy{ClaimTTL: 3_000}

// crowd does random operations on one document.
type crowd struct {
	rng   *rand.Rand
	doc   *rules.Document
	now   time.Time
	order int64
}

func (c *crowd) request() rules.Acquire {
	c.order++
	op := rules.Acquire{
		Policy: crowdPolicy, Resource: "r", Call: fmt.Sprint("call-", c.order), LockID: fmt.Sprint("l", c.rng.IntN(4)), Part: fmt.Sprint("p", c.rng.IntN(2)),
		Order: c.order, Mode: rules.Exclusive, TTL: 10_000, HoldTTL: 20_000, Persist: c.rng.IntN(3) == 0, Queue: true, Reacquire: true,
		WaiterTTL: 30_000, NextRefresh: []int64{0, 2_000, 5_000}[c.rng.IntN(3)], MaxWaiters: 10,
	}
	if c.rng.IntN(2) == 0 {
		op.Mode, op.Limit = rules.Shared, int64(c.rng.IntN(3))
	}
	c.ofRun(&op)
	op.HoldOnly = op.Persist && c.rng.IntN(4) == 0
	return op
}

// ofRun makes two of the lock IDs those of a workflow and of a step within it. Requests of the
// workflow undo each other.
func (c *crowd) ofRun(op *rules.Acquire) {
	op.Label, op.Within, op.Undo = "", "", nil
	switch op.LockID {
	case "l0":
		op.Label = "run"
		if c.rng.IntN(6) == 0 {
			op.Undo = []string{map[string]string{"p0": "p1", "p1": "p0"}[op.Part]}
		}
	case "l1":
		op.Label, op.Within, op.Persist = "run", "l0", false
	}
}

func (c *crowd) apply(op rules.Op) { c.doc, _ = op.Apply(c.doc, c.now) }

func (c *crowd) step() {
	c.now = c.now.Add(time.Duration(c.rng.IntN(4_000)) * time.Millisecond)
	op := c.request()
	var w rules.Waiter
	if len(c.doc.Waiters) > 0 {
		w = c.doc.Waiters[c.rng.IntN(len(c.doc.Waiters))]
	}
	switch kind := c.rng.IntN(8); {
	case kind == 0:
		c.apply(rules.Leave{Policy: crowdPolicy, Resource: "r", LockID: op.LockID, Label: op.Label, Part: op.Part, Order: op.Order})
	case kind == 1:
		c.apply(rules.Release{Policy: crowdPolicy, Resource: "r", LockID: op.LockID, Order: op.Order})
	case kind == 2 && w.LockID != "":
		c.apply(rules.Withdraw{Policy: crowdPolicy, Resource: "r", LockID: w.LockID, Part: w.Part, Order: w.Order, Reason: "deadlock: d"})
	case kind == 3 && w.LockID != "": // a waiter asks again
		op.LockID, op.Part, op.Mode, op.Limit = w.LockID, w.Part, w.Mode, w.Limit
		c.ofRun(&op)
		c.apply(op)
	default:
		c.apply(op)
	}
}

// settles reports whether any write of a document grants a waiter the resource that could not join
// without it.
func settles(d *rules.Document) bool {
	after, _ := rules.Settle{Policy: crowdPolicy, Resource: "r"}.Apply(d, d.At)
	return slices.ContainsFunc(after.Entries, func(e rules.Entry) bool {
		existed := slices.ContainsFunc(d.Entries, func(b rules.Entry) bool {
			return b.State == e.State && b.LockID == e.LockID && b.Part == e.Part && b.ExpiresAt.Equal(e.ExpiresAt)
		})
		return e.ClaimedAt != nil && !existed && !d.Joins(rules.Party{LockID: e.LockID, Mode: e.Mode, Limit: e.Limit, Labelled: e.Label != ""})
	})
}

// Next must predict the answer to a request.
func TestNext_RandomDocuments_AgreesWithAcquire(t *testing.T) {
	t.Parallel()
	answers := map[rules.Answer]int{}
	for seed := range uint64(100) {
		c := &crowd{rng: rand.New(rand.NewPCG(seed, 0)), doc: &rules.Document{}, now: start}
		for range 40 {
			c.step()
			d := c.doc.Clone()
			d.At = c.now.Add(time.Duration(c.rng.IntN(5_000)) * time.Millisecond)
			q := d.Queue()
			require.Equal(t, settles(d), q.Due(), "seed %d: %+v", seed, d)
			op := c.request()
			if len(d.Waiters) > 0 && c.rng.IntN(4) > 0 {
				w := d.Waiters[c.rng.IntN(len(d.Waiters))]
				op.LockID, op.Part = w.LockID, w.Part
			}
			c.ofRun(&op)
			op.Undo = nil                 // it has done so when it queued
			for _, w := range d.Waiters { // a request does not change while it waits
				if w.LockID == op.LockID && w.Part == op.Part {
					op.Mode, op.Limit, op.HoldOnly = w.Mode, w.Limit, w.Hold != nil
				}
			}
			op.Persist = op.Persist || op.HoldOnly
			if op.Mode == rules.Exclusive {
				op.Limit = 0
			}
			look := rules.Next(d, op.Waiter())
			answers[look.Answer]++
			after, asked := op.Apply(d, d.At)
			claim, kept := after.Claim(op.LockID, op.Part), after.Kept(op.LockID)
			granted := slices.Contains([]rules.Outcome{rules.Granted, rules.Joined, rules.Again}, asked.Outcome) || (claim != nil && claim.Alive(d.At)) ||
				(kept != nil && kept.ClaimedAt != nil && kept.ClaimedAt.Equal(d.At))
			switch look.Answer {
			case rules.NextGo: // a claim without room becomes a waiter again
				granted = granted || (d.Claim(op.LockID, op.Part) != nil && asked.Outcome == rules.Queued)
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
	d, _ := rules.Raise{Policy: crowdPolicy, Resource: "r", LockID: "a", Label: "one", Saga: "s", Order: 2}.Apply(nil, start)
	d, _ = rules.Acquire{Policy: crowdPolicy, Resource: "r", Call: "c", LockID: "a", Label: "one", Part: "p", Order: 3, Mode: rules.Exclusive}.Apply(d, start)
	op := rules.Acquire{LockID: "a", Label: "one", Saga: "s", Part: "q", Order: 2, Mode: rules.Exclusive}
	require.Equal(t, rules.ReasonBarred, rules.Next(d, op.Waiter()).By.Reason)
}
