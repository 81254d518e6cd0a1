package lockcore

import (
	"context"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Turn says that a queued request is worth making again, by [Locker.Enter] with a greater order.
type Turn struct {
	Resource string
	LockID   string
	Part     string
	Order    Order
	// Deadlock is empty if the resource was granted to the request, as a claim that stands for Config.ClaimTTL, or the
	// request may join what its lock ID holds. Else the request was taken out of the queue to end this deadlock.
	Deadlock string
}

func turnOf(d *engine.Document, lockID, part string, order int64) Turn {
	return Turn{Resource: d.ID, LockID: lockID, Part: part, Order: orderOf(order)}
}

// OnTurn has f called with the turns that this Locker comes to know of: by its own writes, and on the resources that
// it tends. f may be called more than once with the same turn, and for requests for which an Acquire of this process
// waits; it must not block. After stop it is not called any more.
//
// It is for requests that wait without a process, such as those of workflows. A turn that is not heard is told again as
// long as a Locker tends the resource.
func (l *Locker) OnTurn(f func(Turn)) (stop func()) {
	w := l.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastListener++
	id := w.lastListener
	w.listeners[id] = f
	return func() { w.forget(id) }
}

// Tend looks after a resource until no request waits for it, beside those that wait in Acquire: it has the head of the
// queue granted a claim when the holder's promise ends, and searches for deadlocks, for requests that were queued by
// Enter. What it finds goes to OnTurn; without that it does nothing. It returns at once.
func (l *Locker) Tend(resource string) {
	w := l.watch
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		return
	}
	w.searchBy(now.Add(searchAfter))
	r := w.of(resource)
	if !r.parked {
		r.parked = true
		w.lookBy(r, now)
	}
	if w.looking { // at what may be older than the caller's place
		r.changed = true
	}
}

// forget takes a listener away, and with the last one the parked waiters.
func (w *watcher) forget(listener int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, listener)
	if len(w.listeners) > 0 {
		return
	}
	for name, r := range w.table {
		r.parked = false
		if len(r.local) == 0 {
			delete(w.table, name)
		}
	}
}

// tell has all listeners hear of turns.
func (w *watcher) tell(turns []Turn) {
	if len(turns) == 0 {
		return
	}
	w.mu.Lock()
	listeners := make([]func(Turn), 0, len(w.listeners))
	for _, f := range w.listeners {
		listeners = append(listeners, f)
	}
	w.mu.Unlock()
	for _, turn := range turns {
		for _, f := range listeners {
			f(turn)
		}
	}
}

// turnsIn lists the requests in a document that may go on, and reports whether one of them is expected soon: it has a claim,
// or may join. One that slept through its claim may go on as well, if nobody came after it.
func turnsIn(d *engine.Document, q *engine.Queue) (turns []Turn, expected bool) {
	if d == nil {
		return nil, false
	}
	for i := range d.Held {
		e := &d.Held[i]
		if e.State != engine.Claimed {
			continue
		}
		r := &engine.Waiter{LockID: e.LockID, Part: e.Part, Order: e.Order, Mode: e.Mode, Limit: e.Limit}
		if q.Next(r).Answer == engine.NextGo {
			turns, expected = append(turns, turnOf(d, e.LockID, e.Part, e.Order)), expected || e.Stands(d.At)
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.Waits(d.At) && d.Joins(w.Party()) {
			turns, expected = append(turns, turnOf(d, w.LockID, w.Part, w.Order)), expected || !w.Overdue(d.At)
		}
	}
	return turns, expected
}

// hasClaim reports whether there is a claim in a document, lapsed or not.
func hasClaim(d *engine.Document) bool {
	return d != nil && slices.ContainsFunc(d.Held, func(e engine.Entry) bool { return e.State == engine.Claimed })
}

// settle writes a document for no other purpose than to have the head of its queue granted a claim: no request has a
// negative order. It reports whether there is one then.
func (l *Locker) settle(ctx context.Context, resource string) bool {
	d, err := l.eng.Withdraw(ctx, engine.Withdraw{Policy: l.cfg.policy(), Resource: resource, LockID: "-", Order: -1, Reason: "-"})
	if err == nil {
		l.afterWrite(ctx, &d, ending{})
	}
	return err == nil && hasClaim(&d)
}
