package lockcore

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// What a document that was read tells of its queue, to all who look after waiters: waits, turns and Recheck.

// headOf is the first who waits in a document and is not passed over, or nil.
func headOf(d *engine.Document) *engine.Waiter {
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.Waits(d.At) && !w.Overdue(d.At) {
			return w
		}
	}
	return nil
}

// blocked reports whether an entry that is alive is in the way of the head of the queue.
func blocked(d *engine.Document, q *engine.Waiter) bool { return !d.Admits(q.Party()) }

// covers tells whether a lock ID holds the resource in this mode or a stronger one, and its promise still stands: a request
// of it that waits may join then.
func covers(d *engine.Document, lockID, mode string) bool {
	return slices.ContainsFunc(d.Held, func(e engine.Entry) bool {
		return e.LockID == lockID && e.Holds() && e.ExpiresAt.After(d.At) && engine.Covers(e.Mode, mode)
	})
}

// placeIn is a request's place in the queue, if it has one, its position there, from 1, and how many wait.
func placeIn(d *engine.Document, op *engine.Acquire) (place *engine.Waiter, position, waiting int) {
	for i := range d.Waiters {
		w := &d.Waiters[i]
		if !w.Waits(d.At) {
			continue
		}
		waiting++
		if w.LockID == op.LockID && w.Part == op.Part {
			place, position = w, waiting
		}
	}
	return place, position, waiting
}

// hasClaim tells whether there is a claim in a document, lapsed or not.
func hasClaim(d *engine.Document) bool {
	return slices.ContainsFunc(d.Held, func(e engine.Entry) bool { return e.State == engine.Claimed })
}

// hasLiveClaim tells whether there is one that has not lapsed.
func hasLiveClaim(d *engine.Document) bool {
	return slices.ContainsFunc(d.Held, func(e engine.Entry) bool { return e.State == engine.Claimed && e.ExpiresAt.After(d.At) })
}

// firstEnd is how long the first promise that is alive in a document has still to go.
func firstEnd(d *engine.Document) (left time.Duration, ok bool) {
	for _, e := range d.Held {
		if until := e.ExpiresAt.Sub(d.At); until > 0 && (!ok || until < left) {
			left, ok = until, true
		}
	}
	return left, ok
}
