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

// complete fills what is unset, sorts the resources, and refuses what is never accepted. If draws,
// a request that names neither a part nor an order becomes the first of a part of its own. Its
// random name collides with none, so no clock must order the requests of several processes.
func (l *Locker) complete(req Request, draws bool) (Request, error) {
	if draws && req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	if req.HoldOnly && req.HoldTTL > 0 { // the default of TTL may be longer
		setDefault(&req.TTL, req.HoldTTL)
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

// waits reports whether the request keeps its hold only while it waits for other resources.
func (r *Request) waits() bool { return r.Persist && r.Within != "" && !r.HoldOnly }

// keptTTL returns the time for which the kept hold lasts after a grant or a renewal. A hold that is kept
// only while the request waits for other resources lasts for the part's TTL.
func (r *Request) keptTTL() time.Duration {
	if r.waits() {
		return r.TTL
	}
	return r.HoldTTL
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

// ended returns the error of a wait that has ended without an answer.
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
