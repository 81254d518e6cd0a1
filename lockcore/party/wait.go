package party

import (
	"context"
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// waiting is a request for one resource that waits in its queue, in this process. Its call stays in
// the line of the resource, so that the swap which frees the resource grants it in the same write.
type waiting struct {
	l   *Locker
	ctx context.Context
	req *Request
	op  rules.Acquire
	// one is woken when the watcher finds that asking again is worthwhile.
	one    *waiter
	ticket *update.Ticket
	// span is that of the command that is under way, if asked is set.
	span  operation
	asked bool
	// behind are the holds that were in its way when it queued, and last is the latest *BusyError.
	behind []blocker
	last   error
}

// enqueue asks for one resource. The request stays in the queue if the resource is busy.
func (l *Locker) enqueue(ctx context.Context, req *Request, op rules.Acquire, stays bool) *waiting {
	w := &waiting{l: l, ctx: ctx, req: req, op: op, one: l.watch.add(&op)}
	var c *update.Call
	c, w.span = l.acquireCall(ctx, req, &w.op)
	c.Op, c.Sleeps, w.asked = w.op, true, true
	if !stays {
		c.TakeBack = l.takeBack(ctx, &w.op)
	}
	w.ticket = l.lines.Submit(c)
	return w
}

// stop ends the wait. It returns the lease if the request was granted in the same moment.
func (w *waiting) stop() (lease Lease, granted bool, unknown bool) {
	unknown = w.ticket.Abandon()
	w.l.watch.remove(w.one)
	if a, ok := w.ticket.Answer(); ok && a.Err == nil {
		if lease, err := w.answer(a); err == nil {
			return lease, true, false
		}
	}
	if w.asked {
		w.span.end(nil, failure("acquire", w.op.Resource, w.req.Order, context.Cause(w.ctx), unknown))
	}
	return Lease{}, false, unknown
}

// ask asks again, to refresh the position in the queue or to take what is granted.
func (w *waiting) ask() {
	if !w.asked {
		_, w.span = w.l.tel.acquire(w.ctx, w.req, Resource{Name: w.op.Resource, Mode: Mode(w.op.Mode), Limit: int(w.op.Limit)})
		w.asked = true
	}
	w.ticket.Ask()
}

func (w *waiting) answer(a update.Answer) (Lease, error) {
	if !w.asked {
		_, w.span = w.l.tel.acquire(w.ctx, w.req, Resource{Name: w.op.Resource, Mode: Mode(w.op.Mode), Limit: int(w.op.Limit)})
	}
	w.asked = false
	var err error
	if a.Err != nil {
		err = failure("acquire", w.op.Resource, w.req.Order, a.Err, a.Unknown)
	}
	return w.l.answered(w.ctx, w.req, &w.op, w.span, a, err, w.behind)
}

// await waits until the resource is granted, or until wait ends: then the error is the latest
// *BusyError. It ends too if held, what was taken before, is lost. Once the request has queued, an
// error that passes does not end the wait.
func (w *waiting) await(wait context.Context, held *Session) (Lease, error) {
	again := w.l.clock.NewTimer(w.l.refreshEvery())
	defer again.Stop()
	var lost <-chan struct{}
	if held != nil {
		lost = held.ctx.Done()
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
				w.last, failures = err, 0
				w.behind = alsoBehind(w.behind, err)
				w.l.watch.queued(w.one, turnOf(err))
				again.Reset(w.l.refreshEvery())
			case w.last != nil && passes(err):
				again.Reset(w.l.pauseAfter(failures))
				failures++
			default:
				return Lease{}, err
			}
		case <-wait.Done():
			return Lease{}, w.ended(wait)
		case <-lost:
			if err := held.replace(); err != nil {
				return Lease{}, err
			}
			lost = nil // what ended was the context that the session was acquired with
		case <-w.one.woken:
			w.ask()
		case <-again.C:
			w.ask()
		}
	}
}

// errWaitEnded is returned by ended, to be replaced by what stop finds.
func (w *waiting) ended(wait context.Context) error {
	if w.last != nil {
		return w.last
	}
	return failure("acquire", w.op.Resource, w.req.Order, context.Cause(wait), true)
}

// acquireOne waits for one resource. What it may have got when it gives up is given back.
func (l *Locker) acquireOne(ctx, wait context.Context, req *Request, op rules.Acquire, held *Session) (Lease, error) {
	w := l.enqueue(ctx, req, op, false)
	lease, err := w.await(wait, held)
	if err == nil {
		w.stop()
		return lease, nil
	}
	if lease, granted, _ := w.stop(); granted && ctx.Err() == nil && held.live() {
		return lease, nil
	}
	return Lease{}, err
}

// enterInline asks for one resource, and waits if a grant is near. The request stays in the queue.
//
// The pace of recent holds does not include the time that a waiter needs to take its grant, so it may
// predict too early. Hence the wait goes beyond pace.Near while the position in the queue improves: a
// request that gave up then would return by way of its workflow, and keep those behind it waiting for
// that. What is left of MaxWait is for the resources after this one.
func (l *Locker) enterInline(ctx context.Context, req *Request, op rules.Acquire) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, failure("acquire", op.Resource, req.Order, context.Cause(ctx), false)
	}
	w := l.enqueue(ctx, req, op, true)
	wait, stalled := l.clock.WithTimeout(ctx, req.MaxWait)
	defer stalled()
	began := time.Now()
	lease, err := w.first(ctx)
	if busy := new(BusyError); errors.As(err, &busy) && !busy.Full && l.isNear(busy, req.MaxWait) && l.inline.begin() {
		defer l.inline.end()
		l.watch.whenStalled(w.one, stalled)
		lease, err = w.await(wait, nil)
		req.MaxWait = max(0, req.MaxWait-time.Since(began))
	}
	if err == nil {
		w.stop()
		return lease, nil
	}
	if lease, granted, unknown := w.stop(); granted {
		return lease, nil
	} else if unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = failure("acquire", op.Resource, req.Order, err, true)
	}
	return Lease{}, err
}

// first waits for the first answer.
func (w *waiting) first(ctx context.Context) (Lease, error) {
	for {
		select {
		case <-w.ticket.Ready():
		case <-ctx.Done():
			return Lease{}, failure("acquire", w.op.Resource, w.req.Order, context.Cause(ctx), true)
		}
		a, ok := w.ticket.Answer()
		if !ok {
			continue
		}
		lease, err := w.answer(a)
		if err != nil && errors.Is(err, ErrBusy) {
			w.last = err
			w.behind = alsoBehind(w.behind, err)
			w.l.watch.queued(w.one, turnOf(err))
		}
		return lease, err
	}
}

// passes reports whether an error of a request that has queued may be over when it asks again.
func passes(err error) bool {
	var layout *LayoutError
	for _, final := range []error{ErrLost, ErrSuperseded, ErrOtherRun, ErrDeadlock, ErrInvalid, ErrClosed} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !errors.As(err, &layout)
}

// pauseAfter grows from 1 s to 30 s with the failures before. A random part spreads the waiters.
func (l *Locker) pauseAfter(failures int) time.Duration {
	d := min(time.Second<<min(failures, 5), 30*time.Second)
	return d + l.clock.Jitter(d/4)
}
