package lockcore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Leave ends the parts that the leases name, and the hold too if it was not kept and no other part
// is left. Leaving what has already gone is no error. All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	errs := make([]error, len(leases))
	inParallel(len(leases), func(i int) { errs[i] = l.leaveOne(ctx, leases[i], false) })
	return errors.Join(errs...)
}

// LeaveQueue gives up the places in queues, and the claims, of the requests that the leases name. A
// part stands that has taken its claim up meanwhile, so it is for those who do not know whether the
// request still waits. Giving up what is not there is no error. All are tried; errors are joined.
func (l *Locker) LeaveQueue(ctx context.Context, leases ...Lease) error {
	errs := make([]error, len(leases))
	inParallel(len(leases), func(i int) {
		op := l.leaveOp(leases[i], false)
		op.Waiting = true
		errs[i] = l.leave(ctx, op, leases[i], ending{})
	})
	return errors.Join(errs...)
}

// giveBack ends what a request has, and what it may have got at the resource at and beyond. A request
// that queued leaves its place, unless stays. If stays, its kept holds stand too, and after an
// unknown outcome everything does. The victim of a deadlock leaves its tombstone, having read it.
func (l *Locker) giveBack(ctx context.Context, req *Request, at Resource, leases []Lease, cause error, queued, stays bool) {
	unknown := errors.Is(cause, ErrUnknownOutcome)
	if stays && unknown {
		return
	}
	if stays && req.Persist {
		for i := range leases {
			leases[i].keeps = false // the kept holds stand
		}
	}
	stands := unknown || !req.lostAt.IsZero() || (queued && !errors.Is(cause, ErrSuperseded)) // or a late copy may come
	if errors.Is(cause, ErrDeadlock) || (!stays && stands) {
		leases = append(leases, req.leaseOn(at.Name))
		delete(req.together.open, at.Name)
	}
	leases = append(leases, req.stillOpen()...)
	l.giveUp(ctx, leases...)
}

func (l *Locker) leaveOne(ctx context.Context, lease Lease, undo bool) error {
	return l.leave(ctx, l.leaveOp(lease, undo), lease, ending{})
}

func (l *Locker) leaveOp(lease Lease, undo bool) engine.Leave {
	return engine.Leave{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Label: lease.Run, Part: lease.Part, Order: lease.Order.number(), Undo: undo,
	}
}

func (l *Locker) leave(ctx context.Context, op engine.Leave, lease Lease, why ending) error {
	began := time.Now()
	_, err := l.end(ctx, telemetry.SpanLeave, lease, why, func(ctx context.Context) (engine.Document, error) { return l.eng.Leave(ctx, op) })
	if err == nil {
		l.leaveLate(ctx, lease, began)
	}
	return err
}

// end sends an operation that ends something, and takes in what it did.
func (l *Locker) end(outer context.Context, name string, of Lease, why ending, send func(context.Context) (engine.Document, error)) (engine.Document, error) {
	ctx, span := l.tel.start(outer, name, of)
	d, err := l.retryUnknown(ctx, strings.TrimPrefix(name, "lock."), of.Resource, of.Order, send)
	l.afterWrite(outer, &d, why)
	why.on(span)
	span.end(&d, err)
	return d, err
}

// Release is what [Locker.Release] ends.
type Release struct {
	// LockID is whose holds, claims and queued places end.
	LockID string
	// Run is the run label: what stands under another one stays. Defaults to "", which is all.
	Run string
	// Resources are on which: 1 to 100 names.
	Resources []string
	// FirstFence is a lease's, or its Status's: the hold that began with it ends, on the one
	// resource that is named, and no hold that began later. With Force it also names a hold that
	// was released before, whose parts drain. Places in the queue stay. Defaults to 0: Order, which
	// is required then, says what ends.
	FirstFence int64
	// Order bounds what ends: everything up to it, and nothing that was asked for later. It is for
	// requests that bring their own orders, with a Schedule of 1 or more, or LastAttempt. With
	// FirstFence it is the order of Leaving.
	Order Order
	// Leaving names a part whose request with exactly this Order, which has to be given, is known to
	// have stopped, so that it keeps others out no longer. Earlier requests of the part may still
	// trust their leases. Defaults to nil: none is known to.
	Leaving *string
	// Reason is why another than the holder ends this, such as that its workflow is closed: at most
	// 512 bytes. Spans say so. Defaults to none: it is the holder's own release.
	Reason string
	// Force, with FirstFence, is for a lock ID that does not end its hold itself. Its next renewal,
	// or its next step, answers with a *LostError that gives the Reason, which is required. It does
	// not go with Run or Order.
	Force bool
	// Now, with Force, does not wait for parts that may still trust their leases. It is for a
	// holder that is known to be dead: if it lives, it works beside the next one. Defaults to
	// false: such a part drains, and keeps others out until it leaves or its promise ends.
	Now bool
}

// Release ends one hold of a lock ID, or all that it holds and asked for on the resources up to an
// order. A part of it that may still trust its lease keeps others out until it leaves or its
// promise ends; Status says until when. Releasing what is not held is no error. All resources are
// tried; errors are joined. It may be repeated, and ends nothing then that was granted since.
func (l *Locker) Release(ctx context.Context, r Release) error {
	_, _, err := l.releaseEach(ctx, r, time.Time{}, false)
	return err
}

// ReleaseHeld is Release, and returns the resources on which nothing says that the hold was lost:
// the lock ID held, or it had been released before, as by a first try of the same release whose
// answer did not come. If a resource that the lock ID was known to hold is missing here, its
// isolation was lost.
func (l *Locker) ReleaseHeld(ctx context.Context, r Release) (held []string, err error) {
	held, _, err = l.releaseEach(ctx, r, time.Time{}, true)
	return held, err
}

// releaseEach returns also the *LostErrors of holds that began then, if it asks for them.
func (l *Locker) releaseEach(ctx context.Context, r Release, began time.Time, asks bool) (held []string, lost []error, err error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	op := engine.Release{
		Policy: l.cfg.policy(), LockID: r.LockID, Label: r.Run, FirstFence: r.FirstFence, Order: r.Order.number(), Leaving: r.Leaving,
		Force: r.Force, Now: r.Now,
	}
	if r.Force {
		op.Reason = r.Reason
	}
	results := make([]error, len(r.Resources))
	inParallel(len(r.Resources), func(i int) {
		op := op
		op.Resource = r.Resources[i]
		after, err := l.release(ctx, op, r.ending())
		if err == nil && asks && len(after.Last.Released()) == 0 {
			err = l.lostBefore(ctx, &op, began)
		}
		results[i] = err
	})
	var errs []error
	for i, err := range results {
		switch {
		case err == nil:
			held = append(held, r.Resources[i])
		case errors.Is(err, ErrLost):
			lost = append(lost, err)
		default:
			errs = append(errs, err)
		}
	}
	return held, lost, errors.Join(errs...)
}

// lostBefore is a *LostError if a hold that began then, and that a release did not find, was lost
// and not released before: evidence says so, or some of it was forgotten since. A zero time is not
// known.
func (l *Locker) lostBefore(ctx context.Context, op *engine.Release, began time.Time) error {
	d, err := l.read(ctx, op.Resource)
	if err != nil || d == nil {
		return err
	}
	lost := d.LostUpTo(op.LockID, op.Label, op.Order)
	if op.FirstFence > 0 {
		lost = d.LostBefore(op.LockID, op.FirstFence, began)
	}
	if !lost {
		return nil
	}
	e, _ := lossIn(d, op.LockID, op.Order, "what became of it is not known any more", op.Label)
	return e
}

func (l *Locker) release(ctx context.Context, op engine.Release, why ending) (engine.Document, error) {
	return l.end(ctx, telemetry.SpanRelease, Lease{Resource: op.Resource, LockID: op.LockID, Order: orderOf(op.Order)}, why,
		func(ctx context.Context) (engine.Document, error) { return l.eng.Release(ctx, op) })
}

// afterWrite takes in what a write did beside its own purpose: it writes the spans of what it
// ended, and wakes those who wait in this process and were granted a claim.
func (l *Locker) afterWrite(ctx context.Context, d *engine.Document, why ending) {
	l.server.learn(d.At)
	l.tel.ended(ctx, d, why)
	l.watch.wrote(d, l.holds.learn(d))
}
