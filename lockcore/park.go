package lockcore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
)

// Turn says that a queued request is worth making again, by [Locker.Enter] with a greater order.
type Turn struct {
	Resource string
	LockID   string
	// Run is the run label; empty outside of Temporal.
	Run   string
	Part  string
	Order Order
	// Deadlock is empty if the request was granted a claim, which stands for Config.ClaimTTL, or may
	// join what its lock ID holds. Else it was taken out of the queue to end this deadlock.
	Deadlock string
}

func turnOf(d *engine.Document, lockID, run, part string, order int64) Turn {
	return Turn{Resource: d.ID, LockID: lockID, Run: run, Part: part, Order: orderOf(order)}
}

// OnTurn has f called with the turns that this Locker comes to know of: by its own writes, and on
// the resources that it tends. It is for requests that wait without a process, such as those of
// workflows. A turn that is not heard is told again as long as a Locker tends the resource, so f
// may be called more than once with one, and also for an Acquire of this process; it must not
// block. After stop it is not called any more.
func (l *Locker) OnTurn(f func(Turn)) (stop func()) {
	w := l.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[&f] = true
	stop = func() { w.forget(&f) }
	context.AfterFunc(l.life.closing, stop)
	return stop
}

// Tend looks after a resource until no request waits for it but those of Acquire: it has the head
// of the queue granted a claim when the holder's promise ends, and searches for deadlocks. What it
// finds goes to OnTurn; without that it does nothing. It returns at once.
func (l *Locker) Tend(resource string) {
	w := l.watch
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		return
	}
	w.searchBy(now.Add(pace.SearchAfter))
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
func (w *watcher) forget(listener *func(Turn)) {
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

// tell has the requests of turns asked again that wait in this process, and all listeners hear of
// them.
func (w *watcher) tell(turns []Turn) {
	if len(turns) == 0 {
		return
	}
	w.mu.Lock()
	listeners := slices.Collect(maps.Keys(w.listeners))
	for _, turn := range turns {
		if r := w.table[turn.Resource]; r != nil {
			for _, one := range r.local {
				if one.request.LockID == turn.LockID && one.request.Part == turn.Part {
					one.call()
				}
			}
		}
	}
	w.mu.Unlock()
	for _, turn := range turns {
		for _, f := range listeners {
			(*f)(turn)
		}
	}
}

// turnsIn lists the requests in a document that may go on: by a claim, also one that they slept
// through if none came after it, or by joining. It reports whether one of them is expected soon.
func turnsIn(d *engine.Document, q *engine.Queue) (turns []Turn, expected bool) {
	if d == nil {
		return nil, false
	}
	for i := range d.Held {
		e := &d.Held[i]
		if e.State != engine.Claimed {
			continue
		}
		r := &engine.Waiter{LockID: e.LockID, Part: e.Part, Order: e.Order, Mode: e.Mode, Limit: e.Limit, Label: e.Label, Within: e.Within}
		if q.Next(r).Answer == engine.NextGo {
			turns, expected = append(turns, turnOf(d, e.LockID, e.Label, e.Part, e.Order)), expected || e.Stands(d.At)
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.Waits(d.At) && d.AsksItself(w.Party()) {
			turns, expected = append(turns, turnOf(d, w.LockID, w.Label, w.Part, w.Order)), expected || !w.Overdue(d.At)
		}
	}
	return turns, expected
}

// hasClaim reports whether there is a claim in a document, lapsed or not.
func hasClaim(d *engine.Document) bool {
	return d != nil && slices.ContainsFunc(d.Held, func(e engine.Entry) bool { return e.State == engine.Claimed })
}

// settle writes a document only to have the head of its queue granted a claim: no request has a
// negative order. It reports whether there is a claim then.
func (l *Locker) settle(ctx context.Context, resource string) bool {
	op := engine.Withdraw{Policy: l.cfg.policy(), Resource: resource, LockID: "-", Order: -1, Reason: "-"}
	d, err := l.retryUnknown(ctx, "settle", resource, Order{}, func(ctx context.Context) (engine.Document, error) { return l.eng.Withdraw(ctx, op) })
	if err == nil {
		l.afterWrite(ctx, &d, ending{})
	}
	return err == nil && hasClaim(&d)
}
