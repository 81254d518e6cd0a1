package lockcoretest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// crowd does random operations on one document.
type crowd struct {
	rng *rand.Rand
	doc rules.Document
	now time.Time
	// order is the last that was used.
	order int64
}

var crowdPolicy = rules.Policy{ClaimTTL: 3_000}

func newCrowd(seed uint64) *crowd {
	return &crowd{rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *crowd) request() rules.Acquire {
	c.order++
	op := rules.Acquire{
		Policy: crowdPolicy, Resource: "r", LockID: fmt.Sprint("l", c.rng.IntN(4)), Part: fmt.Sprint("p", c.rng.IntN(2)), Order: c.order,
		Mode: rules.Exclusive, TTL: 10_000, HoldTTL: 20_000, Persist: c.rng.IntN(3) == 0, Queue: true, Reacquire: true,
		WaiterTTL: 30_000, HeardIn: []int64{0, 2_000, 5_000}[c.rng.IntN(3)], MaxWaiters: 10,
	}
	if c.rng.IntN(2) == 0 {
		op.Mode, op.Limit = rules.Shared, int64(c.rng.IntN(3))
	}
	c.ofRun(&op)
	return op
}

// ofRun makes two of the lock IDs those of a workflow, and of a step within it. Requests of the workflow undo each other.
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

func (c *crowd) step() {
	c.now = c.now.Add(time.Duration(c.rng.IntN(4_000)) * time.Millisecond)
	op := c.request()
	switch c.rng.IntN(8) {
	case 0:
		c.doc = Leave(c.doc, rules.Leave{Policy: crowdPolicy, Resource: "r", LockID: op.LockID, Label: op.Label, Part: op.Part, Order: op.Order}, c.now)
	case 1:
		c.doc = Release(c.doc, rules.Release{Policy: crowdPolicy, Resource: "r", LockID: op.LockID, Order: op.Order}, c.now)
	case 2:
		if len(c.doc.Waiters) > 0 {
			w := c.doc.Waiters[c.rng.IntN(len(c.doc.Waiters))]
			c.doc = Withdraw(c.doc, rules.Withdraw{Policy: crowdPolicy, Resource: "r", LockID: w.LockID, Part: w.Part, Order: w.Order, Reason: "deadlock: d"}, c.now)
		}
	case 3: // one that waits is heard of
		if len(c.doc.Waiters) > 0 {
			w := c.doc.Waiters[c.rng.IntN(len(c.doc.Waiters))]
			op.LockID, op.Part, op.Mode, op.Limit = w.LockID, w.Part, w.Mode, w.Limit
			c.ofRun(&op)
			if op.Mode == rules.Exclusive {
				op.Limit = 0
			}
			c.doc = Acquire(c.doc, op, c.now)
		}
	default:
		c.doc = Acquire(c.doc, op, c.now)
	}
}

// settles reports whether any write of a document grants a claim, to a request that could not join without it.
func settles(d rules.Document) bool {
	after := Withdraw(d, rules.Withdraw{Policy: crowdPolicy, Resource: "r", LockID: "-", Order: -1, Reason: "-"}, d.At)
	return slices.ContainsFunc(after.Entries, func(e rules.Entry) bool {
		stood := slices.ContainsFunc(d.Entries, func(b rules.Entry) bool {
			return b.State == e.State && b.LockID == e.LockID && b.Part == e.Part && b.ExpiresAt.Equal(e.ExpiresAt)
		})
		return e.State == rules.StateClaimed && !stood && !d.Joins(rules.Party{LockID: e.LockID, Mode: e.Mode, Limit: e.Limit, Labelled: e.Label != ""})
	})
}

// What rules.Next says is what the specification does.
func TestNextSaysWhatAWriteWouldDo(t *testing.T) {
	t.Parallel()
	answers := map[rules.Answer]int{}
	for seed := range uint64(100) {
		c := newCrowd(seed)
		for range 40 {
			c.step()
			d := clone(c.doc)
			d.At = c.now.Add(time.Duration(c.rng.IntN(5_000)) * time.Millisecond)
			q := d.Queue()
			require.Equal(t, settles(d), q.Due(), "seed %d: %+v", seed, d)
			op := c.request()
			if len(d.Waiters) > 0 && c.rng.IntN(4) > 0 {
				w := d.Waiters[c.rng.IntN(len(d.Waiters))]
				op.LockID, op.Part = w.LockID, w.Part
			}
			c.ofRun(&op)
			op.Undo = nil                 // what it undoes it has undone when it queued
			for _, w := range d.Waiters { // a request does not change its mode while it waits
				if w.LockID == op.LockID && w.Part == op.Part {
					op.Mode, op.Limit = w.Mode, w.Limit
				}
			}
			if op.Mode == rules.Exclusive {
				op.Limit = 0
			}
			look := rules.Next(&d, op.Waiter())
			answers[look.Answer]++
			after := Acquire(d, op, d.At)
			asked := after.Last.Outcome
			claim := after.Claim(op.LockID, op.Part)
			granted := slices.Contains([]rules.Outcome{rules.Granted, rules.Joined, rules.Again}, asked) || (claim != nil && claim.Stands(d.At))
			switch look.Answer {
			case rules.NextGo: // a claim for which there is no room any more makes a place again
				granted = granted || (d.Claim(op.LockID, op.Part) != nil && asked == rules.Queued)
				require.True(t, granted, "seed %d: %s for %+v in %+v", seed, asked, op, d)
			case rules.NextWait:
				require.False(t, granted, "seed %d: %s for %+v in %+v", seed, asked, op, d)
			}
			// Until then nothing changes by itself.
			if look.After > 0 {
				before := clone(d)
				before.At = d.At.Add(look.After - time.Millisecond)
				require.Equal(t, look.Answer, rules.Next(&before, op.Waiter()).Answer, "seed %d: %+v in %+v", seed, op, d)
				require.Equal(t, q.Due(), before.Queue().Due(), "seed %d: %+v", seed, d)
			}
		}
	}
	for _, a := range []rules.Answer{rules.NextWait, rules.NextGo, rules.NextSettle, rules.NextGone} {
		require.Greater(t, answers[a], 20, "answer %d is hardly met: %v", a, answers)
	}
}
