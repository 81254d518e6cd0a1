package party

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/update"
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
			s = l.Renewing(parent, []Lease{lease})
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
	return l.Renewing(ctx, leases), nil
}

// Enter asks once, and takes the lock as a value: nothing renews it but Renew, and nothing ends it
// but Leave, Release or its TTL. The leases are in the order of the resources' names.
//
// If a resource is busy the answer is a *BusyError, and nothing was taken. With queue the request,
// which brings its own Order, then waits in the queue of that resource until it is asked again
// with a greater order, left or released. It is passed over if nothing is heard of it for 4 min,
// unless Recheck says later, and leaves the queue after 24 h, or Config.Retention if that is less.
// With Persist, the holds that it got before are kept too.
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
func (l *Locker) Enter(ctx context.Context, req Request, queue bool) ([]Lease, error) {
	ctx, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	leases, err := l.enter(ctx, req, queue)
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
		ops[i].Queue, ops[i].WaiterTTL, ops[i].HeardIn = queue, l.parkedTTL(), parkedHeardIn.Milliseconds()
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
	for i, a := range l.lines.DoAll(ctx, calls, granted) {
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
	}
	if errors.Is(cause, ErrDeadlock) {
		victim := req.leaseOn(at.Name)
		victim.id = "" // the tombstone may be that of an earlier request of the part
		leases = append(leases, victim)
	}
	l.giveUp(ctx, leases...)
}

// complete fills what is unset, sorts the resources, and refuses what is never accepted. If draws,
// a request that names neither a part nor an order becomes the first of a part of its own. Its
// random name collides with none, so no clock must order the requests of several processes.
func (l *Locker) complete(req Request, draws bool) (Request, error) {
	if draws && req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	setDefault(&req.TTL, l.cfg.TTL)
	if req.HoldTTL != 0 && !req.Persist {
		return req, &InvalidError{Field: "Request.HoldTTL", Value: req.HoldTTL.String(), Bound: "0 without Request.Persist"}
	}
	if req.Persist {
		setDefault(&req.HoldTTL, max(l.cfg.HoldTTL, req.TTL))
	} else {
		req.HoldTTL = req.TTL
	}
	setDefault(&req.Owner, req.LockID)
	setDefault(&req.Host, l.cfg.Host)
	req.Resources = slices.Clone(req.Resources)
	for i := range req.Resources {
		setDefault(&req.Resources[i].Mode, ModeExclusive)
	}
	if err := req.check(); err != nil {
		return req, err
	}
	setDefault(&req.Call, rand.Text())
	slices.SortFunc(req.Resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return req, nil
}

// entryID is the ID of the entry that the request makes on a resource. Renewals name entries by it
// alone, several of many resources in one statement, so requests with the same Call, but another part
// or order, have other IDs, and so have the resources of one request.
func (r *Request) entryID(resource string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", r.Call, r.Part, r.Order.number(), resource))
	return hex.EncodeToString(sum[:16])
}

// acquireOp returns a complete request for one of its resources, as Acquire asks for it: it queues,
// and refreshes its position in time.
func (l *Locker) acquireOp(req *Request, res Resource) rules.Acquire {
	op := rules.Acquire{
		Policy: l.cfg.policy(), Resource: res.Name, Call: req.entryID(res.Name), LockID: req.LockID, Label: req.Run, TakeOver: req.TakeOver, Undo: req.Undo,
		Within: req.Within, Saga: req.Saga, Part: req.Part, Order: req.Order.number(),
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.HoldTTL),
		Persist: req.Persist, Held: res.Held, Reacquire: req.Reacquire, NewFence: req.NewFence, Queued: req.Queued,
		Queue: true, WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), HeardIn: l.refreshEvery().Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
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
		return l.call(ctx, rules.GiveUpUpgrade{
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
		busy.turn = l.holds.turn(op.Resource, busy.Position, op.Limit)
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
