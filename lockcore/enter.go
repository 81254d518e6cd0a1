package lockcore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Enter asks once, and takes the lock as a value: nothing renews it but Renew, and nothing ends it but
// Leave, Release or its TTL. The leases come in the order of the resources' names.
//
// When a resource is busy the answer is a *BusyError and nothing was taken, unless queue is set: then the
// request, which brings its own Order, stands in the queue of that resource until it is asked for again with a greater
// order, left or released, or an hour has passed without a Recheck; and with Keep, the holds that it got before stand too. With
// MaxWait it waits that long first, but only while it is next in line.
//
// Other errors: *InvalidError and *LayoutError (nothing was sent), *LostError, *SupersededError and *DeadlockError (nothing was
// taken), *UnknownOutcomeError, and the database's where it refused.
//
// When ctx ends, the error matches ctx's. What a request that does not queue has got by then, or may have got after an unknown
// outcome, is given back, in the background if need be; one that queues is asked again, left or released by its caller.
// So an Order with which a request failed in this way is not to be used again.
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
	fresh := !queue && !req.Keep && req.Order == (Order{}) && req.Part == ""
	if !queue {
		req = numbered(req)
	}
	req, err := l.complete(req)
	if err != nil {
		return nil, err
	}
	if req.Order == (Order{}) {
		return nil, &InvalidError{
			Field: "Request.Order", Value: req.Order.String(), Bound: "0.1 or more for a request that queues, or that names its part: it is asked again by it",
		}
	}
	leases := make([]Lease, 0, len(req.Resources))
	for _, res := range req.Resources {
		lease, err := l.enterOne(ctx, &req, res, how{queue: queue, parked: true, fresh: fresh, heardIn: parkedHeardIn})
		if queue && req.MaxWait > 0 && nextInLine(err) {
			lease, err = l.awaitBriefly(ctx, &req, res, err)
		}
		if err != nil {
			l.giveBack(ctx, &req, res, leases, err, queue)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// numbered is a request whose caller named neither a part nor an order, as the first of a part of its own. What is drawn
// at random collides with nobody's, so that no clock has to order the requests of several processes.
func numbered(req Request) Request {
	if req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	return req
}

// awaitBriefly is for a request that is next in line: a moment's patience often saves it from coming again.
func (l *Locker) awaitBriefly(ctx context.Context, req *Request, res Resource, last error) (Lease, error) {
	wait, cancel := l.clock.WithTimeout(ctx, req.MaxWait)
	defer cancel()
	return l.await(ctx, wait, req, res, last, nil)
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

// how a request enters: whether it queues, and whether its part is new with it.
type how struct {
	queue, fresh bool
	// parked says that the waiter has no process: its place stands longer.
	parked bool
	// heardIn is when a waiter will be heard of next.
	heardIn time.Duration
	// behind are those who were in its way when it queued, as far as that is known here.
	behind []blocker
}

func (l *Locker) enterOne(outer context.Context, req *Request, res Resource, how how) (Lease, error) {
	ctx, span := l.tel.acquire(outer, req, res)
	op := l.acquireOp(req, res)
	op.Queue, op.Fresh, op.Trace, op.HeardIn = how.queue, how.fresh, traceparent(outer, ctx), how.heardIn.Milliseconds()
	if how.parked {
		op.WaiterTTL = parkedTTL.Milliseconds()
	}
	var sent time.Time
	tries := 0
	ask := func() (d engine.Document, err error) {
		for range mostLate { // it is this process's own, so that it was late on its way, or by an old guess at the server's time
			sent = time.Now()
			if op.Issued, err = l.issueTime(ctx); err != nil {
				return d, err
			}
			tries++
			d, err = l.eng.Acquire(ctx, op)
			op.Fresh = false // a repetition may find what the first one left
			if err != nil && outcomeUnknown(err) {
				req.lostAt = time.Now()
			}
			if err != nil || d.Last.Outcome != engine.Late {
				return d, err
			}
			l.afterWrite(outer, &d, ending{})
			tries--
		}
		return d, errAlwaysLate
	}
	d, err := l.retryUnknown(ctx, "acquire", res.Name, req.Order, ask)
	if err == nil && d.Last.Outcome == engine.Queued && d.Claim(op.LockID, op.Part) != nil {
		// Whoever was in the way had expired, and the write that said so made a claim for this request.
		l.afterWrite(outer, &d, ending{by: op.LockID})
		tries = 0
		d, err = l.retryUnknown(ctx, "acquire", res.Name, req.Order, ask)
	}
	if err != nil {
		span.end(nil, err)
		return Lease{}, err
	}
	l.afterWrite(outer, &d, ending{by: op.LockID})
	span.asked.again = tries > 1
	lease, err := answer(&op, &d, sent)
	lease.owner, lease.lostAt = req.Owner, req.lostAt
	if err == nil {
		span.took(&d, op.LockID, lease.Fence)
		// A repetition has been told of, unless it is ours, after an answer that was lost.
		if d.Last.Outcome != engine.Again || span.asked.again {
			l.tel.granted(outer, req, &op, &d, how.behind)
		}
	}
	span.end(&d, err)
	return lease, err
}

// mostLate is how often a request is sent that comes too late each time.
const mostLate = 4

// errAlwaysLate says that a request took longer than engine.CommandTimeout to reach the database, each time. None of
// its copies can take effect any more.
var errAlwaysLate = fmt.Errorf("the request reached the database more than %v after it was sent, %d times", engine.CommandTimeout, mostLate)

// acquireOp is a complete request for one of its resources, as engines take it.
func (l *Locker) acquireOp(req *Request, res Resource) engine.Acquire {
	op := engine.Acquire{
		Policy: l.cfg.policy(), Resource: res.Name, LockID: req.LockID, Part: req.Part, Order: req.Order.number(),
		Mode: string(res.Mode), Limit: int64(res.Limit), TTL: millis(req.TTL), HoldTTL: millis(req.HoldTTL),
		Keep: req.Keep, Held: res.Held, Converts: req.converts.number(), Reacquire: req.Reacquire, NewFence: req.NewFence,
		WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: req.Owner, Host: req.Host, Comment: req.Comment, Safe: req.NeverVictim,
	}
	if !req.Started.IsZero() {
		op.Started = req.Started.UTC().Truncate(time.Millisecond)
	}
	return op
}

// giveBack ends what a request got before it failed, and what it may have got then. A request that queues keeps its place,
// and after an unknown outcome everything: its caller asks again, leaves or releases.
func (l *Locker) giveBack(ctx context.Context, req *Request, at Resource, leases []Lease, cause error, queue bool) {
	unknown := errors.Is(cause, ErrUnknownOutcome)
	switch {
	case queue && unknown:
		return
	case queue && req.Keep:
		for i := range leases {
			leases[i].began = false // the kept holds stand
		}
	case !queue && (unknown || !req.lostAt.IsZero()):
		leases = append(leases, req.leaseOn(at.Name))
	}
	l.giveUp(ctx, leases...)
}
