package party

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

const (
	// parkedHeardIn is when a request that has just parked will be heard of at the latest.
	parkedHeardIn = 2 * time.Minute
	// parkedMost bounds how long its place stands if nothing is heard of it.
	parkedMost = 24 * time.Hour
	// holdGrantTold bounds the time in which Lockers that watch a resource report a hold to OnWakeup after
	// a waiter was granted it.
	holdGrantTold = time.Minute
)

// parkedTTL is how long a parked place stands: its document is not removed before.
func (l *Locker) parkedTTL() int64 { return min(parkedMost, l.cfg.Retention).Milliseconds() }

// Recheck looks after a request for one resource that Enter queued, for those who wait without a
// process. It takes nothing, and keeps alive the place in the queue. It reads, and writes only if
// the place needs it.
//
// It returns nil if calling Enter again, with a greater order, is worthwhile. While the request
// waits it returns a *BusyError, and when to look again: after 20 s at first, and after up to 10
// min when it has waited long. A request that comes twice as late as that is passed over until it
// is heard of. The victim of a deadlock gets a *DeadlockError. Other errors are the database's, and
// ctx's.
func (l *Locker) Recheck(ctx context.Context, req Request) (again time.Duration, err error) {
	req, err = l.complete(req, false)
	if err != nil {
		return 0, err
	}
	if n := len(req.Resources); n != 1 {
		return 0, &InvalidError{Field: "Request.Resources", Value: fmt.Sprint(n), Bound: "1 for Recheck"}
	}
	op := l.acquireOp(&req, req.Resources[0])
	op.WaiterTTL = l.parkedTTL()
	d, err := l.readOne(ctx, op.Resource)
	if err != nil {
		return 0, err
	}
	look := rules.Next(d, op.Waiter())
	if err := verdict(&op, d, look); err != nil {
		return 0, err
	}
	// What a majority has may be older than the request: then it is no reason to ask again.
	known := look.By != (rules.Supersession{}) || knows(d, &op)
	if known && (look.Answer == rules.NextGo || look.Answer == rules.NextGone) {
		return 0, nil
	}
	position, waited := look.Position, time.Duration(0)
	if look.Waiter != nil {
		waited = d.At.Sub(look.Waiter.Since)
	}
	again = min(pace.RecheckMost, max(waited, pace.Recheck+time.Duration(position)*pace.RecheckEach))
	if position == 1 && look.ValidFor > 0 {
		again = min(again, max(look.ValidFor, pace.RecheckLeast))
	}
	if !known || look.Answer == rules.NextSettle || look.Waiter == nil || look.Waiter.OverdueAt.Sub(d.At) < again*5/4+pace.Recheck {
		op.NextRefresh = min(2*again+pace.Recheck, pace.RecheckMost).Milliseconds()
		a, err := l.refresh(ctx, op)
		if err != nil {
			return 0, err
		}
		switch {
		case a.Outcome == rules.Deadlock:
			return 0, deadlockError(&op, a.After, a.Note)
		case a.Outcome != rules.Queued || a.After.Claim(op.LockID, op.Part) != nil:
			return 0, nil
		}
		position, d = int(a.Position), a.After
	} else {
		position = positions(d)[slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })]
	}
	busy := busyBy(&op, d)
	busy.Position, busy.Waiting = position, d.Queue().Waiting
	return again, busy
}

// knows reports whether a document was read after a request queued.
func knows(d *rules.Document, op *rules.Acquire) bool {
	if d == nil {
		return false
	}
	claim := d.Claim(op.LockID, op.Part)
	return (claim != nil && claim.Order >= op.Order) || slices.ContainsFunc(d.Waiters, func(w rules.Waiter) bool {
		return w.LockID == op.LockID && w.Part == op.Part && w.Order >= op.Order
	})
}

// KeepPosition prolongs the place of a request that Enter queued, if it stands, for a caller that knows that
// the request will come back. It asks for nothing. Whether the request is passed over, since it was
// not heard of in time, stays as it is. The lease names resource, lock ID, run, part and order. An
// error is the database's, or ctx's.
func (l *Locker) KeepPosition(ctx context.Context, place Lease) error {
	if err := checkEnd("place", place.LockID, 0, []string{place.Resource}); err != nil {
		return err
	}
	d, err := l.readOne(ctx, place.Resource)
	if err != nil || d == nil {
		return err
	}
	i := slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool {
		return w.LockID == place.LockID && w.Label == place.Run && w.Part == place.Part && w.Order == place.Order.number() && w.Waits(d.At)
	})
	if i < 0 {
		return nil
	}
	w := d.Waiters[i]
	req := Request{
		LockID: w.LockID, Run: w.Label, Within: w.Within, Saga: w.Saga, Part: w.Part, Order: place.Order, Owner: cmp.Or(w.Owner, w.LockID), NeverVictim: w.NeverVictim,
	}
	if w.Started != nil {
		req.Started = *w.Started
	}
	op := l.acquireOp(&req, Resource{Name: d.ID, Mode: Mode(w.Mode), Limit: limitOf(&w)})
	op.WaiterTTL, op.NextRefresh = l.parkedTTL(), cmp.Or(w.OverdueAt.Sub(d.At).Milliseconds()/2, -1)
	_, err = l.refresh(ctx, op)
	return err
}

// verdict is the *DeadlockError of the victim of a deadlock, and else nil. A request that has read
// it before, in an answer that was lost, is known by what superseded it.
func verdict(op *rules.Acquire, d *rules.Document, look rules.Decision) error {
	reason := cmp.Or(look.Verdict, look.By.Reason)
	if !strings.HasPrefix(reason, deadlockReason) {
		return nil
	}
	return deadlockError(op, d, reason)
}

// refresh carries out a request that asks for nothing, and refreshes its position in the queue.
func (l *Locker) refresh(ctx context.Context, op rules.Acquire) (update.Answer, error) {
	op.Refresh, op.TTL, op.MaxWaiters, op.Host = true, millis(minTTL), int64(l.cfg.MaxWaiters), l.cfg.Host
	return l.do(ctx, "refresh", orderOf(op.Order), l.call(ctx, op, ending{}))
}

// Wakeup says that a queued request is worth making again, by [Locker.Enter] with a greater order.
type Wakeup struct {
	Resource string
	LockID   string
	// Run is the run label; empty outside of Temporal.
	Run   string
	Part  string
	Order Order
	// Deadlock is empty if the request was granted the hold, or a claim, which stands for Config.ClaimTTL, or may
	// join what its lock ID holds. Else it was taken out of the queue to end this deadlock.
	Deadlock string
	// HoldFence is the fence with which the hold began, and Mode its mode, if the request was granted
	// the hold, which no request needs to confirm: see Request.HoldOnly. Part is empty then. Defaults to
	// 0: the request was granted no hold.
	HoldFence int64
	Mode      Mode
	// Early says that the turn has not come, but is near: if the request is made again now, by Enter
	// with MaxWait, it waits for it.
	Early bool
}

func wakeupOf(d *rules.Document, lockID, run, part string, order int64) Wakeup {
	return Wakeup{Resource: d.ID, LockID: lockID, Run: run, Part: part, Order: orderOf(order)}
}

// holdGranted returns the wake-up of a waiter that was granted a hold.
func holdGranted(d *rules.Document, e *rules.Entry) Wakeup {
	w := wakeupOf(d, e.LockID, e.Label, "", e.Order)
	w.HoldFence, w.Mode = e.FirstFence, Mode(e.Mode)
	return w
}

// holdsGranted returns the wake-ups for the holds in a document that waiters were granted a short time
// ago and that no request has joined since. The process that granted them may have died before it
// could wake the waiters.
func holdsGranted(d *rules.Document) (wakeups []Wakeup) {
	if d == nil {
		return nil
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.State == rules.StateKept && e.ClaimedAt != nil && !e.Joined && e.Order > 0 && d.At.Sub(*e.ClaimedAt) < holdGrantTold {
			wakeups = append(wakeups, holdGranted(d, e))
		}
	}
	return wakeups
}

// OnWakeup has f called with the wake-ups that this Locker comes to know of: by its own writes, and
// on the resources that it watches. It is for requests that wait without a process, such as those
// of workflows. One that is not heard is told again as long as a Locker watches the resource, so f
// may be called more than once with one, and also for an Acquire of this process; it must not
// block.
//
// stop waits for the calls of f that are under way, so f must not call it. After stop, f is not called
// again. Close stops too, but does not wait.
func (l *Locker) OnWakeup(f func(Wakeup)) (stop func()) {
	w := l.watch
	one := newListener(f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[one] = true
	forget := func() { w.forget(one) }
	ignoreClose := context.AfterFunc(l.life.closing, forget)
	return func() {
		ignoreClose()
		forget()
		one.stop()
	}
}

// listener is a function that hears of wake-ups.
type listener struct {
	f func(Wakeup)

	mu      sync.Mutex
	ended   *sync.Cond // broadcast when a call has ended
	calls   int
	stopped bool
}

func newListener(f func(Wakeup)) *listener {
	one := &listener{f: f}
	one.ended = sync.NewCond(&one.mu)
	return one
}

func (one *listener) call(wakeup Wakeup) {
	one.mu.Lock()
	if one.stopped {
		one.mu.Unlock()
		return
	}
	one.calls++
	one.mu.Unlock()
	defer func() {
		one.mu.Lock()
		defer one.mu.Unlock()
		one.calls--
		one.ended.Broadcast()
	}()
	one.f(wakeup)
}

// stop waits until no call is under way.
func (one *listener) stop() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.stopped = true
	for one.calls > 0 {
		one.ended.Wait()
	}
}

// WatchFor looks after a resource until no request waits for it but those of Acquire: it has the
// head of the queue granted a claim when the holder's promise ends, and searches for deadlocks.
// What it finds goes to OnWakeup; without that it does nothing. It returns at once.
func (l *Locker) WatchFor(resource string) {
	w := l.watch
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		return
	}
	w.searchBy(now.Add(pace.SearchAfter))
	r := w.row(resource)
	if !r.parked {
		r.parked = true
		w.pollBy(r, now)
	}
	if w.polling { // at what may be older than the caller's place
		r.changed = true
	}
}

// forget takes a listener away, and with the last one the parked waiters.
func (w *watcher) forget(one *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, one)
	if len(w.listeners) > 0 {
		return
	}
	for name, r := range w.table {
		r.parked = false
		if len(r.local) == 0 {
			w.drop(name)
		}
	}
}

// tell has the requests of wake-ups asked again that wait in this process, and all listeners hear
// of them.
func (w *watcher) notify(wakeups []Wakeup) {
	if len(wakeups) == 0 {
		return
	}
	w.mu.Lock()
	listeners := slices.Collect(maps.Keys(w.listeners))
	for _, wakeup := range wakeups {
		if r := w.table[wakeup.Resource]; r != nil {
			for _, one := range r.local {
				if one.request.LockID == wakeup.LockID && one.request.Part == wakeup.Part {
					one.wake()
				}
			}
		}
	}
	w.mu.Unlock()
	for _, wakeup := range wakeups {
		for _, f := range listeners {
			f.call(wakeup)
		}
	}
}

// wakeupsIn lists the requests in a document that may go on: by a claim, also one that they slept
// through if none came after it, or by joining. It reports whether one of them is expected soon.
func wakeupsIn(d *rules.Document, q *rules.Queue) (wakeups []Wakeup, expected bool) {
	if d == nil {
		return nil, false
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.State != rules.StateClaimed {
			continue
		}
		r := &rules.Waiter{LockID: e.LockID, Part: e.Part, Order: e.Order, Mode: e.Mode, Limit: e.Limit, Label: e.Label, Within: e.Within}
		if q.Next(r).Answer == rules.NextGo {
			wakeups, expected = append(wakeups, wakeupOf(d, e.LockID, e.Label, e.Part, e.Order)), expected || e.Alive(d.At)
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.Waits(d.At) && d.NeedsNoClaim(w.Party()) {
			wakeups, expected = append(wakeups, wakeupOf(d, w.LockID, w.Label, w.Part, w.Order)), expected || !w.Overdue(d.At)
		}
	}
	return wakeups, expected
}

// hasClaim reports whether there is a claim in a document, lapsed or not.
func hasClaim(d *rules.Document) bool {
	return d != nil && slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.State == rules.StateClaimed })
}

// settle writes a document only to grant the head of its queue a claim, and reports whether there is
// one then.
func (l *Locker) settle(ctx context.Context, resource string) bool {
	a, err := l.do(ctx, "settle", Order{}, l.call(ctx, rules.Settle{Policy: l.cfg.policy(), Resource: resource}, ending{}))
	return err == nil && hasClaim(a.After)
}
