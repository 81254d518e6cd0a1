package party

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Enter asks once, and takes the lock as a value: nothing renews it but Renew, and nothing ends it
// but Leave, Release or its TTL. The leases are in the order of the resources' names.
//
// If a resource is busy the answer is a *BusyError, and nothing was taken. With queue the request,
// which brings its own Order, then waits in the queue of that resource until it is asked again
// with a greater order, left or released. It is passed over if nothing is heard of it for 4 min,
// unless Recheck says later, and leaves the queue after 24 h, or Config.Retention if that is less.
// With Persist, the holds that it got before are kept too. With HoldOnly the write that frees the
// resource grants it the hold.
//
// With MaxWait it waits first if a grant is near: if recent holds predict it within half of MaxWait,
// or 500 ms of it, holds last for less than 500 ms, and no more waiters are ahead than may wait so; or
// if nothing is known of that, and it is next in the queue. The wait lasts for as long as its position
// improves at least every 500 ms or so, and up to MaxWait, which is one for all resources of the
// request, and no more than a quarter of its TTL if they are several. See LimitInlineWaits. If ctx
// ends meanwhile the answer is the *BusyError, and the request stays queued.
//
// Other errors: *InvalidError and *LayoutError (nothing was sent), *LostError, *SupersededError,
// *DeadlockError (nothing was taken), *UnknownOutcomeError, and the database's. An *OtherRunError is
// returned with the leases on the resources before that one: the caller asks again with TakeOver, and
// the same Call and Order, or leaves them.
//
// When ctx ends the error matches ctx's. What a request that does not queue has got by then, or may
// have got, is given back. One that queues is asked again, left or released by its caller, and not
// with the Order that failed so.
func (l *Locker) Enter(ctx context.Context, req Request) ([]Lease, error) {
	return l.enterOpen(ctx, req, true)
}

// TryEnter is an Enter that does not queue: after a *BusyError nothing was taken.
func (l *Locker) TryEnter(ctx context.Context, req Request) ([]Lease, error) {
	return l.enterOpen(ctx, req, false)
}

// enterOpen is enter, unless the Locker is closed.
func (l *Locker) enterOpen(ctx context.Context, req Request, queue bool) ([]Lease, error) {
	ctx, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	leases, err := l.enter(ctx, req, queue)
	if req.HoldOnly {
		for i := range leases {
			leases[i].id = "" // that of the hold, which no renewal of a part may extend
		}
	}
	return leases, endedByClose(ctx, err)
}

func (l *Locker) enter(ctx context.Context, req Request, queue bool) ([]Lease, error) {
	req, err := l.complete(req, !queue)
	if err != nil {
		return nil, err
	}
	ops := make([]rules.Acquire, len(req.Resources))
	for i, res := range req.Resources {
		ops[i] = l.acquireOp(&req, res)
		ops[i].Queue, ops[i].WaiterTTL, ops[i].NextRefresh = queue, l.parkedTTL(), parkedHeardIn.Milliseconds()
	}
	if len(ops) > 1 && req.TTL > 0 {
		req.MaxWait = min(req.MaxWait, req.TTL/4) // nothing renews what it takes before
	}
	leases, unknown := l.enterTogether(ctx, &req, ops)
	for i := len(leases); i < len(ops); i++ {
		lease, err := l.enterOne(ctx, &req, ops[i])
		if err != nil && unknown { // nothing that comes later is kept while the request waits
			first := i
			if queue {
				first++
			}
			var rest []Lease
			for _, res := range req.Resources[first:] {
				rest = append(rest, req.leaseOn(res.Name))
			}
			l.giveUp(ctx, rest...)
		}
		switch {
		case errors.Is(err, ErrOtherRun):
			return leases, err
		case err != nil && queue:
			l.giveBackQueued(ctx, &req, req.Resources[i], leases, err)
			return nil, err
		case err != nil:
			l.giveUp(ctx, leases...)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// enterTogether takes as many of several resources as it gets by one command, from the first on. It
// reports whether it may have taken more. That is not taken back, since the request is asked again, and
// must not lose the turn that it has waited for because an answer was lost.
func (l *Locker) enterTogether(ctx context.Context, req *Request, ops []rules.Acquire) (leases []Lease, unknown bool) {
	if len(ops) < 2 || ctx.Err() != nil {
		return nil, false
	}
	calls, spans := make([]*update.Call, len(ops)), make([]operation, len(ops))
	for i := range ops {
		calls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])
	}
	granted := func(a update.Answer) bool {
		return a.Outcome == rules.Granted || a.Outcome == rules.Joined || a.Outcome == rules.Again
	}
	for i, a := range l.lines.DoWhile(ctx, calls, granted) {
		if a.Err != nil || !granted(a) {
			break
		}
		lease, _ := l.answered(ctx, req, &ops[i], spans[i], a, nil, nil)
		leases = append(leases, lease)
	}
	unknown = ctx.Err() != nil || slices.ContainsFunc(calls, (*update.Call).Unknown)
	return leases, unknown
}

// enterOne asks for one resource, and waits if the request has queued and a grant is near.
func (l *Locker) enterOne(ctx context.Context, req *Request, op rules.Acquire) (Lease, error) {
	if op.Queue && req.MaxWait > 0 {
		return l.enterInline(ctx, req, op)
	}
	c, span := l.acquireCall(ctx, req, &op)
	if !op.Queue {
		c.TakeBack = l.takeBack(ctx, &op)
	}
	a, err := l.do(ctx, "acquire", req.Order, c)
	return l.answered(ctx, req, &op, span, a, err, nil)
}

// giveBackQueued ends what a request that queues has, after it failed at a resource. Its position in
// the queue stays, and so do its kept holds, and everything after an unknown outcome: its caller asks
// again. The victim of a deadlock has read its tombstone.
func (l *Locker) giveBackQueued(ctx context.Context, req *Request, at Resource, leases []Lease, cause error) {
	if errors.Is(cause, ErrUnknownOutcome) {
		return
	}
	for i := range leases {
		leases[i].keeps = leases[i].keeps && !req.Persist
		if req.keepsWhileWaiting() {
			leases[i].waitTTL = req.HoldTTL
		}
	}
	if errors.Is(cause, ErrDeadlock) {
		victim := req.leaseOn(at.Name)
		victim.id = "" // the tombstone may be that of an earlier request of the part
		leases = append(leases, victim)
	}
	l.giveUp(ctx, leases...)
}

// enterInline asks for one resource, and waits if a grant is near. The request stays in the queue.
//
// The pace of recent holds does not include the time that a waiter needs to take its grant, so it may
// predict too early. Hence the wait goes beyond pace.PositionWait while the position in the queue improves: a
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

// LimitInlineWaits has at most n requests of Enter wait at once for a turn that is near, if that is
// less than before: each keeps a slot of a worker meanwhile. Without it there are 25. With 0 none
// waits.
func (l *Locker) LimitInlineWaits(n int) {
	for {
		most := l.inline.most.Load()
		if int64(max(n, 0)) >= most || l.inline.most.CompareAndSwap(most, int64(max(n, 0))) {
			return
		}
	}
}

const inlineWaits = 25

// inline counts the requests of Enter that wait for a turn that is near.
type inline struct{ waits, most atomic.Int64 }

// begin reports whether one more may wait. Then it calls end.
func (i *inline) begin() bool {
	if i.waits.Add(1) > i.most.Load() {
		i.waits.Add(-1)
		return false
	}
	return true
}

func (i *inline) end() { i.waits.Add(-1) }

// room is how many more may wait.
func (i *inline) room() int { return int(i.most.Load() - i.waits.Load()) }

// isNear reports whether a request that has queued can expect its turn in time to wait for it. If
// nothing is known of the pace, that is whether it is next in line. Else its turn comes in half of
// the time, which leaves the other half for what the pace does not say, or within pace.PositionWait; holds
// are so short that its place moves, and all before it may wait inline too: those that are parked take
// longer to come than the pace says.
func (l *Locker) isNear(busy *BusyError, wait time.Duration) bool {
	switch {
	case busy.grantIn == 0:
		return busy.Position == 1
	case busy.Position < 1 || int64(busy.Position) > l.inline.most.Load():
		return false
	}
	return busy.grantIn/time.Duration(busy.Position) < pace.PositionWait && busy.grantIn < max(wait/2, min(wait, pace.PositionWait))
}
