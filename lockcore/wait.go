package lockcore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. Resources
// are taken in the order of their names, so requests of several never block each other for ever; what was
// taken is renewed while it waits for the rest.
//
// When it gives up it leaves the queue and gives back what it took, and the error is ctx's cause, or after
// req.MaxWait the *BusyError that says who is in the way. The other errors are those of Enter.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	req, err := l.complete(l.number(req))
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
// the caller's own, where no other came. It ends too when held, what was taken before, is lost. The end of the wait does not
// cut off a command that is under way, whose outcome would be unknown.
func (l *Locker) await(ctx, wait context.Context, req *Request, res Resource, last error, held *Session) (Lease, error) {
	// Registered before the request queues, so that no claim is made for it unheard.
	one := l.waits.add(res.Name, req.LockID, req.Part)
	defer l.waits.remove(one)
	// A place is given up unless it is refreshed.
	refresh := l.clock.NewTimer(l.cfg.WaiterTTL / 3)
	defer refresh.Stop()
	var lost <-chan struct{}
	if held != nil {
		lost = held.ctx.Done()
	}
	// Where the request has queued before, a claim may have been made for it meanwhile.
	soon := last != nil
	var behind []blocker
	for {
		if last != nil {
			behind = alsoBehind(behind, last)
			l.waits.watch(one, soon)
			soon = false
			select {
			case <-wait.Done():
				return Lease{}, last
			case <-lost:
				return Lease{}, context.Cause(held.ctx)
			case <-one.turn:
			case <-refresh.C:
				refresh.Reset(l.cfg.WaiterTTL / 3)
			}
		}
		lease, err := l.enterOne(ctx, req, res, how{queue: true, behind: behind})
		switch {
		case err == nil:
			return lease, nil
		case errors.Is(err, ErrBusy) && !errors.Is(err, ErrQueueFull):
			last = err
		case last != nil && ctx.Err() == nil && passing(err): // the place stands
			refresh.Reset(passingPause)
		default:
			return Lease{}, err
		}
	}
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

// passing reports that an error says nothing of the request, so that asking again may help.
func passing(err error) bool {
	for _, answer := range []error{ErrBusy, ErrLost, ErrSuperseded, ErrDeadlock, ErrInvalid, ErrClosed} {
		if errors.Is(err, answer) {
			return false
		}
	}
	var layout *LayoutError
	return !errors.As(err, &layout)
}

// passingPause is how long a request that waits lets pass after such an error.
const passingPause = time.Second

// rest pauses for about d, and reports whether ctx still lives.
func rest(ctx context.Context, c clock.Clock, d time.Duration) bool {
	return sleep(ctx, c, d/2+rand.N(d/2+1)) //nolint:gosec // spreads the looks, hides nothing
}

// sleep pauses for d, and reports whether ctx still lives.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
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
