package lockcore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Enter makes one attempt, and returns leases as values: only Renew renews them, and only Leave, Release or
// expiry ends them. They are in the order of the resources' names.
//
// If a resource is busy, the error is a *BusyError, nothing is taken, and the request, which must have an
// Order, waits in the queue of that resource, until it is repeated with a greater order, left or released.
// It is passed over if it is not refreshed for 4 min, or as Recheck sets, and leaves the queue after 24 h.
// With Keep, Enter keeps the holds that it got before. With HoldOnly, the write that frees the resource
// grants the request the hold.
//
// With MaxWait, Enter first waits itself if a grant is near: if recent holds predict it within half of
// MaxWait, or within MaxWait and 500 ms; if holds last for less than 500 ms on average; and if not more
// waiters are ahead than may wait so (see LimitInlineWaits). If nothing is known of recent holds, it
// waits if the request is first in the queue. The wait lasts while the request's position improves at
// least every 500 ms or so, up to MaxWait, which is shared by all resources of the request, and up to a
// quarter of its TTL if there are several. If ctx ends during the wait, the error is the *BusyError, and
// the request stays queued.
//
// Other errors: *InvalidError and *LayoutError (nothing was sent), *LostError, *SupersededError,
// *DeadlockError (nothing was taken), *UnknownOutcomeError (repeat the request with a greater Order), and
// the database's. An *OtherRunError comes with the leases on the resources before that one: the caller
// repeats the request with TakeOver, and the same Call and Order, or leaves them.
//
// If ctx ends, the error matches ctx's. The caller must then repeat the request with a greater Order, or
// leave or release it.
func (l *Steps) Enter(ctx context.Context, req StepRequest) ([]Lease, error) {
	return l.enterOpen(ctx, req, true)
}

// TryEnter is an Enter that does not queue: after a *BusyError nothing was taken. If ctx ends, it releases
// what it may have taken.
func (l *Steps) TryEnter(ctx context.Context, req StepRequest) ([]Lease, error) {
	return l.enterOpen(ctx, req, false)
}

// enterOpen calls enter, unless the Locker is closed.
func (l *Locker) enterOpen(ctx context.Context, req StepRequest, queue bool) ([]Lease, error) {
	ctx, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	leases, err := l.enter(ctx, req, queue)
	if req.HoldOnly {
		for i := range leases {
			leases[i].id = "" // the hold's ID: a renewal of a part must not extend it
		}
	}
	return leases, endedByClose(ctx, err)
}

func (l *Locker) enter(ctx context.Context, req StepRequest, queue bool) ([]Lease, error) {
	req, err := l.complete(req, !queue)
	if err != nil {
		return nil, err
	}
	ops := make([]rules.Acquire, len(req.Resources))
	for i, res := range req.Resources {
		ops[i] = l.acquireOp(&req, res)
		ops[i].Queue, ops[i].WaiterTTL, ops[i].NextRefresh = queue, parkedTTL.Milliseconds(), parkedRefresh.Milliseconds()
	}
	if len(ops) > 1 && req.TTL > 0 {
		req.MaxWait = min(req.MaxWait, req.TTL/4) // nothing renews what it has taken before
	}
	leases, unknown, err := l.enterFirst(ctx, &req, ops)
	if err != nil {
		return nil, err
	}
	for i := len(leases); i < len(ops); i++ {
		lease, err := l.enterOne(ctx, &req, ops[i])
		if err != nil && unknown { // resources after this one are not kept while the request waits
			first := i
			if queue {
				first++
			}
			l.undo(ctx, req.leasesFrom(first, true)...)
		}
		switch {
		case errors.Is(err, ErrOtherRun):
			return leases, err
		case err != nil && queue:
			l.undoQueued(ctx, &req, req.Resources[i], leases, err)
			return nil, err
		case err != nil:
			l.undo(ctx, leases...)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// enterOne asks for one resource, and waits if the request has queued and a grant is near.
func (l *Locker) enterOne(ctx context.Context, req *StepRequest, op rules.Acquire) (Lease, error) {
	if op.Queue && req.MaxWait > 0 {
		return l.enterInline(ctx, req, op)
	}
	c, span := l.acquireCall(ctx, req, &op)
	if !op.Queue {
		c.TakeBack = l.undoCall(ctx, &op)
	}
	a, err := l.do(ctx, "acquire", req.Order, c)
	return l.finishAcquire(ctx, req, &op, span, a, err, nil)
}

// undoQueued ends the leases of a request that did not get a resource. If it waits there, its position in the
// queue and what it keeps stay, since its caller repeats it, and so does everything after an unknown outcome.
// Otherwise it is taken back. The victim of a deadlock leaves: it has read its tombstone.
func (l *Locker) undoQueued(ctx context.Context, req *StepRequest, at Resource, leases []Lease, cause error) {
	waits := errors.Is(cause, ErrBusy) && !errors.Is(cause, ErrQueueFull)
	switch {
	case errors.Is(cause, ErrUnknownOutcome):
		return
	case waits && req.Keep:
		for i := range leases {
			if leases[i].id = ""; req.keepsWhileWaiting() { // its part leaves, and is not taken back
				leases[i].waitTTL = req.HoldTTL
			}
		}
	case errors.Is(cause, ErrDeadlock):
		victim := req.leaseOn(at.Name)
		victim.id = "" // the tombstone may belong to an earlier request of the part
		leases = append(leases, victim)
	}
	l.undo(ctx, leases...)
}

// enterInline asks for one resource, and waits if a grant is near. The request stays in the queue.
//
// The prediction may be too early, since hold times do not include the time in which a waiter confirms its
// grant. So the wait exceeds pace.PositionWait while the position in the queue improves: a request that
// gave up would be repeated by its workflow, and block those behind it until then. The rest of MaxWait
// is for the resources after this one.
func (l *Locker) enterInline(ctx context.Context, req *StepRequest, op rules.Acquire) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, failure("acquire", op.Resource, req.Order, context.Cause(ctx), false)
	}
	w := l.enqueue(ctx, req, op, true)
	wait, stalled := l.clock.WithTimeout(ctx, req.MaxWait)
	defer stalled()
	began := time.Now()
	lease, err := w.firstAnswer(ctx)
	if busy := new(BusyError); errors.As(err, &busy) && !busy.Full && l.grantIsNear(busy, req.MaxWait) && l.inline.begin() {
		defer l.inline.end()
		l.watch.whenStalled(w.waiter, stalled)
		lease, err = w.await(wait, nil)
		req.MaxWait = max(0, req.MaxWait-time.Since(began))
	}
	if err != nil && w.ticket.InFlight() {
		// A write that may grant the request is on its way. An unused grant would keep others out until its TTL ends.
		answered, cancel := l.clock.WithTimeout(ctx, pace.PositionWait)
		if granted, answer := w.firstAnswer(answered); answered.Err() == nil {
			lease, err = granted, answer
		}
		cancel()
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

// LimitInlineWaits bounds the requests of Enter that may wait at the same time for a grant that is near, each
// in a slot of a worker, to n if that is less than the current bound, which is 25 at first. With 0 none
// waits.
func (l *Steps) LimitInlineWaits(n int) {
	for {
		most := l.inline.most.Load()
		if int64(max(n, 0)) >= most || l.inline.most.CompareAndSwap(most, int64(max(n, 0))) {
			return
		}
	}
}

const inlineWaits = 25

// inline counts and bounds the requests of Enter that wait for a grant that is near.
type inline struct{ waits, most atomic.Int64 }

// begin reports whether one more request may wait. If so, it must call end.
func (i *inline) begin() bool {
	if i.waits.Add(1) > i.most.Load() {
		i.waits.Add(-1)
		return false
	}
	return true
}

func (i *inline) end() { i.waits.Add(-1) }

// room returns the number of requests that may begin to wait.
func (i *inline) room() int { return int(i.most.Load() - i.waits.Load()) }

// grantIsNear reports whether a request that has queued should wait for its grant. Without a prediction, it
// should if it is first in the queue. Otherwise the grant must be predicted within half of the time, which
// leaves room for errors of the prediction, or within pace.PositionWait. In addition holds must be short
// enough that the position improves in time, and all waiters ahead must be able to wait inline too,
// because parked ones take longer than predicted.
func (l *Locker) grantIsNear(busy *BusyError, wait time.Duration) bool {
	switch {
	case busy.grantIn == 0:
		return busy.Position == 1
	case busy.Position < 1 || int64(busy.Position) > l.inline.most.Load():
		return false
	}
	return busy.grantIn/time.Duration(busy.Position) < pace.PositionWait && busy.grantIn < max(wait/2, min(wait, pace.PositionWait))
}
