package simulation

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// grantsAreDue checks each grant of a write: a claim, or a new hold without one.
func (w *world) grantsAreDue(c *command, before, after *rules.Document) {
	w.placesStay(before, after)
	for i := range after.Entries {
		e := &after.Entries[i]
		if e.State == rules.StateKept || e.State == rules.StateDraining || !isNew(before, after.At, e) {
			continue
		}
		w.limitHolds(c, before, after, e)
		w.firstComeFirstServed(c, before, after, e)
	}
}

// isNew reports whether a write granted an entry: neither the request nor its lock ID had anything before, and no claim
// stood for it.
func isNew(before *rules.Document, now time.Time, e *rules.Entry) bool {
	for i := range before.Entries {
		b := &before.Entries[i]
		if b.LockID == e.LockID && (b.Holds() || (b.Part == e.Part && (b.State == e.State || lives(b, now)))) {
			return false
		}
	}
	return true
}

// limitHolds is I2: a grant with a limit finds fewer others than that. Claims that the write of a grant makes come after it.
func (w *world) limitHolds(c *command, before, after *rules.Document, e *rules.Entry) {
	if e.Limit == 0 {
		return
	}
	others := map[string]bool{}
	within := withinOf(c, before, e)
	for i := range after.Entries {
		o := &after.Entries[i]
		later := e.State == rules.StateRunning && o.State == rules.StateClaimed && isNew(before, after.At, o)
		around := within != "" && o.State == rules.StateKept && o.LockID == within
		if o.LockID != e.LockID && !around && lives(o, after.At) && !later {
			others[o.LockID] = true
		}
	}
	if int64(len(others)) >= e.Limit {
		w.broken("I2", e.LockID, "%s was granted %s with the limit %d beside %d others", e.LockID, after.ID, e.Limit, len(others))
	}
}

// withinOf is the lock ID that the request of a grant lives within.
func withinOf(c *command, before *rules.Document, e *rules.Entry) string {
	if op, ok := c.op.(rules.Acquire); ok && op.LockID == e.LockID && op.Part == e.Part {
		return op.Within
	}
	for _, q := range before.Waiters {
		if q.LockID == e.LockID && q.Part == e.Part {
			return q.Within
		}
	}
	return ""
}

// firstComeFirstServed is I4: no request still waits that came before one that was granted. Waiters that may join and those
// that are overdue are apart. Those that slept through a claim are ahead, in the order in which they came back.
func (w *world) firstComeFirstServed(c *command, before, after *rules.Document, e *rules.Entry) {
	if before.Claim(e.LockID, e.Part) != nil {
		return // it slept through its claim, for which all ahead of it had been passed over, and no request came since
	}
	if op, ok := c.op.(rules.Acquire); ok && e.LockID == op.LockID && after.Surrounds(op.Party()) {
		return // all wait for the workflow that it lives within
	}
	came := rules.Waiter{Since: after.At}
	for i := range before.Waiters {
		if q := &before.Waiters[i]; q.LockID == e.LockID && q.Part == e.Part {
			came = *q
		}
	}
	slack := 2*w.plan.jump + time.Millisecond
	for i := range after.Waiters {
		q := &after.Waiters[i]
		if q.LockID == e.LockID || !after.Precedes(q) {
			continue
		}
		if !came.Ahead && (q.Ahead || q.Since.Add(slack).Before(came.Since)) {
			w.broken("I4", e.LockID, "%s was granted %s (%s), and %s came %v before it and still waits", e.LockID, before.ID, c, q.LockID, came.Since.Sub(q.Since))
		}
	}
}

// placesStay is the half of I4 that a request keeps the time at which it queued as long as its place stands.
func (w *world) placesStay(before, after *rules.Document) {
	for i := range after.Waiters {
		q := &after.Waiters[i]
		for j := range before.Waiters {
			b := &before.Waiters[j]
			if b.LockID == q.LockID && b.Part == q.Part && waits(b, after.At) && q.Since.After(b.Since) {
				w.broken("I4", q.LockID, "%s waits for %s since %v, and is said to have come later", q.LockID, before.ID, after.At.Sub(b.Since))
			}
		}
	}
}

// lostStaysLost is I8: a hold that was reported lost does not stand any more, ever.
func (w *world) lostStaysLost(c *command, before, after *rules.Document) {
	if after.Last.Outcome == rules.Lost {
		key := partKey{resource: after.ID, lockID: c.lockID}
		switch e := before.EvictedRecord(c.lockID, ""); {
		case before.HoldFence(c.lockID) == 0:
			w.losses[key] = max(w.losses[key], before.Fence)
		case c.kind == "acquire" && e != nil:
			w.losses[key] = max(w.losses[key], e.Fence)
		}
	}
	for i := range after.Entries {
		e := &after.Entries[i]
		if fence, told := w.losses[partKey{resource: after.ID, lockID: e.LockID}]; told && e.Holds() && after.HoldFence(e.LockID) <= fence {
			w.broken("I8", e.LockID, "%s was told that it has lost %s, and holds it with the fence %d", e.LockID, after.ID, after.HoldFence(e.LockID))
		}
	}
}
