package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

const (
	// parkedRefresh is the time within which a request that has just parked is refreshed.
	parkedRefresh = 2 * time.Minute
	// parkedTTL is the time for which a parked request stays queued without a refresh. Its document is not
	// removed before.
	parkedTTL = rules.Retention
	// holdGrantReported is the time for which Lockers that watch a resource report a hold to OnWakeup after a
	// waiter was granted it.
	holdGrantReported = time.Minute
)

// Recheck refreshes a request for one resource that Enter queued, for waiters without a process. It takes
// nothing. It reads, and writes only if the position in the queue must be extended.
//
// It returns nil if repeating Enter, with a greater order, is worthwhile. While the request waits, it returns
// a *BusyError, and the time after which to call Recheck again: 20 s at first, and up to 10 min when the
// request has waited long. A request whose Recheck comes twice as late is passed over until the next one. The
// victim of a deadlock gets a *DeadlockError. Other errors are the database's, and ctx's.
func (l *Steps) Recheck(ctx context.Context, req StepRequest) (again time.Duration, err error) {
	req, err = l.complete(req, false)
	if err != nil {
		return 0, err
	}
	if n := len(req.Resources); n != 1 {
		return 0, &InvalidError{Field: "Request.Resources", Value: fmt.Sprint(n), Bound: "1 for Recheck"}
	}
	op := l.acquireOp(&req, req.Resources[0])
	op.WaiterTTL = parkedTTL.Milliseconds()
	d, err := l.readOne(ctx, op.Resource)
	if err != nil {
		return 0, err
	}
	next := rules.Next(d, op.Waiter())
	if err := verdict(&op, d, next); err != nil {
		return 0, err
	}
	// The document may be older than the request. Then it gives no reason to repeat it.
	known := next.By != (rules.Supersession{}) || knows(d, &op)
	if known && (next.Answer == rules.NextGo || next.Answer == rules.NextGone) {
		return 0, nil
	}
	position, waited := next.Position, time.Duration(0)
	if next.Waiter != nil {
		waited = d.At.Sub(next.Waiter.Since)
	}
	again = min(pace.RecheckMost, max(waited, pace.Recheck+time.Duration(position)*pace.RecheckEach))
	if position == 1 && next.ValidFor > 0 {
		again = min(again, max(next.ValidFor, pace.RecheckLeast))
	}
	if !known || next.Answer == rules.NextSettle || next.Waiter == nil || next.Waiter.OverdueAt.Sub(d.At) < again*5/4+pace.Recheck {
		op.NextRefresh = min(2*again+pace.Recheck, pace.RecheckMost).Milliseconds()
		a, err := l.refresh(ctx, op)
		if err != nil {
			return 0, err
		}
		switch {
		case a.Outcome == rules.Deadlock:
			return 0, deadlockError(&op, a.After, a.Note)
		case a.Outcome != rules.Queued || a.After.Claim(op.Caller) != nil:
			return 0, nil
		}
		position, d = int(a.Position), a.After
	} else {
		position = positions(d)[slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool { return w.SamePart(&op.Caller) })]
	}
	busy := busyBy(&op, d)
	busy.Position, busy.Waiting = position, d.Queue().Waiting
	return again, busy
}

// knows reports whether a document contains a request.
func knows(d *rules.Document, op *rules.Acquire) bool {
	if d == nil {
		return false
	}
	claim := d.Claim(op.Caller)
	return (claim != nil && claim.Order >= op.Order) || slices.ContainsFunc(d.Waiters, func(w rules.Waiter) bool {
		return w.SamePart(&op.Caller) && w.Order >= op.Order
	})
}

// Refresh extends the time for which a request that Enter queued stays in the queue, for a caller that
// knows that the request will be repeated. A request that is passed over, since it was not refreshed in time,
// is still passed over. The lease names resource, lock ID, run, part and order. A request that does not exist
// is not an error. Errors are the database's, and ctx's.
func (l *Steps) Refresh(ctx context.Context, lease Lease) error {
	if err := checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); err != nil {
		return err
	}
	d, err := l.readOne(ctx, lease.Resource)
	if err != nil || d == nil {
		return err
	}
	caller := lease.caller()
	i := slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool {
		return w.SameRequest(&caller) && w.Run == caller.Run && w.Waits(d.At)
	})
	if i < 0 {
		return nil
	}
	w := d.Waiters[i]
	req := StepRequest{
		Caller: Caller{LockID: w.LockID, Run: w.Run, Within: w.Within, Saga: w.Saga, Part: w.Part, Order: lease.Order}, Owner: cmp.Or(w.Owner, w.LockID), NeverVictim: w.NeverVictim,
	}
	if w.Started != nil {
		req.Started = *w.Started
	}
	op := l.acquireOp(&req, Resource{Name: d.ID, Mode: Mode(w.Mode), Limit: limitOf(w.Mode, w.Limit)})
	op.WaiterTTL, op.NextRefresh = parkedTTL.Milliseconds(), cmp.Or(w.OverdueAt.Sub(d.At).Milliseconds()/2, -1)
	_, err = l.refresh(ctx, op)
	return err
}

// verdict returns the *DeadlockError of the victim of a deadlock, otherwise nil. A request that has read its
// verdict before, in an answer that was lost, finds it as the reason for which it was superseded.
func verdict(op *rules.Acquire, d *rules.Document, next rules.Decision) error {
	reason := cmp.Or(next.Verdict, next.By.Reason)
	if !strings.HasPrefix(reason, deadlockReason) {
		return nil
	}
	return deadlockError(op, d, reason)
}

// refresh extends the position of a request in the queue. It takes nothing.
func (l *Locker) refresh(ctx context.Context, op rules.Acquire) (update.Answer, error) {
	op.Refresh, op.TTL, op.MaxWaiters, op.Host = true, millis(minTTL), int64(l.cfg.MaxWaiters), l.cfg.Host
	return l.do(ctx, "refresh", orderOf(op.Order), l.call(ctx, op, ending{}))
}

// Wakeup reports that repeating a queued request, by [Steps.Enter] with a greater order, is worthwhile.
type Wakeup struct {
	Resource string
	LockID   string
	// Run is that of the request; empty if the request named none.
	Run   string
	Part  string
	Order Order
	// Cycle describes the deadlock for which the request was withdrawn from the queue, as in [DeadlockError].
	// It is empty if the request was granted the hold, or a claim, which lasts for Config.ClaimTTL, or may
	// join its lock ID's hold.
	Cycle string
	// FirstFence is the fence with which the hold began, and Mode its mode, if the request was granted the
	// hold, which it need not confirm: see [StepRequest]. Part is empty in this case. Defaults to 0: the
	// request was granted no hold.
	FirstFence int64
	Mode       Mode
	// Member is the member of a pool that was granted with the hold.
	Member string
	// Early is set if the grant is only predicted: if the request is repeated now, by Enter with MaxWait, it
	// waits for the grant.
	Early bool
}

func wakeupOf(d *rules.Document, c *rules.Caller) Wakeup {
	return Wakeup{Resource: d.ID, LockID: c.LockID, Run: c.Run, Part: c.Part, Order: orderOf(c.Order)}
}

// holdGranted returns the wake-up of a waiter that was granted a hold.
func holdGranted(d *rules.Document, e *rules.Entry) Wakeup {
	w := wakeupOf(d, &e.Caller)
	w.Part, w.FirstFence, w.Mode, w.Member = "", e.FirstFence, Mode(e.Mode), e.Member
	return w
}

// holdsGranted returns wake-ups for the holds in a document that waiters were granted recently and that no
// request has joined since. The process that granted them may have died before it could wake the waiters.
func holdsGranted(d *rules.Document) (wakeups []Wakeup) {
	if d == nil {
		return nil
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.State == rules.StateKept && e.ClaimedAt != nil && e.Order > 0 && d.At.Sub(*e.ClaimedAt) < holdGrantReported {
			wakeups = append(wakeups, holdGranted(d, e))
		}
	}
	return wakeups
}

// OnWakeup calls f with the wake-ups that this Locker notices, by its own writes and on the resources that it
// watches. It is for requests that wait without a process, such as those of workflows. A wake-up is repeated
// as long as a Locker watches the resource and the request is not repeated, so f may be called several
// times for one, and also for an Acquire of this process. f must not block.
//
// stop waits for calls of f under way, so f must not call it; after stop, f is not called again. Close also
// stops the calls, but does not wait.
func (l *Steps) OnWakeup(f func(Wakeup)) (stop func()) {
	w := l.watch
	one := &listener{f: f}
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

// listener is a function of OnWakeup.
type listener struct {
	f func(Wakeup)

	mu      sync.Mutex
	stopped bool
	calls   sync.WaitGroup
}

func (one *listener) call(wakeup Wakeup) {
	one.mu.Lock()
	if one.stopped {
		one.mu.Unlock()
		return
	}
	one.calls.Add(1)
	one.mu.Unlock()
	defer one.calls.Done()
	one.f(wakeup)
}

// stop prevents further calls, and waits for those under way.
func (one *listener) stop() {
	one.mu.Lock()
	one.stopped = true
	one.mu.Unlock()
	one.calls.Wait()
}

// WatchFor watches a resource as long as parked requests wait for it. It grants the head of the queue a
// claim when the holder expires, and searches for deadlocks. It reports to OnWakeup; without a function
// there it does nothing. It returns at once.
func (l *Steps) WatchFor(resource string) {
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
	if w.polling { // the poll may read a document without the request
		r.changed = true
	}
}

// forget removes a listener, and after the last one all parked waiters.
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

// earlyWakeups returns wake-ups for the parked requests at the head of a queue for which a grant is predicted
// soon, for at most as many as may wait inline. The mutex is held.
func (w *watcher) earlyWakeups(d *rules.Document) (early []Wakeup) {
	r := w.table[d.ID]
	for i := range d.Waiters {
		one := &d.Waiters[i]
		grantIn := w.locker.holds.predict(d.ID, i+1, d.Capacity(one.Mode, one.Limit))
		if grantIn == 0 || grantIn > pace.WakeLead || len(early) >= w.locker.inline.room() {
			break
		}
		here := r != nil && slices.ContainsFunc(r.local, func(l *waiter) bool { return l.request.SamePart(&one.Caller) })
		if one.Run != "" && one.Hold == nil && !here && one.Waits(d.At) && !one.Overdue(d.At) {
			wakeup := wakeupOf(d, &one.Caller)
			wakeup.Early = true
			early = append(early, wakeup)
		}
	}
	return early
}

// changed returns the resources whose documents have changed since they were last read.
func (w *watcher) changed(names []string) (changed []string) {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	versions, err := w.locker.store.Versions(ctx, names...)
	if err != nil {
		return nil // they are read again in any case
	}
	now := time.Now()
	slices.Sort(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if r := w.table[name]; r != nil && r.version != versions[name] {
			changed = append(changed, name)
			r.begin(now)
		}
	}
	return changed
}

// settle writes a document so that the head of its queue is granted a claim, and reports whether there is a
// claim after the write.
func (l *Locker) settle(ctx context.Context, resource string) bool {
	a, err := l.do(ctx, "settle", Order{}, l.call(ctx, rules.Settle{Resource: resource}, ending{}))
	return err == nil && hasClaim(a.After)
}
