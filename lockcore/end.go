package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

func (l *Locker) leaveOne(ctx context.Context, lease Lease, undo bool) error {
	ctx, span := l.tel.start(ctx, "lock.leave", lease)
	op := engine.Leave{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(), Undo: undo,
	}
	d, err := insist(ctx, "leave", lease.Resource, lease.Order, func() (engine.Document, error) { return l.eng.Leave(ctx, op) })
	l.settled(ctx, &d)
	span.end(&d, err)
	return err
}

// Release is what [Locker.Release] ends.
type Release struct {
	// LockID is whose holds, claims and queued places end.
	LockID string
	// Resources are where: 1 to 100 names.
	Resources []string
	// Order bounds what ends: everything up to it, and nothing that was asked for later. It is the lease's, or
	// LastAttempt of its schedule; the zero Order ends only what was asked for with the zero Order.
	Order Order
	// Leaving names a part whose request with exactly this Order is known to have stopped, so that it keeps nobody
	// out any longer. Earlier requests of the part may still trust their leases.
	// Defaults to nil: none is known to.
	Leaving *string
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources. A part of it that may
// still trust its lease keeps others out until it leaves or its promise ends. Releasing what is not
// held is no error. All resources are tried; errors are joined.
func (l *Locker) Release(ctx context.Context, r Release) error {
	if err := checkEnd("Release", r.LockID, r.Resources); err != nil {
		return err
	}
	var err error
	for _, name := range r.Resources {
		op := engine.Release{
			Policy: l.cfg.policy(), Resource: name, LockID: r.LockID, Order: r.Order.number(), Leaving: r.Leaving,
		}
		_, one := l.release(ctx, op, r.Order)
		err = joined(err, one)
	}
	return err
}

func checkEnd(field, lockID string, resources []string) error {
	checks := []error{
		checkText(field+".LockID", lockID, 1, maxName),
		checkCount("len("+field+".Resources)", len(resources), 1, maxResources),
	}
	for i, name := range resources {
		checks = append(checks, checkText(fmt.Sprintf("%s.Resources[%d]", field, i), name, 1, maxName))
	}
	return firstError(checks...)
}

func (l *Locker) release(ctx context.Context, op engine.Release, order Order) (engine.Document, error) {
	ctx, span := l.tel.start(ctx, "lock.release", Lease{Resource: op.Resource, LockID: op.LockID, Order: order})
	d, err := insist(ctx, "release", op.Resource, order, func() (engine.Document, error) { return l.eng.Release(ctx, op) })
	l.settled(ctx, &d)
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

// settled takes in what a write did beside its own purpose: it writes the spans of the holds that it ended, and wakes
// those who wait in this process and were granted a claim.
func (l *Locker) settled(ctx context.Context, d *engine.Document) {
	l.tel.ended(ctx, d)
	l.waits.notify(d)
}
