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

// waiting is a request for one resource that waits in its queue, in this process. Its call stays in the
// line of the resource, so that the swap that frees the resource can grant it in the same write.
type waiting struct {
	l   *Locker
	ctx context.Context
	req *Request
	op  rules.Acquire
	// waiter is woken when the watcher finds that refreshing the request is worthwhile.
	waiter *waiter
	ticket *update.Ticket
	// span is the span of the command in flight, if inFlight is set.
	span     operation
	inFlight bool
	// blockers are the holds that blocked the request so far, and busy is the latest *BusyError.
	blockers []blocker
	busy     error
}

// enqueue asks for one resource. If it is busy, the request queues. Unless it stays, stop withdraws it.
func (l *Locker) enqueue(ctx context.Context, req *Request, op rules.Acquire, stays bool) *waiting {
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
				refresh.Reset(w.l.pauseAfter(failures))
				failures++
			default:
				return Lease{}, err
			}
		case <-wait.Done():
			return Lease{}, w.timedOut(wait)
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
	w.blockers = addBlockers(w.blockers, err)
	w.l.watch.queued(w.waiter, predicted(err))
}

// refresh repeats the request, to refresh its position in the queue or to confirm a grant.
func (w *waiting) refresh() {
	w.beginSpan()
	w.ticket.Wake()
}

// beginSpan begins a span, unless a command is in flight.
func (w *waiting) beginSpan() {
	if !w.inFlight {
		_, w.span = w.l.tel.acquire(w.ctx, w.req, Resource{Name: w.op.Resource, Mode: Mode(w.op.Mode), Limit: int(w.op.Limit)})
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

// timedOut returns the error of a wait that has ended without an answer.
func (w *waiting) timedOut(wait context.Context) error {
	if w.busy != nil {
		return w.busy
	}
	return failure("acquire", w.op.Resource, w.req.Order, context.Cause(wait), true)
}

// stop ends the wait. It returns the lease if the request was granted at the same moment. With unknown,
// the request may have been granted.
func (w *waiting) stop() (lease Lease, granted bool, unknown bool) {
	unknown = w.ticket.Abandon()
	w.l.watch.remove(w.waiter)
	if a, ok := w.ticket.Answer(); ok && a.Err == nil {
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

// pauseAfter returns the pause after a number of failures: 1 s to 30 s, and a random part that spreads the
// waiters.
func (l *Locker) pauseAfter(failures int) time.Duration {
	d := min(time.Second<<min(failures, 5), 30*time.Second)
	return d + l.clock.Jitter(d/4)
}

// holdTimes has the average times for which resources were held, from the holds that this Locker has
// ended: a moving average with a weight of an eighth. It predicts grants, so that a request waits in its
// slot if a grant is near, and parked requests are woken ahead of their grant. The estimate affects
// latency only, so resources may share an average, by a hash of their names.
type holdTimes [1 << 12]atomic.Int64 // milliseconds; 0 is unknown

func (h *holdTimes) of(resource string) *atomic.Int64 {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}

// learn adds the hold that an operation has ended, and reports whether there was one.
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

// predict returns the time until a request at a position of the queue is granted the resource; 0 if
// nothing is known.
func (h *holdTimes) predict(resource string, position int, limit int64) time.Duration {
	atOnce := max(1, int(min(limit, rules.Crowd)))
	return time.Duration(h.of(resource).Load()) * time.Millisecond * time.Duration((position+atOnce-1)/atOnce)
}

// predicted returns the predicted time to the grant of a busy request; 0 if nothing is known.
func predicted(err error) time.Duration {
	if busy := new(BusyError); errors.As(err, &busy) {
		return busy.grantIn
	}
	return 0
}
