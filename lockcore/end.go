package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

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
	return l.leave(outer, l.leaveOp(lease, undo), lease, ending{})
}

// leaveOp is the end of a lease's part, as engines take it.
func (l *Locker) leaveOp(lease Lease, undo bool) engine.Leave {
	return engine.Leave{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(), Undo: undo,
	}
}

func (l *Locker) leave(outer context.Context, op engine.Leave, lease Lease, why ending) error {
	ctx, span := l.tel.start(outer, telemetry.SpanLeave, lease)
	d, err := l.retryUnknown(ctx, "leave", op.Resource, lease.Order, func() (engine.Document, error) { return l.eng.Leave(ctx, op) })
	l.afterWrite(outer, &d, why)
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
	// FirstFence is that of a lease: the hold that began with it ends, on the one resource that is named, and no hold that
	// began later. Places in the queue stay. Defaults to 0: Order says what ends.
	FirstFence int64
	// Order bounds what ends: everything up to it, and nothing that was asked for later. It is the lease's, or
	// LastAttempt of its schedule. It is for a lock ID whose requests bring their own orders, each part's counted in the
	// same way. Defaults, without FirstFence, to what stands when the release looks: the hold, places and claims, which are
	// then ended one by one. With FirstFence it is the order of Leaving.
	Order Order
	// Leaving names a part whose request with exactly this Order, which has to be given, is known to have stopped, so
	// that it keeps nobody out any longer. Earlier requests of the part may still trust their leases.
	// Defaults to nil: none is known to.
	Leaving *string
	// HeldSince is when the hold began, or a little before, by the server's clock, if that is known: ReleaseHeld takes a hold
	// that is missing for lost if what became of holds since then is not known any more. Defaults to not known.
	HeldSince time.Time
	// Orphaned is why somebody else than the holder ends this, such as that its workflow is closed: at most 512 bytes. The spans of
	// the holds say so; nothing else changes. Defaults to none: it is the holder's own release.
	Orphaned string
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources: all of it until now, or up to
// an order. A part of it that may still trust its lease keeps others out until it leaves or its promise ends.
// Releasing what is not held is no error. All resources are tried; errors are joined. An *UnknownOutcomeError tells
// the order to repeat it with.
func (l *Locker) Release(ctx context.Context, r Release) error {
	_, err := l.releaseHeld(ctx, r, func(*engine.Release) (bool, error) { return false, nil }) // nobody asks
	return err
}

// ReleaseHeld is Release, and returns the resources on which nothing says that the hold was lost: the lock ID held, or it had
// been released before, as by a first try of the same release whose answer did not come. If the lock ID was known to hold
// a resource that is missing here, its isolation was lost. Without an Order and a FirstFence only what was held is returned.
func (l *Locker) ReleaseHeld(ctx context.Context, r Release) (held []string, err error) {
	return l.releaseHeld(ctx, r, func(op *engine.Release) (bool, error) {
		lost, err := l.lostBefore(ctx, op, r.HeldSince)
		return lost != nil, err
	})
}

// releaseHeld asks whether the hold was lost if it is missing.
func (l *Locker) releaseHeld(ctx context.Context, r Release, lostBefore func(*engine.Release) (bool, error)) (held []string, err error) {
	if err := firstError(checkEnd("Release", r.LockID, r.Resources), r.checkOrder()); err != nil {
		return nil, err
	}
	if r.Order == (Order{}) && r.FirstFence == 0 {
		return l.endStanding(ctx, r.LockID, r.Resources, engine.Release{}, orphaned(r.Orphaned))
	}
	for _, name := range r.Resources {
		op := engine.Release{
			Policy: l.cfg.policy(), Resource: name, LockID: r.LockID, FirstFence: r.FirstFence, Order: r.Order.number(), Leaving: r.Leaving,
		}
		d, one := l.release(ctx, op, r.Order, orphaned(r.Orphaned))
		err = joined(err, one)
		lost := false
		if one == nil && len(d.Last.Released) == 0 {
			if lost, one = lostBefore(&op); one != nil {
				err = joined(err, one)
			}
		}
		if one == nil && !lost {
			held = append(held, name)
		}
	}
	return held, err
}

// lostBefore is the loss if a hold that a release did not find was lost, and not released before: evidence
// says so, or some of it was forgotten since the hold began.
func (l *Locker) lostBefore(ctx context.Context, op *engine.Release, began time.Time) (*LostError, error) {
	docs, err := l.eng.Read(ctx, op.Resource)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	d := &docs[0]
	lost := d.LostUpToBefore(op.LockID, op.Order, began)
	if op.FirstFence > 0 {
		lost = d.LostBefore(op.LockID, op.FirstFence, began)
	}
	if !lost {
		return nil, nil
	}
	e := &LostError{Resource: op.Resource, LockID: op.LockID, Order: orderOf(op.Order), Reason: "what became of it is not known any more"}
	if op.Leaving != nil {
		e.Part = *op.Leaving
	}
	if by := d.EvictedRecord(op.LockID); by != nil {
		e.By, e.Reason = by.By, by.Reason
	}
	return e, nil
}

// releaseLease ends the hold of a lease, and returns a *LostError if the hold had been lost before.
func (l *Locker) releaseLease(ctx context.Context, lease Lease) error {
	r := Release{
		LockID: lease.LockID, Resources: []string{lease.Resource}, FirstFence: lease.HoldFence, Order: lease.Order, Leaving: &lease.Part,
	}
	var lost *LostError
	_, err := l.releaseHeld(ctx, r, func(op *engine.Release) (is bool, err error) {
		lost, err = l.lostBefore(ctx, op, lease.granted)
		return lost != nil, err
	})
	if lost != nil {
		return joined(err, lost)
	}
	return err
}

// endStanding ends what a lock ID has on the resources now: it reads which holds, claims and places there are, and ends
// each by its name, so that a repetition of a command ends nothing that was granted since. The release says how.
func (l *Locker) endStanding(ctx context.Context, lockID string, names []string, how engine.Release, why ending) (held []string, err error) {
	docs, err := l.eng.Read(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("lockstep: read what %q holds: %w", lockID, err)
	}
	for i := range docs {
		d := &docs[i]
		for _, r := range requestsOf(d, lockID) {
			op := engine.Leave{Policy: l.cfg.policy(), Resource: d.ID, LockID: lockID, Part: r.part, Order: r.order.number(), Waiting: true, Reason: how.Reason}
			err = joined(err, l.leave(ctx, op, Lease{Resource: d.ID, LockID: lockID, Part: r.part, Order: r.order}, why))
		}
		for _, first := range fencesOf(d, lockID, how.Now) {
			op := how
			op.Policy, op.Resource, op.LockID, op.FirstFence = l.cfg.policy(), d.ID, lockID, first
			after, one := l.release(ctx, op, Order{}, why)
			err = joined(err, one)
			if len(after.Last.Released) > 0 {
				held = append(held, d.ID)
			}
		}
	}
	return held, err
}

// waiting names a request that waits, or that was granted a claim.
type waiting struct {
	part  string
	order Order
}

// requestsOf are a lock ID's requests in a document that wait or have a claim.
func requestsOf(d *engine.Document, lockID string) []waiting {
	var out []waiting
	for _, w := range d.Waiters {
		if w.LockID == lockID {
			out = append(out, waiting{w.Part, orderOf(w.Order)})
		}
	}
	for _, e := range d.Held {
		if e.LockID == lockID && e.State == engine.Claimed {
			out = append(out, waiting{e.Part, orderOf(e.Order)})
		}
	}
	return out
}

// fencesOf are the first fences of the holds that a lock ID has in a document, and had, if those that drain count.
func fencesOf(d *engine.Document, lockID string, drains bool) []int64 {
	var out []int64
	for _, e := range d.Held {
		if e.LockID == lockID && (e.Holds() || (drains && e.State == engine.Draining)) && !slices.Contains(out, e.FirstFence) {
			out = append(out, e.FirstFence)
		}
	}
	return out
}

func (r *Release) checkOrder() error {
	if r.Leaving != nil && r.Order == (Order{}) {
		return &InvalidError{Field: "Release.Leaving", Value: quote(*r.Leaving), Bound: "nil without Release.Order, which says which request of the part"}
	}
	return firstError(checkFirstFence("Release.HoldFence", r.FirstFence, r.Resources), checkText("Release.Orphaned", r.Orphaned, 0, maxName), checkSchedule("Release.Order.Schedule", r.Order))
}

// checkFirstFence refuses to look for one hold on several resources.
func checkFirstFence(field string, fence int64, resources []string) error {
	if fence < 0 || (fence > 0 && len(resources) != 1) {
		return &InvalidError{Field: field, Value: strconv.FormatInt(fence, 10), Bound: "that of a lease, with one resource; or 0"}
	}
	return nil
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
	l.server.learn(d.At)
	l.tel.ended(ctx, d, why)
	l.watch.wrote(d)
}
