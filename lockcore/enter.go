package lockcore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Enter asks once, and takes the lock as a value: nothing renews it but Renew, and nothing ends it but
// Leave, Release or its TTL. The leases come in the order of the resources' names.
//
// When a resource is busy the answer is a *BusyError and nothing was taken, unless queue is set: then the
// request stands in the queue of that resource until it is asked for again with a greater order, left or
// released, or Config.WaiterTTL has passed; and with Keep, the holds that it got before stand too. With
// MaxWait it waits that long first, but only while it is next in line.
//
// Other errors: *InvalidError (nothing was sent), *LostError and *SupersededError (nothing changed),
// *UnknownOutcomeError.
func (l *Locker) Enter(ctx context.Context, req Request, queue bool) ([]Lease, error) {
	if !queue {
		req = l.number(req)
	}
	req, err := l.complete(req)
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, 0, len(req.Resources))
	for _, res := range req.Resources {
		lease, err := l.enterOne(ctx, &req, res, queue)
		if queue && req.MaxWait > 0 && nextInLine(err) {
			lease, err = l.awaitBriefly(ctx, &req, res, err)
		}
		if err != nil {
			l.giveBack(ctx, leases, err, !queue || !req.Keep)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// number gives a request that its caller did not number a place after all that this process numbered
// before, and by the clock after those of others.
func (l *Locker) number(req Request) Request {
	if req.Order != (Order{}) {
		return req
	}
	if req.Part == "" {
		req.Part = rand.Text()[:10]
	}
	for {
		last := l.lastOrder.Load()
		next := max(last+1, time.Now().UnixMicro())
		if l.lastOrder.CompareAndSwap(last, next) {
			req.Order = orderOf(next)
			return req
		}
	}
}

// awaitBriefly is for a request that is next in line: a moment's patience often saves it from coming again.
func (l *Locker) awaitBriefly(ctx context.Context, req *Request, res Resource, last error) (Lease, error) {
	wait, cancel := context.WithTimeout(ctx, req.MaxWait)
	defer cancel()
	return l.await(ctx, wait, req, res, last)
}

func nextInLine(err error) bool {
	var busy *BusyError
	return errors.As(err, &busy) && busy.Position == 1
}

// complete fills what is unset, sorts the resources, and refuses what is never accepted.
func (l *Locker) complete(req Request) (Request, error) {
	setDefault(&req.TTL, l.cfg.TTL)
	if req.HoldTTL != 0 && !req.Keep {
		return req, &InvalidError{Field: "Request.HoldTTL", Value: req.HoldTTL.String(), Bound: "0 without Request.Keep"}
	}
	if req.Keep {
		setDefault(&req.HoldTTL, max(l.cfg.HoldTTL, req.TTL))
	} else {
		req.HoldTTL = req.TTL
	}
	setDefault(&req.Owner, req.LockID)
	req.Resources = slices.Clone(req.Resources)
	for i := range req.Resources {
		setDefault(&req.Resources[i].Mode, ModeExclusive)
	}
	if err := req.check(); err != nil {
		return req, err
	}
	slices.SortFunc(req.Resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return req, nil
}

func (l *Locker) enterOne(ctx context.Context, req *Request, res Resource, queue bool) (Lease, error) {
	ctx, span := l.tel.acquire(ctx, req, res)
	op := engine.Acquire{
		Policy: l.cfg.policy(), Resource: res.Name, LockID: req.LockID, Part: req.Part, Order: req.Order.number(),
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.HoldTTL),
		Keep: req.Keep, Held: res.Held, Reacquire: req.Reacquire, NewFence: req.NewFence, Queue: queue,
		WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: req.Owner, Host: l.cfg.Host, Comment: req.Comment, Trace: l.tel.traceparent(ctx),
	}
	var sent time.Time
	d, err := insist(ctx, "acquire", res.Name, req.Order, func() (engine.Document, error) {
		sent = time.Now()
		return l.eng.Acquire(ctx, op)
	})
	if err != nil {
		span.end(nil, err)
		return Lease{}, err
	}
	l.tel.ended(ctx, &d)
	lease, err := answer(&op, &d, sent)
	span.end(&d, err)
	if err == nil {
		l.tel.waited(ctx, req, &op, &d)
	}
	return lease, err
}

// answer turns the document that a request left into a lease or an error.
func answer(op *engine.Acquire, d *engine.Document, sent time.Time) (Lease, error) {
	switch verdict := op.Judge(d); verdict {
	case engine.Granted:
		p := d.Part(op.LockID, op.Part, op.Order)
		lease := leaseOf(p, d, sent)
		lease.Joined = d.Hold(op.LockID).CreatedAt.Before(d.At)
		return lease, nil
	case engine.Lost:
		lost := &LostError{Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), Reason: "it does not hold any more"}
		if e := d.EvictedRecord(op.LockID); e != nil {
			lost.By, lost.Reason = e.By, e.Reason
		}
		return Lease{}, lost
	case engine.Overtaken:
		by, _ := d.Overtaker(op.LockID, op.Part, op.Order)
		_, later := latestPart(d, op)
		return Lease{}, &SupersededError{
			Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), By: orderOf(by.Order), Released: !later,
		}
	default:
		return Lease{}, busy(op, d, verdict == engine.Full)
	}
}

// latestPart finds the running part that overtook a request; without one it was a release.
func latestPart(d *engine.Document, op *engine.Acquire) (engine.Part, bool) {
	for _, p := range d.Parts {
		if p.LockID == op.LockID && p.Part == op.Part && p.Order >= op.Order {
			return p, true
		}
	}
	return engine.Part{}, false
}

func leaseOf(p *engine.Part, d *engine.Document, sent time.Time) Lease {
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		Left: remaining(p.ExpiresAt, d.At), forever: p.ExpiresAt == nil, ttl: time.Duration(p.TTL) * time.Millisecond,
	}
	if !lease.forever {
		lease.validUntil = sent.Add(lease.Left - lease.ttl/trustMargin)
	}
	return lease
}

// trustMargin is the part of the TTL by which trust ends early: a tenth, for what the two clocks may
// differ in speed, and for work that is noticed late.
const trustMargin = 10

func busy(op *engine.Acquire, d *engine.Document, full bool) *BusyError {
	e := &BusyError{
		Resource: op.Resource, LockID: op.LockID, Position: int(d.Last.Position), Waiting: int(d.Last.Length), Full: full,
	}
	add := func(h engine.Hold, mode string, claimed bool) {
		if h.LockID == op.LockID || (engine.Compatible(mode, op.Mode) && op.Limit == 0) {
			return
		}
		left := remaining(h.ExpiresAt, d.At)
		e.Holders = append(e.Holders, Holder{
			LockID: h.LockID, Owner: h.Owner, Host: h.Host, Mode: Mode(mode), Fence: h.Fence, Claimed: claimed, Since: h.CreatedAt, ExpiresIn: left, Trace: h.Trace,
		})
		e.RetryIn = max(e.RetryIn, left)
	}
	if d.Exclusive.Acquired {
		add(d.Exclusive, engine.Exclusive, false)
	}
	for _, h := range d.Shared.Locks {
		add(h, engine.SharedBy, false)
	}
	for _, c := range d.Claims {
		add(engine.Hold{LockID: c.LockID, Owner: c.Owner, ExpiresAt: c.Until, CreatedAt: *c.Granted}, c.Mode, true)
	}
	for _, p := range d.Parts {
		if p.Revoked {
			add(engine.Hold{LockID: p.LockID, Owner: p.LockID, ExpiresAt: p.ExpiresAt, Fence: p.Fence}, p.Mode, false)
		}
	}
	return e
}

// giveBack ends the parts that a failed request got before it failed. Where the outcome of a later one is
// unknown the caller repeats the request or releases, and what was taken waits for that.
func (l *Locker) giveBack(ctx context.Context, leases []Lease, cause error, undo bool) {
	if errors.Is(cause, ErrUnknownOutcome) || len(leases) == 0 {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	for _, lease := range leases {
		// An error leaves the part to its TTL; the cause is what the caller must see.
		_ = l.leaveOne(ctx, lease, undo)
	}
}
