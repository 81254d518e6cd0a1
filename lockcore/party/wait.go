package party

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
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

// ask asks again, to refresh the position in the queue or to take what is granted.
func (w *waiting) ask() {
	if !w.asked {
		_, w.span = w.l.tel.acquire(w.ctx, w.req, Resource{Name: w.op.Resource, Mode: Mode(w.op.Mode), Limit: int(w.op.Limit)})
		w.asked = true
	}
	w.ticket.Wake()
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

// ended returns the error of a wait that has ended without an answer.
func (w *waiting) ended(wait context.Context) error {
	if w.last != nil {
		return w.last
	}
	return failure("acquire", w.op.Resource, w.req.Order, context.Cause(wait), true)
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

// holdTimes say how long holds of a resource last, by those that this Locker has ended: an average
// that moves by an eighth with each. From it comes a guess at when a turn is near, so that a request
// waits for it in its slot instead of coming again, and parked ones are called up before it. A guess
// is never right or wrong, only fast or slow; so resources may share an average, by a hash of their
// names.
type holdTimes [1 << 12]atomic.Int64 // milliseconds; 0 is unknown

func (h *holdTimes) of(resource string) *atomic.Int64 {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}

// learn notes what an operation has ended, and reports whether that was a hold.
func (h *holdTimes) learn(a *update.Answer) bool {
	i := slices.IndexFunc(a.Ended, func(e rules.Entry) bool { return e.CreatedAt != nil })
	if i < 0 {
		return false
	}
	took, average := max(1, a.After.At.Sub(*a.Ended[i].CreatedAt).Milliseconds()), h.of(a.After.ID)
	if old := average.Load(); old > 0 {
		took = max(1, (7*old+took)/8)
	}
	average.Store(took)
	return true
}

// turn is when the request at a position of a queue can expect its turn; 0 if nothing is known.
func (h *holdTimes) turn(resource string, position int, limit int64) time.Duration {
	at := max(1, int(min(limit, rules.Crowd))) // as many are let in at once
	return time.Duration(h.of(resource).Load()) * time.Millisecond * time.Duration((position+at-1)/at)
}

// turnOf is when a request that found its resource busy can expect its turn; 0 if nothing is known.
func turnOf(err error) time.Duration {
	if busy := new(BusyError); errors.As(err, &busy) {
		return busy.grantIn
	}
	return 0
}
