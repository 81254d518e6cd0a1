package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. It
// takes them in the order of their names, so that requests of several resources never wait for each
// other in a cycle. While it waits for the rest, it renews what it has taken. It looks at all of them first,
// and takes nothing if one of them would be refused for another reason than that it is busy.
//
// If it fails, it leaves the queue and releases what it has taken. The error is ctx's cause, or after
// req.MaxWait the *BusyError that names the holders in the way. Other errors: *InvalidError and *LayoutError
// (nothing was sent), a *BusyError that matches ErrQueueFull, *SupersededError, *DeadlockError,
// *UnknownOutcomeError, *DamagedError, ErrClosed, and the database's.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	return l.acquire(ctx, req.step())
}

func (l *Locker) acquire(ctx context.Context, req StepRequest) (*Session, error) {
	req, err := l.complete(req, true)
	if err == nil {
		err = req.checkSession()
	}
	if err != nil {
		return nil, err
	}
	parent := ctx
	ctx, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	wait := ctx
	if req.MaxWait > 0 {
		var cancel context.CancelFunc
		wait, cancel = l.clock.WithTimeout(ctx, req.MaxWait)
		defer cancel()
	}
	ops := make([]rules.Acquire, len(req.Resources))
	for i, res := range req.Resources {
		ops[i] = l.acquireOp(&req, res)
	}
	leases, unknown, err := l.enterFirst(wait, &req, ops)
	if err != nil {
		return nil, l.abandon(ctx, nil, nil, err)
	}
	var s *Session
	if len(leases) > 0 {
		s = l.newSession(parent, leases)
	}
	for i := len(leases); i < len(ops); i++ {
		if wait.Err() != nil && !unknown {
			return nil, l.abandon(ctx, s, nil, failure("acquire", ops[i].Resource, req.Order, context.Cause(wait), false))
		}
		lease, err := l.acquireOne(ctx, wait, &req, ops[i], s)
		switch {
		case err != nil:
		case s == nil:
			s = l.newSession(parent, []Lease{lease})
		default:
			err = s.add(lease)
		}
		if err != nil {
			return nil, l.abandon(ctx, s, req.leasesFrom(i, unknown), err)
		}
	}
	return s, nil
}

// leasesFrom returns the leases that the request may have got on a resource, and with all on those after it.
func (r *StepRequest) leasesFrom(i int, all bool) (leases []Lease) {
	for _, res := range r.Resources[i:] {
		if leases = append(leases, r.leaseOn(res.Name)); !all {
			break
		}
	}
	return leases
}

// abandon releases the leases of the session, if there is one, and others that the request may have got.
// It returns ctx's cause if ctx has ended, otherwise err.
func (l *Locker) abandon(ctx context.Context, s *Session, others []Lease, err error) error {
	var leases []Lease
	if s != nil {
		leases = s.end(ErrEnded)
	}
	l.undo(ctx, append(leases, others...)...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// TryAcquire is an Acquire that does not queue: after a *BusyError nothing was acquired. If ctx ends, it releases
// what it may have acquired.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	return l.tryAcquire(ctx, req.step())
}

func (l *Locker) tryAcquire(ctx context.Context, req StepRequest) (*Session, error) {
	if err := req.checkSession(); err != nil {
		return nil, err
	}
	call, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done() // after newSession, so that Close ends the session
	leases, err := l.enter(call, req, false)
	if err != nil {
		l.undo(call, leases...)
		return nil, endedByClose(call, err)
	}
	return l.newSession(ctx, leases), nil
}

// acquireOne waits for one resource. If it gives up, what it may have got is released. The session, if
// there is one, has the resources that were acquired before.
func (l *Locker) acquireOne(ctx, wait context.Context, req *StepRequest, op rules.Acquire, s *Session) (Lease, error) {
	w := l.enqueue(ctx, req, op, false)
	lease, err := w.await(wait, s)
	if err == nil {
		w.stop()
		return lease, nil
	}
	if lease, granted, _ := w.stop(); granted && ctx.Err() == nil && (s == nil || s.replace() == nil) {
		return lease, nil
	}
	return Lease{}, err
}

// enterFirst acquires as many of several resources as possible with one command, as enterTogether does. If it
// returns an error, one of them was refused, and nothing is taken.
func (l *Locker) enterFirst(ctx context.Context, req *StepRequest, ops []rules.Acquire) (leases []Lease, unknown bool, err error) {
	for granted, failed, reserved := 0, 0, 0; ; {
		leases, refused, unknown, unseen := l.enterTogether(ctx, req, ops)
		switch {
		case refused != nil && granted < lookAgain:
			if err := l.refusedAlone(ctx, req, ops[refused.Index], refused); err != nil {
				return nil, false, err
			}
			granted++
		case errors.Is(unseen, update.ErrReserved) && reserved < lookReserved && clock.Sleep(ctx, l.clock, lookPause/2+l.clock.Jitter(lookPause)):
			reserved++
		case unseen != nil && !errors.Is(unseen, update.ErrReserved) && failed < lookAgain && clock.Sleep(ctx, l.clock, lookPause):
			failed++
		default:
			return leases, unknown, nil
		}
	}
}

// enterTogether acquires as many of several resources as possible with one command, from the first on. With
// unknown, it may have acquired more. That is not undone: the request is repeated, and must not lose its
// position because an answer was lost.
//
// If one of them would be refused, it writes nothing, and returns the refusal. If it cannot look at all of them, it
// writes nothing, and unseen holds the reason.
func (l *Locker) enterTogether(
	ctx context.Context, req *StepRequest, ops []rules.Acquire,
) (leases []Lease, refused *update.Refusal, unknown bool, unseen error) {
	if len(ops) < 2 || ctx.Err() != nil {
		return nil, nil, false, ctx.Err()
	}
	calls, spans := make([]*update.Call, len(ops)), make([]operation, len(ops))
	for i := range ops {
		calls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])
	}
	granted := func(a update.Answer) bool {
		return a.Outcome == rules.Granted || a.Outcome == rules.Joined || a.Outcome == rules.Again
	}
	answers, refused, unseen := l.lines.DoWhile(ctx, calls, granted)
	for i, a := range answers {
		if a.Err != nil || !granted(a) {
			break
		}
		lease, _ := l.finishAcquire(ctx, req, &ops[i], spans[i], a, nil, nil)
		leases = append(leases, lease)
	}
	unknown = ctx.Err() != nil || slices.ContainsFunc(calls, (*update.Call).Unknown)
	return leases, refused, unknown, unseen
}

const (
	// lookAgain bounds the looks at several resources of which one was refused, and then granted after all, and
	// those after a read that failed.
	lookAgain = 3
	// lookPause is the pause before another look, and lookReserved bounds the looks while a resource is reserved.
	lookPause    = 25 * time.Millisecond
	lookReserved = int(rules.LongestReservation/lookPause) + 10
)

// refusedAlone returns the error of a request that would be refused one of several resources. If only a write can
// show that, it asks for that resource alone, and does not queue. It returns nil if the resource was granted
// after all, which it takes back.
func (l *Locker) refusedAlone(ctx context.Context, req *StepRequest, op rules.Acquire, refused *update.Refusal) error {
	if refused.ReadOnly || refused.Err != nil {
		var err error
		if refused.Err != nil {
			err = failure("acquire", op.Resource, req.Order, refused.Err, false)
		}
		_, span := l.acquireCall(ctx, req, &op)
		_, err = l.finishAcquire(ctx, req, &op, span, refused.Answer, err, nil)
		return err
	}
	queue := op.Queue
	op.Queue = false
	lease, err := l.enterOne(ctx, req, op)
	switch {
	case err == nil:
		l.undo(ctx, lease)
	case queue && errors.Is(err, ErrBusy): // it may queue now
		return nil
	case errors.Is(err, ErrDeadlock): // the victim has read its tombstone
		l.undoQueued(ctx, req, Resource{Name: op.Resource}, nil, err)
	}
	return err
}

// acquireOp returns the operation of a complete request for one of its resources. It queues, with the
// times of Acquire.
func (l *Locker) acquireOp(req *StepRequest, res Resource) rules.Acquire {
	op := rules.Acquire{
		Resource: res.Name, Call: req.entryID(res.Name), Caller: callerOf(req.Caller), TakeOver: req.TakeOver,
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.keptTTL()),
		Keep: req.Keep, HoldOnly: req.HoldOnly, Reacquire: req.Reacquire, NewFence: req.NewFence, Queued: req.Queued,
		Queue: true, WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), NextRefresh: l.refreshEvery().Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: req.Owner, Host: req.Host, Comment: req.Comment, NeverVictim: req.NeverVictim,
		Priority: int64(req.Priority),
	}
	switch since := req.HeldSince[res.Name]; {
	case since == 0:
	case req.LostSince.IsZero():
		op.HeldSince = LastAttempt(since).number()
	default: // orders of other runs are not comparable
		op.LostSince = req.LostSince
	}
	if !req.Started.IsZero() {
		op.Started = req.Started.UTC().Truncate(time.Millisecond)
	}
	return op
}

// refreshEvery returns the time after which a waiter of Acquire refreshes its request.
func (l *Locker) refreshEvery() time.Duration { return l.cfg.WaiterTTL / 3 }

// acquireCall returns the call of a request for one resource, and begins its span.
func (l *Locker) acquireCall(outer context.Context, req *StepRequest, op *rules.Acquire) (*update.Call, operation) {
	ctx, span := l.tel.acquire(outer, req, op)
	op.Trace = traceparent(outer, ctx)
	return l.call(outer, *op, ending{by: op.LockID}), span
}

// undoCall returns a call that takes back what a request may have been granted, and its position in the queue.
func (l *Locker) undoCall(ctx context.Context, op *rules.Acquire) *update.Call {
	return l.call(ctx, rules.TakeBack{
		Resource: op.Resource, Caller: op.Caller, Call: op.Call,
	}, ending{})
}

// finishAcquire returns the lease that a request was granted, or its error, and ends the span. blockers
// are the known holds that blocked the request while it queued.
func (l *Locker) finishAcquire(
	ctx context.Context, req *StepRequest, op *rules.Acquire, span operation, a update.Answer, err error, blockers []blockingHold,
) (Lease, error) {
	if err != nil {
		span.end(nil, err)
		return Lease{}, err
	}
	lease, err := resultOf(op, &a)
	if busy := new(BusyError); errors.As(err, &busy) {
		busy.grantIn = l.holds.predict(op.Resource, busy.Position, a.After.Capacity(op.Mode, op.Limit))
	}
	if err == nil {
		lease.owner, lease.host, lease.comment = req.Owner, req.Host, req.Comment
		span.took(a.After, op.LockID, &lease)
		if a.Outcome != rules.Again || a.Retried { // a repeated request was recorded before
			l.tel.recordGrant(ctx, req, op, a.After, blockers)
		}
	}
	span.end(&a, err)
	return lease, err
}

// resultOf returns the lease of an answered request, or the error for its outcome.
func resultOf(op *rules.Acquire, a *update.Answer) (Lease, error) {
	d := a.After
	switch a.Outcome {
	case rules.Granted, rules.Joined, rules.Again:
		if op.HoldOnly {
			return holdOf(op, a), nil
		}
		lease := leaseOf(d.Part(op.Caller), a)
		lease.granted, lease.Joined = d.At, a.Outcome == rules.Joined
		lease.Bars = op.NewFence
		return lease, nil
	case rules.Lost:
		return Lease{}, lostError(d, op.Caller, op.LostSince)
	case rules.OtherRun:
		return Lease{}, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Run, Other: a.Note}
	case rules.Unreadable:
		return Lease{}, unreadablePolicy(d)
	case rules.NoPool:
		return Lease{}, fmt.Errorf("%w: %q has no members: make it one by lockstep pool, or Locker.SetPolicy", ErrNoPool, d.ID)
	case rules.OnlyPool:
		return Lease{}, &InvalidError{Field: "Request.Resources.Mode", Value: Mode(op.Mode).String(), Bound: fmt.Sprintf("lockcore.Pool for %q, which an operator has made a pool", d.ID)}
	case rules.Deadlock:
		return Lease{}, deadlockError(op, d, a.Note)
	case rules.Superseded:
		by, known := d.SupersededBy(op.Caller)
		if !known { // by another call with the same order
			by.Order = op.Order
		}
		return Lease{}, &SupersededError{
			Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), By: orderOf(by.Order), Released: by.Released,
			Reason: by.Reason,
		}
	}
	return Lease{}, busy(op, a)
}

// waiting is a request for one resource that waits in its queue, in this process. Its call stays in the
// line of the resource, so that the swap that frees the resource can grant it in the same write.
type waiting struct {
	l   *Locker
	ctx context.Context
	req *StepRequest
	op  rules.Acquire
	// waiter is woken when the watcher finds that refreshing the request is worthwhile.
	waiter *waiter
	ticket *update.Ticket
	// span is the span of the command in flight, if inFlight is set.
	span     operation
	inFlight bool
	// blockers are the holds that blocked the request so far, and busy is the latest *BusyError.
	blockers []blockingHold
	busy     error
}

// enqueue asks for one resource. If it is busy, the request queues. Unless it stays, stop withdraws it.
func (l *Locker) enqueue(ctx context.Context, req *StepRequest, op rules.Acquire, stays bool) *waiting {
	w := &waiting{l: l, ctx: ctx, req: req, op: op, waiter: l.watch.add(&op)}
	var c *update.Call
	c, w.span = l.acquireCall(ctx, req, &w.op)
	c.Op, c.Sleeps, w.inFlight = w.op, true, true
	if !stays {
		c.TakeBack = l.undoCall(ctx, &w.op)
	}
	w.ticket = l.lines.Submit(c)
	return w
}

// firstAnswer waits for the first answer.
func (w *waiting) firstAnswer(ctx context.Context) (Lease, error) {
	for {
		select {
		case <-w.ticket.Ready():
		case <-ctx.Done():
			return Lease{}, failure("acquire", w.op.Resource, w.req.Order, context.Cause(ctx), true)
		}
		if a, ok := w.ticket.Answer(); ok {
			lease, err := w.answer(a)
			if err != nil && errors.Is(err, ErrBusy) {
				w.recordBusy(err)
			}
			return lease, err
		}
	}
}

// await waits until the resource is granted, or until wait ends: then the error is the latest
// *BusyError. It also ends if the session, with what was taken before, loses a lock. Once the request has
// queued, a transient error does not end the wait.
func (w *waiting) await(wait context.Context, s *Session) (Lease, error) {
	refresh := w.l.clock.NewTimer(w.l.refreshEvery())
	defer refresh.Stop()
	var lost <-chan struct{}
	if s != nil {
		lost = s.ctx.Done()
	}
	for failures := 0; ; {
		select {
		case <-w.ticket.Ready():
			a, ok := w.ticket.Answer()
			if !ok {
				continue
			}
			lease, err := w.answer(a)
			switch {
			case err == nil:
				return lease, nil
			case errors.Is(err, ErrBusy) && !errors.Is(err, ErrQueueFull):
				failures = 0
				w.recordBusy(err)
				refresh.Reset(w.l.refreshEvery())
			case w.busy != nil && isTransient(err):
				failures++
				pause := pace.Backoff(time.Second, 45*time.Second, failures)
				refresh.Reset(pace.Jitter(pause, w.l.clock.Jitter))
			default:
				return Lease{}, err
			}
		case <-wait.Done():
			if w.busy != nil {
				return Lease{}, w.busy
			}
			return Lease{}, failure("acquire", w.op.Resource, w.req.Order, context.Cause(wait), true)
		case <-lost:
			if err := s.replace(); err != nil {
				return Lease{}, err
			}
			lost = nil // only the context that the session derives from has ended
		case <-w.waiter.woken:
			w.refresh()
		case <-refresh.C:
			w.refresh()
		}
	}
}

// recordBusy stores the *BusyError of an attempt that queued.
func (w *waiting) recordBusy(err error) {
	w.busy = err
	if busy := new(BusyError); errors.As(err, &busy) {
		w.blockers = addBlockers(w.blockers, busy.Holders)
		w.l.watch.queued(w.waiter, busy.Position)
	}
}

// refresh repeats the request, to refresh its position in the queue or to confirm a grant.
func (w *waiting) refresh() {
	w.beginSpan()
	w.ticket.Wake()
}

// beginSpan begins a span, unless a command is in flight.
func (w *waiting) beginSpan() {
	if !w.inFlight {
		_, w.span = w.l.tel.acquire(w.ctx, w.req, &w.op)
		w.inFlight = true
	}
}

func (w *waiting) answer(a update.Answer) (Lease, error) {
	w.beginSpan()
	w.inFlight = false
	var err error
	if a.Err != nil {
		err = failure("acquire", w.op.Resource, w.req.Order, a.Err, a.Unknown)
	}
	return w.l.finishAcquire(w.ctx, w.req, &w.op, w.span, a, err, w.blockers)
}

// stop ends the wait. It returns the lease if the request was granted at the same moment. With unknown,
// the request may have been granted.
func (w *waiting) stop() (lease Lease, granted bool, unknown bool) {
	a, ok, unknown := w.ticket.Abandon()
	w.l.watch.remove(w.waiter)
	if ok && a.Err == nil {
		if lease, err := w.answer(a); err == nil {
			return lease, true, false
		}
	}
	if w.inFlight {
		w.span.end(nil, failure("acquire", w.op.Resource, w.req.Order, context.Cause(w.ctx), unknown))
	}
	return Lease{}, false, unknown
}

// isTransient reports whether a request that has queued should be repeated after an error.
func isTransient(err error) bool {
	var layout *LayoutError
	for _, final := range []error{ErrLost, ErrSuperseded, ErrOtherRun, ErrDeadlock, ErrInvalid, ErrClosed} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !errors.As(err, &layout)
}
