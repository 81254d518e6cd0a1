package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Leave ends the parts that the leases name, and the hold too where it was not kept and no other part
// is left. Leaving what has already gone is no error. All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	var errs []error
	for _, lease := range slices.Backward(leases) {
		errs = append(errs, l.leaveOne(ctx, lease, false))
	}
	return errors.Join(errs...)
}

func (l *Locker) leaveOne(outer context.Context, lease Lease, undo bool) error {
	ctx, span := l.tel.start(outer, telemetry.SpanLeave, lease)
	op := engine.Leave{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(), Undo: undo,
	}
	d, err := l.retryUnknown(ctx, "leave", lease.Resource, lease.Order, func() (engine.Document, error) { return l.eng.Leave(ctx, op) })
	l.afterWrite(outer, &d, ending{})
	span.end(&d, err)
	if err == nil {
		l.leaveLate(outer, lease)
	}
	return err
}

// Release is what [Locker.Release] ends.
type Release struct {
	// LockID is whose holds, claims and queued places end.
	LockID string
	// Resources are where: 1 to 100 names.
	Resources []string
	// Order bounds what ends: everything up to it, and nothing that was asked for later. It is the lease's, or
	// LastAttempt of its schedule. Defaults to a number by the clock, as a request without one gets: all that was
	// asked for until now ends, and of what is asked for later only that which brings a smaller Order of its own is
	// refused. So a lock ID whose requests bring their own is released by one of them.
	Order Order
	// Leaving names a part whose request with exactly this Order, which has to be given, is known to have stopped, so
	// that it keeps nobody out any longer. Earlier requests of the part may still trust their leases.
	// Defaults to nil: none is known to.
	Leaving *string
	// Orphaned is why somebody else than the holder ends this, such as that its workflow is closed: at most 512 bytes. The spans of
	// the holds say so; nothing else changes. Defaults to none: it is the holder's own release.
	Orphaned string
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources: all of it until now, or up to
// an order. A part of it that may still trust its lease keeps others out until it leaves or its promise ends.
// Releasing what is not held is no error. All resources are tried; errors are joined. An *UnknownOutcomeError tells
// the order to repeat it with.
func (l *Locker) Release(ctx context.Context, r Release) error {
	_, err := l.ReleaseHeld(ctx, r)
	return err
}

// ReleaseHeld is Release, and tells on which of the resources the lock ID held: where it was known to hold and did not,
// its isolation was lost, or this is a repetition.
func (l *Locker) ReleaseHeld(ctx context.Context, r Release) (held []string, err error) {
	if err := firstError(checkEnd("Release", r.LockID, r.Resources), r.checkOrder()); err != nil {
		return nil, err
	}
	if r.Order == (Order{}) {
		r.Order = l.nextOrder()
	}
	for _, name := range r.Resources {
		op := engine.Release{
			Policy: l.cfg.policy(), Resource: name, LockID: r.LockID, Order: r.Order.number(), Leaving: r.Leaving,
		}
		d, one := l.release(ctx, op, r.Order, orphaned(r.Orphaned))
		err = joined(err, one)
		if len(d.Last.Released) > 0 {
			held = append(held, name)
		}
	}
	return held, err
}

func (r *Release) checkOrder() error {
	if r.Leaving != nil && r.Order == (Order{}) {
		return &InvalidError{Field: "Release.Leaving", Value: quote(*r.Leaving), Bound: "nil without Release.Order, which says which request of the part"}
	}
	return firstError(checkText("Release.Orphaned", r.Orphaned, 0, maxName), checkSchedule("Release.Order.Schedule", r.Order))
}

func checkEnd(field, lockID string, resources []string) error {
	checks := []error{
		checkText(field+".LockID", lockID, 1, maxLockID),
		checkCount("len("+field+".Resources)", len(resources), 1, maxResources),
	}
	for i, name := range resources {
		checks = append(checks, checkText(fmt.Sprintf("%s.Resources[%d]", field, i), name, 1, maxName))
	}
	return firstError(checks...)
}

func (l *Locker) release(outer context.Context, op engine.Release, order Order, why ending) (engine.Document, error) {
	ctx, span := l.tel.start(outer, telemetry.SpanRelease, Lease{Resource: op.Resource, LockID: op.LockID, Order: order})
	d, err := l.retryUnknown(ctx, "release", op.Resource, order, func() (engine.Document, error) { return l.eng.Release(ctx, op) })
	l.afterWrite(outer, &d, why)
	optional(span, telemetry.Reason, why.reason)
	span.end(&d, err)
	return d, err
}

// joined adds an error to those before it, if it is one.
func joined(before, err error) error {
	if err == nil {
		return before
	}
	return errors.Join(before, err)
}

// afterWrite takes in what a write did beside its own purpose: it writes the spans of what it ended, and wakes
// those who wait in this process and were granted a claim, or tells of it.
func (l *Locker) afterWrite(ctx context.Context, d *engine.Document, why ending) {
	l.tel.ended(ctx, d, why)
	l.watch.wrote(d)
}
