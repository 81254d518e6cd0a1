package lockcore

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. Resources
// are taken in the order of their names, so requests of several never block each other for ever; what was
// taken is renewed while it waits for the rest.
//
// When it gives up it leaves the queue and gives back what it took, and the error is ctx's cause, or after
// req.MaxWait the *BusyError that says who is in the way. The other errors are those of Enter.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	req, err := l.complete(numbered(req))
	if err != nil {
		return nil, err
	}
	if req.Order == (Order{}) {
		return nil, &InvalidError{Field: "Request.Order", Value: req.Order.String(), Bound: "0.1 or more for a request that names its part"}
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
		lease, err := l.await(ctx, waitCtx, &req, res, nil, s)
		if err != nil {
			l.abandon(ctx, s, &req, res, err)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		if s == nil {
			s = l.Keep(parent, []Lease{lease})
			continue
		}
		if err := s.add(lease); err != nil {
			l.abandon(ctx, s, &req, res, err)
			return nil, err
		}
	}
	return s, nil
}

// await asks for one resource until it is granted, or until wait ends: then the answer is the last *BusyError, which is last,
// the caller's own, if no other came. It ends too when held, what was taken before, is lost. The end of the wait does not
// cut off a command that is under way, whose outcome would be unknown.
//
// Once the request has queued, an error that passes does not end the wait: it asks again, with growing pauses, and queues
// anew if its place has ended meanwhile.
func (l *Locker) await(ctx, wait context.Context, req *Request, res Resource, last error, held *Session) (Lease, error) {
	op := l.acquireOp(req, res)
	// Registered before the request queues, so that no claim is made for it unheard.
	one := l.watch.add(res.Name, op.Waiter())
	defer l.watch.remove(one)
	// A place is given up unless it is refreshed.
	refresh := l.cfg.WaiterTTL / 3
	again := l.clock.NewTimer(refresh)
	defer again.Stop()
	var lost <-chan struct{}
	if held != nil {
		lost = held.ctx.Done()
	}
	// If the request has queued before, a claim may have been made for it meanwhile.
	soon, failures := last != nil, 0
	var behind []blocker
	for {
		if last != nil {
			behind = alsoBehind(behind, last)
			l.watch.queued(one, soon)
			soon = false
			select {
			case <-wait.Done():
				return Lease{}, last
			case <-lost:
				if err := held.replace(); err != nil {
					return Lease{}, err
				}
				lost = nil // what ended was the context that the session was acquired with
				continue
			case <-one.turn:
			case <-again.C:
			}
		}
		lease, err := l.enterOne(ctx, req, res, how{queue: true, heardIn: l.cfg.WaiterTTL / 3, behind: behind})
		switch {
		case err == nil:
			return lease, nil
		case errors.Is(err, ErrBusy) && !errors.Is(err, ErrQueueFull):
			last, failures = err, 0
			again.Reset(refresh)
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

// pauseAfter grows from 1 s to 30 s with the failures before, and a bit, so that not all come at once.
func (l *Locker) pauseAfter(failures int) time.Duration {
	d := min(time.Second<<min(failures, 5), 30*time.Second)
	return d + l.clock.Jitter(d/4)
}

// alsoBehind adds those of whom a refusal says that they are in the way.
func alsoBehind(behind []blocker, refusal error) []blocker {
	var busy *BusyError
	if errors.As(refusal, &busy) {
		for _, b := range blockersIn(busy.Holders) {
			known := slices.ContainsFunc(behind, func(k blocker) bool { return k.lockID == b.lockID && k.fence == b.fence })
			if !known && len(behind) < mostBlockers {
				behind = append(behind, b)
			}
		}
	}
	return behind
}

// abandon leaves the queue and gives back what was taken.
func (l *Locker) abandon(ctx context.Context, s *Session, req *Request, at Resource, cause error) {
	var leases []Lease
	if s != nil {
		leases = s.end(ErrEnded)
	}
	if !errors.Is(cause, ErrInvalid) && !errors.Is(cause, ErrSuperseded) && !errors.Is(cause, ErrDeadlock) {
		leases = append(leases, req.leaseOn(at.Name))
	}
	l.giveUp(ctx, leases...)
}
