package lockcore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. It
// takes them in the order of their names, so requests of several never block each other for ever;
// what it took is renewed while it waits for the rest.
//
// When it gives up it leaves the queue and gives back what it took. The error is ctx's cause, or
// after req.MaxWait the *BusyError that says who is in the way. Other errors are those of Enter.
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
		lease, err := l.acquireOne(ctx, waitCtx, &req, res, s)
		switch {
		case err != nil:
		case s == nil:
			s = l.Renewing(parent, []Lease{lease})
		default:
			err = s.add(lease)
		}
		if err != nil {
			var leases []Lease
			if s != nil {
				leases = s.end(ErrEnded)
			}
			l.giveBack(ctx, &req, res, leases, err, true, false)
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
	}
	return s, nil
}

// acquireOne asks for one resource until it is granted; see await.
func (l *Locker) acquireOne(ctx, wait context.Context, req *Request, res Resource, held *Session) (Lease, error) {
	op := l.acquireOp(req, res)
	one := l.watch.add(&op)
	defer l.watch.remove(one)
	return l.await(ctx, wait, req, op, one, nil, held)
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
// but Leave, Release or its TTL. The leases come in the order of the resources' names.
//
// If a resource is busy the answer is a *BusyError, and nothing was taken. With queue the request,
// which brings its own Order, then stands in the queue of that resource until it is asked again
// with a greater order, left or released. It is passed over if nothing is heard of it for 4 min,
// unless Recheck says later, and loses its place after 24 h, or Config.Retention if that is less.
// With Persist, the holds that it got before stand too.
//
// With MaxWait it waits first if its turn is near: if by how long holds last here its turn comes
// within half of MaxWait, or 500 ms of it, holds last for less than 500 ms, and there are no more before
// it than may wait so; or if nothing is known of that, and it is next in line. The wait goes on for as
// long as its place moves on at least every 500 ms or so, and up to MaxWait, which is one for all
// resources of the request, and no more than a quarter of its TTL if they are several. See
// LimitInlineWaits. If ctx ends meanwhile the answer is the *BusyError, and its place stays.
//
// Other errors: *InvalidError and *LayoutError (nothing was sent), *LostError, *SupersededError,
// *DeadlockError (nothing was taken), *UnknownOutcomeError, and the database's if it refused. An
// *OtherRunError comes with the leases on the resources before that one: the caller asks again with
// TakeOver, and the same Order, or leaves them.
//
// When ctx ends in a command, the error matches ctx's. What a request that does not queue has got by then, or
// may have got, is given back, in the background if need be. One that queues is asked again, left
// or released by its caller, and not with the Order that failed so.
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
	leases, ops := make([]Lease, 0, len(req.Resources)), make([]engine.Acquire, len(req.Resources))
	for i, res := range req.Resources {
		ops[i] = l.acquireOp(&req, res)
		ops[i].Queue, ops[i].WaiterTTL, ops[i].HeardIn = queue, l.parkedTTL(), parkedHeardIn.Milliseconds()
	}
	req.together.rest = ops[1:]
	if len(ops) > 1 && req.TTL > 0 {
		req.MaxWait = min(req.MaxWait, req.TTL/4) // nothing renews what it takes before
	}
	for i, res := range req.Resources {
		lease, err := l.enterOne(ctx, &req, ops[i])
		if errors.Is(err, ErrOtherRun) {
			return append(leases, req.stillOpen()...), err
		}
		if err != nil {
			l.giveBack(ctx, &req, res, leases, err, queue, queue)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// enterOne asks for one resource, and waits if the request has queued and its turn is near.
func (l *Locker) enterOne(ctx context.Context, req *Request, op engine.Acquire) (Lease, error) {
	if !op.Queue || req.MaxWait == 0 {
		return l.ask(ctx, req, op, nil)
	}
	one := l.watch.add(&op)
	defer l.watch.remove(one)
	lease, err := l.ask(ctx, req, op, nil)
	if busy := new(BusyError); errors.As(err, &busy) && l.isNear(busy, req.MaxWait) && l.inline.begin() {
		defer l.inline.end()
		return l.awaitTurn(ctx, req, op, one, busy)
	}
	return lease, err
}

// complete fills what is unset, sorts the resources, and refuses what is never accepted. If draws,
// a request that names neither a part nor an order becomes the first of a part of its own. Its
// random name collides with none, so no clock has to order the requests of several processes.
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
	slices.SortFunc(req.Resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return req, nil
}

// acquireOp is a complete request for one of its resources, as engines take it from Acquire: it
// queues, and refreshes its place in time.
func (l *Locker) acquireOp(req *Request, res Resource) engine.Acquire {
	op := engine.Acquire{
		Policy: l.cfg.policy(), Resource: res.Name, LockID: req.LockID, Label: req.Run, TakeOver: req.TakeOver, Undo: req.Undo, Within: req.Within, Part: req.Part, Order: req.Order.number(),
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.HoldTTL),
		Persist: req.Persist, Held: res.Held, Converts: req.converts.number(), Reacquire: req.Reacquire, NewFence: req.NewFence,
		Queue: true, WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), HeardIn: l.refreshEvery().Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: req.Owner, Host: req.Host, Comment: req.Comment, NeverVictim: req.NeverVictim,
	}
	if !req.Started.IsZero() {
		op.Started = req.Started.UTC().Truncate(time.Millisecond)
	}
	return op
}

// refreshEvery is when a waiter of Acquire asks again, so that its place stands.
func (l *Locker) refreshEvery() time.Duration { return l.cfg.WaiterTTL / 3 }

// await asks for one resource until it is granted, or until wait ends: then the answer is the last
// *BusyError, which is last, the caller's own, if no other came. It ends too if held, what was
// taken before, is lost. Once the request has queued, an error that passes does not end the wait.
// one was registered before the request queued, so that no claim is made for it unheard.
func (l *Locker) await(ctx, wait context.Context, req *Request, op engine.Acquire, one *waiter, last error, held *Session) (Lease, error) {
	again := l.clock.NewTimer(l.refreshEvery())
	defer again.Stop()
	var lost <-chan struct{}
	if held != nil {
		lost = held.ctx.Done()
	}
	failures := 0
	var behind []blocker
	for {
		if last != nil {
			behind = alsoBehind(behind, last)
			l.watch.queued(one, turnOf(last))
			select {
			case <-wait.Done():
				if len(one.woken) == 0 || ctx.Err() != nil {
					return Lease{}, last
				}
				<-one.woken // its turn came at the same time
			case <-lost:
				if err := held.replace(); err != nil {
					return Lease{}, err
				}
				lost = nil // what ended was the context that the session was acquired with
				continue
			case <-one.woken:
			case <-again.C:
			}
		}
		lease, err := l.ask(ctx, req, op, behind)
		switch {
		case err == nil:
			return lease, nil
		case errors.Is(err, ErrBusy) && !errors.Is(err, ErrQueueFull):
			last, failures = err, 0
			again.Reset(l.refreshEvery())
		case last != nil && passes(err):
			again.Reset(l.pauseAfter(failures))
			failures++
		default:
			return Lease{}, err
		}
	}
}

// passes reports whether an error may be over when a request that has queued asks again.
func passes(err error) bool {
	var selection topology.ServerSelectionError
	return errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrQueueFull) || errors.As(err, &selection)
}

// pauseAfter grows from 1 s to 30 s with the failures before. A random part spreads the waiters.
func (l *Locker) pauseAfter(failures int) time.Duration {
	d := min(time.Second<<min(failures, 5), 30*time.Second)
	return d + l.clock.Jitter(d/4)
}

// errLate says that a request took longer than engine.CommandTimeout to reach the database: on its
// way, or by an old guess at the server's time. It did nothing, and cannot any more.
var errLate = fmt.Errorf("the request reached the database more than %v after it was sent", engine.CommandTimeout)

// ask sends a request for one resource, and returns the lease, or why there is none. behind are the
// holds that were in its way when it queued, as far as that is known here.
func (l *Locker) ask(outer context.Context, req *Request, op engine.Acquire, behind []blocker) (Lease, error) {
	ctx, span := l.tel.acquire(outer, req, Resource{Name: op.Resource, Mode: Mode(op.Mode), Limit: int(op.Limit)})
	op.Trace = traceparent(outer, ctx)
	var sent time.Time
	issued := req.together.asked(op.Resource) // when the first command was, by the server's clock
	answerLost := false
	send := func(ctx context.Context) (d engine.Document, err error) {
		if known := req.together.open[op.Resource]; known != nil {
			sent, span.began = known.sent, known.sent
			return known.document, nil
		}
		sent = time.Now()
		if op.Issued, err = l.issueTime(ctx); err != nil {
			return d, err
		}
		if issued.IsZero() {
			issued = op.Issued
		}
		d, err = req.together.send(ctx, l.eng, op)
		switch {
		case err != nil && outcomeUnknown(err):
			answerLost, req.lostAt = true, time.Now()
		case err == nil && d.Last.Outcome == engine.Late:
			l.afterWrite(outer, &d, ending{})
			err = errLate
		}
		return d, err
	}
	d, err := l.retryUnknown(ctx, "acquire", op.Resource, req.Order, send)
	if err == nil && d.Last.Outcome == engine.Queued && d.Claim(op.LockID, op.Part) != nil {
		// What was in the way had expired, and the write that found that made a claim for this request.
		l.afterWrite(outer, &d, ending{by: op.LockID})
		answerLost = false
		d, err = l.retryUnknown(ctx, "acquire", op.Resource, req.Order, send)
	}
	if err != nil {
		span.end(nil, err)
		return Lease{}, err
	}
	delete(req.together.open, op.Resource)
	l.afterWrite(outer, &d, ending{by: op.LockID})
	span.asked.again = answerLost
	lease, err := answer(&op, &d, sent)
	if busy := new(BusyError); errors.As(err, &busy) {
		busy.turn = l.holds.turn(op.Resource, busy.Position, op.Limit)
	}
	if err == nil && d.Last.Outcome == engine.Again && req.First && (req.lostAt.IsZero() || !grantedSince(&d, &op, issued)) {
		req.lostAt = time.Time{} // nothing is left of this request: what stands is another's
		lease, err = Lease{}, &SupersededError{Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: req.Order, By: req.Order}
	}
	lease.owner, lease.lostAt = req.Owner, req.lostAt
	if err == nil {
		span.took(&d, op.LockID, lease.Fence)
		// The span of a repetition's wait is written, unless it repeats an answer that was lost here.
		if d.Last.Outcome != engine.Again || answerLost {
			l.tel.granted(outer, req, &op, &d, behind)
		}
	}
	span.end(&d, err)
	return lease, err
}

// grantedSince reports whether a request's part was granted at a time or later, and not renewed
// since: then it is what a command got whose answer was lost.
func grantedSince(d *engine.Document, op *engine.Acquire, at time.Time) bool {
	p := d.Part(op.LockID, op.Part, op.Order)
	return p.RenewedAt == nil && p.TTL > 0 && !p.ExpiresAt.Before(at.Add(ttlOf(p)))
}
