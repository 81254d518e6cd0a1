package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Renew extends the leases, each by the TTL it was taken with, and returns those that stand with what is
// left now. A lease that is lost is left out and answered by a *LostError; an error of the database leaves
// a lease as it was, since a promise outlives a passing error. Several errors are joined.
func (l *Locker) Renew(ctx context.Context, leases ...Lease) ([]Lease, error) {
	kept := make([]Lease, 0, len(leases))
	var errs []error
	for _, lease := range leases {
		renewed, err := l.renewOne(ctx, lease)
		if err != nil {
			errs = append(errs, err)
		}
		if err == nil || !errors.Is(err, ErrLost) {
			kept = append(kept, renewed)
		}
	}
	return kept, errors.Join(errs...)
}

func (l *Locker) renewOne(ctx context.Context, lease Lease) (Lease, error) {
	ctx, span := l.tel.start(ctx, "lock.renew", lease)
	op := engine.Renew{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(),
	}
	var sent time.Time
	d, err := insist(ctx, "renew", lease.Resource, lease.Order, func() (engine.Document, error) {
		sent = time.Now()
		return l.eng.Renew(ctx, op)
	})
	if err != nil {
		span.end(nil, err)
		return lease, err
	}
	l.tel.ended(ctx, &d)
	p := d.Part(op.LockID, op.Part, op.Order)
	if p == nil {
		err := lostError(&d, lease.LockID, lease.Part, lease.Order.number())
		span.end(&d, err)
		return lease, err
	}
	renewed := leaseOf(p, &d, sent)
	renewed.Joined = lease.Joined
	span.end(&d, nil)
	return renewed, nil
}

// Leave ends the parts that the leases name, and the hold too where it was not kept and no other part
// is left. Leaving what has already gone is no error. All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	var errs []error
	for _, lease := range slices.Backward(leases) {
		errs = append(errs, l.leaveOne(ctx, lease, false))
	}
	return errors.Join(errs...)
}

func (l *Locker) leaveOne(ctx context.Context, lease Lease, undo bool) error {
	ctx, span := l.tel.start(ctx, "lock.leave", lease)
	op := engine.Leave{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(), Undo: undo,
	}
	d, err := insist(ctx, "leave", lease.Resource, lease.Order, func() (engine.Document, error) { return l.eng.Leave(ctx, op) })
	l.tel.ended(ctx, &d)
	span.end(&d, err)
	return err
}

// Release is what [Locker.Release] ends.
type Release struct {
	// LockID is whose holds, claims and queued places end.
	LockID string
	// Resources are where: 1 to 100 names.
	Resources []string
	// Order bounds what ends: everything up to it, and nothing that was asked for later.
	Order Order
	// Leaving names a part that is known to have stopped, so that it keeps nobody out any longer.
	// Defaults to nil: none is known to.
	Leaving *string
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources. A part of it that may
// still trust its lease keeps others out until it leaves or its promise ends. Releasing what is not
// held is no error. All resources are tried; errors are joined.
func (l *Locker) Release(ctx context.Context, r Release) error {
	checks := []error{
		checkText("Release.LockID", r.LockID, 1, maxName),
		checkCount("len(Release.Resources)", len(r.Resources), 1, maxResources),
	}
	for i, name := range r.Resources {
		checks = append(checks, checkText(fmt.Sprintf("Release.Resources[%d]", i), name, 1, maxName))
	}
	if err := firstError(checks...); err != nil {
		return err
	}
	var errs []error
	for _, name := range r.Resources {
		errs = append(errs, l.releaseOne(ctx, r, name))
	}
	return errors.Join(errs...)
}

func (l *Locker) releaseOne(ctx context.Context, r Release, name string) error {
	ctx, span := l.tel.start(ctx, "lock.release", Lease{Resource: name, LockID: r.LockID, Order: r.Order})
	op := engine.Release{
		Policy: l.cfg.policy(), Resource: name, LockID: r.LockID, Order: r.Order.number(), Leaving: r.Leaving,
	}
	d, err := insist(ctx, "release", name, r.Order, func() (engine.Document, error) { return l.eng.Release(ctx, op) })
	l.tel.ended(ctx, &d)
	span.end(&d, err)
	return err
}
