package party

import (
	"context"
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. It
// takes them in the order of their names, so requests of several never block each other forever;
// what it took is renewed while it waits for the rest.
//
// When it gives up it leaves the queue and gives back what it took. The error is ctx's cause, or
// after req.MaxWait the *BusyError that names the holders in the way. Other errors are those of
// Enter.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
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
	waitCtx := ctx
	if req.MaxWait > 0 {
		var cancel context.CancelFunc
		waitCtx, cancel = l.clock.WithTimeout(ctx, req.MaxWait)
		defer cancel()
	}
	var s *Session
	for _, res := range req.Resources {
		var lease Lease
		var asked []Lease // what it may have got of this resource
		if err = waitCtx.Err(); err != nil {
			err = failure("acquire", res.Name, req.Order, context.Cause(waitCtx), false)
		} else {
			lease, err = l.acquireOne(ctx, waitCtx, &req, l.acquireOp(&req, res), s)
			asked = append(asked, req.leaseOn(res.Name))
		}
		switch {
		case err != nil:
		case s == nil:
			s = l.NewSession(parent, []Lease{lease})
		default:
			err = s.add(lease)
		}
		if err == nil {
			continue
		}
		var leases []Lease
		if s != nil {
			leases = s.end(ErrEnded)
		}
		l.giveUp(ctx, append(leases, asked...)...)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return s, nil
}

// TryAcquire is an Enter that does not queue, with a Session that renews what it got.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	if err := req.checkSession(); err != nil {
		return nil, err
	}
	call, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done() // Close waits for the session to be kept, so that it ends it
	leases, err := l.enter(call, req, false)
	if err != nil {
		l.giveUp(call, leases...)
		return nil, endedByClose(call, err)
	}
	return l.NewSession(ctx, leases), nil
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

// acquireOp returns a complete request for one of its resources, as Acquire asks for it: it queues,
// and refreshes its position in time.
func (l *Locker) acquireOp(req *Request, res Resource) rules.Acquire {
	op := rules.Acquire{
		Policy: l.cfg.policy(), Resource: res.Name, Call: req.entryID(res.Name), LockID: req.LockID, Label: req.Run, TakeOver: req.TakeOver, Undo: req.Undo,
		Within: req.Within, Saga: req.Saga, Part: req.Part, Order: req.Order.number(),
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.keptTTL()),
		Persist: req.Persist, HoldOnly: req.HoldOnly, Held: res.Held, Reacquire: req.Reacquire, NewFence: req.NewFence, Queued: req.Queued,
		Queue: true, WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), NextRefresh: l.refreshEvery().Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: req.Owner, Host: req.Host, Comment: req.Comment, NeverVictim: req.NeverVictim,
	}
	if !req.Started.IsZero() {
		op.Started = req.Started.UTC().Truncate(time.Millisecond)
	}
	return op
}

// refreshEvery is the time after which a waiter of Acquire asks again, so that it stays queued.
func (l *Locker) refreshEvery() time.Duration { return l.cfg.WaiterTTL / 3 }

// acquireCall makes a call of a request for one resource, and begins its span.
func (l *Locker) acquireCall(outer context.Context, req *Request, op *rules.Acquire) (*update.Call, operation) {
	ctx, span := l.tel.acquire(outer, req, Resource{Name: op.Resource, Mode: Mode(op.Mode), Limit: int(op.Limit)})
	op.Trace = traceparent(outer, ctx)
	return l.call(outer, *op, ending{by: op.LockID}), span
}

// takeBack makes a call that ends what a request may have been granted, and its position in the
// queue.
func (l *Locker) takeBack(ctx context.Context, op *rules.Acquire) *update.Call {
	if op.Upgrades != "" {
		return l.call(ctx, rules.UndoUpgrade{
			Policy: op.Policy, Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: op.Order, Call: op.Call, Upgrades: op.Upgrades,
		}, ending{})
	}
	return l.call(ctx, rules.Leave{
		Policy: op.Policy, Resource: op.Resource, LockID: op.LockID, Label: op.Label, Part: op.Part, Order: op.Order, Undo: op.Persist, Call: op.Call,
	}, ending{})
}

// answered returns the lease that a request was granted, or why there is none, and ends its span.
// behind are the holds that were in its way when it queued, as far as that is known here.
func (l *Locker) answered(
	ctx context.Context, req *Request, op *rules.Acquire, span operation, a update.Answer, err error, behind []blocker,
) (Lease, error) {
	if err != nil {
		span.end(nil, err)
		return Lease{}, err
	}
	lease, err := answer(op, &a)
	if busy := new(BusyError); errors.As(err, &busy) {
		busy.grantIn = l.holds.turn(op.Resource, busy.Position, op.Limit)
	}
	if err == nil {
		lease.owner, lease.host, lease.comment = req.Owner, req.Host, req.Comment
		span.took(a.After, op.LockID, lease.Fence)
		if a.Outcome != rules.Again || a.Retried { // else the caller repeats what it was told before
			l.tel.granted(ctx, req, op, a.After, behind)
		}
	}
	span.end(&a, err)
	return lease, err
}

// answer returns the lease of a request, or the error that says why there is none.
func answer(op *rules.Acquire, a *update.Answer) (Lease, error) {
	d := a.After
	switch a.Outcome {
	case rules.Granted, rules.Joined, rules.Again:
		if op.HoldOnly {
			return holdOf(op, a), nil
		}
		lease := leaseOf(d.Part(op.LockID, op.Part, op.Order), a)
		lease.granted = d.At
		lease.Joined, lease.keeps = a.Outcome == rules.Joined, op.Persist
		lease.Bars, lease.Undone = op.NewFence && len(op.Undo) == 0, op.Undo
		return lease, nil
	case rules.Lost:
		return Lease{}, lostError(d, op.Request())
	case rules.OtherRun:
		return Lease{}, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Label, Other: a.Note}
	case rules.Deadlock:
		return Lease{}, deadlockError(op, d, a.Note)
	case rules.Superseded:
		by, known := d.SupersededBy(op.Request())
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
