package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Leave ends the parts that the leases name, and the hold too if it was not kept and no other part
// is left. Leaving what has already gone is no error. All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	var errs []error
	for _, lease := range slices.Backward(leases) {
		errs = append(errs, l.leaveOne(ctx, lease, false))
	}
	return errors.Join(errs...)
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
	_, err := l.end(ctx, telemetry.SpanLeave, lease, why, func(ctx context.Context) (engine.Document, error) { return l.eng.Leave(ctx, op) })
	if err == nil {
		l.leaveLate(ctx, lease)
	}
	return err
}

// end sends an operation that ends something, and takes in what it did.
func (l *Locker) end(outer context.Context, name string, of Lease, why ending, send func(context.Context) (engine.Document, error)) (engine.Document, error) {
	ctx, span := l.tel.start(outer, name, of)
	d, err := l.retryUnknown(ctx, strings.TrimPrefix(name, "lock."), of.Resource, of.Order, send)
	l.afterWrite(outer, &d, why)
	optional(span, telemetry.Reason, why.reason)
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
	// FirstFence is a lease's: the hold that began with it ends, on the one resource that is named,
	// and no hold that began later. Places in the queue stay. Defaults to 0: Order says what ends.
	FirstFence int64
	// Order bounds what ends: everything up to it, and nothing that was asked for later. It is for
	// requests that bring their own orders, with a Schedule of 1 or more, or LastAttempt. That of a
	// plain request names no hold, and is refused: name the hold by FirstFence. Defaults, without
	// FirstFence, to what stands when the release looks: the hold, places and claims, each ended by
	// its name. With FirstFence it is the order of Leaving.
	Order Order
	// Leaving names a part whose request with exactly this Order, which has to be given, is known to
	// have stopped, so that it keeps others out no longer. Earlier requests of the part may still
	// trust their leases. Defaults to nil: none is known to.
	Leaving *string
	// HeldSince is when the hold began, or a little before, by the server's clock. ReleaseHeld takes a
	// hold that is missing for lost if evidence is not complete since then. Defaults to not known:
	// only evidence of a loss counts.
	HeldSince time.Time
	// Orphaned is why another than the holder ends this, such as that its workflow is closed: at most
	// 512 bytes. Only spans say so. Defaults to none: it is the holder's own release.
	Orphaned string
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources: all of it until
// now, up to an order, or one hold. A part of it that may still trust its lease keeps others out
// until it leaves or its promise ends. Releasing what is not held is no error. All resources are
// tried; errors are joined. An *UnknownOutcomeError names the order to repeat it with.
func (l *Locker) Release(ctx context.Context, r Release) error {
	_, _, err := l.releaseEach(ctx, r)
	return err
}

// ReleaseHeld is Release, and returns the resources on which nothing says that the hold was lost:
// the lock ID held, or it had been released before, as by a first try of the same release whose
// answer did not come. If a resource that the lock ID was known to hold is missing here, its
// isolation was lost. Without an Order and a FirstFence it returns only what was held.
func (l *Locker) ReleaseHeld(ctx context.Context, r Release) (held []string, err error) {
	held, missing, err := l.releaseEach(ctx, r)
	for _, op := range missing {
		lost, one := l.lostBefore(ctx, &op, r.HeldSince)
		if err = errors.Join(err, one); lost == nil && one == nil {
			held = append(held, op.Resource)
		}
	}
	return held, err
}

// releaseLease ends the hold of a lease, and returns a *LostError if the hold had been lost before.
func (l *Locker) releaseLease(ctx context.Context, lease Lease) error {
	_, missing, err := l.releaseEach(ctx, Release{
		LockID: lease.LockID, Run: lease.Run, Resources: []string{lease.Resource}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
	})
	if len(missing) == 0 {
		return err
	}
	lost, err := l.lostBefore(ctx, &missing[0], lease.granted)
	if lost != nil {
		return lost
	}
	return err
}

// releaseEach returns the resources that the lock ID held, and the releases that found no hold.
func (l *Locker) releaseEach(ctx context.Context, r Release) (held []string, missing []engine.Release, err error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	why := orphaned(r.Orphaned)
	if r.Order == (Order{}) && r.FirstFence == 0 {
		held, err = l.endStanding(ctx, r.LockID, r.Resources, engine.Release{Label: r.Run}, why)
		return held, nil, err
	}
	for _, name := range r.Resources {
		op := engine.Release{
			Policy: l.cfg.policy(), Resource: name, LockID: r.LockID, Label: r.Run, FirstFence: r.FirstFence, Order: r.Order.number(), Leaving: r.Leaving,
		}
		d, one := l.release(ctx, op, r.Order, why)
		err = errors.Join(err, one)
		switch {
		case one != nil:
		case len(d.Last.Released()) > 0:
			held = append(held, name)
		default:
			missing = append(missing, op)
		}
	}
	return held, missing, err
}

func (l *Locker) release(ctx context.Context, op engine.Release, order Order, why ending) (engine.Document, error) {
	return l.end(ctx, telemetry.SpanRelease, Lease{Resource: op.Resource, LockID: op.LockID, Order: order}, why,
		func(ctx context.Context) (engine.Document, error) { return l.eng.Release(ctx, op) })
}

// lostBefore is the loss if a hold that a release did not find was lost, and not released before:
// evidence says so, or some of it was forgotten since the hold began.
func (l *Locker) lostBefore(ctx context.Context, op *engine.Release, began time.Time) (*LostError, error) {
	docs, err := l.eng.Read(ctx, op.Resource)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	d := &docs[0]
	lost := d.LostUpToBefore(op.LockID, op.Label, op.Order, began)
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
	if by := d.EvictedRecord(op.LockID, op.Label); by != nil {
		e.By, e.Reason = by.By, by.Reason
	}
	return e, nil
}

// ForceRelease is what [Locker.ForceRelease] ends.
type ForceRelease struct {
	// LockID is whose holds, claims and queued places end, whatever their order.
	LockID string
	// Resources are on which: 1 to 100 names.
	Resources []string
	// FirstFence names the hold to end, on the one resource that is named: that of its lease, or of
	// its Status. It also names a hold that was released before, whose parts drain. Places in the
	// queue stay. Defaults to 0: what stands when the release looks.
	FirstFence int64
	// Now does not wait for parts that may still trust their leases. It is for a holder that is known
	// to be dead: if it lives, it works beside the next one. Defaults to false: such a part drains,
	// and keeps others out until it leaves or its promise ends.
	Now bool
	// Reason is what the holder gets to see: 1 to 512 bytes.
	Reason string
}

// ForceRelease ends the holds of a lock ID that does not do so itself, and without a FirstFence it
// takes the lock ID out of the queues too. The holder's next renewal, or its next step, answers
// with a *LostError that gives the reason. Status says until when a part drains.
//
// It returns the names of the resources that the lock ID held. A repetition ends nothing that was
// granted since the first call, if it names the FirstFence. All resources are tried; errors are
// joined.
func (l *Locker) ForceRelease(ctx context.Context, r ForceRelease) (held []string, err error) {
	err = firstError(checkEnd("ForceRelease", r.LockID, r.FirstFence, r.Resources), checkText("ForceRelease.Reason", r.Reason, 1, maxName))
	if err != nil {
		return nil, err
	}
	op := engine.Release{Policy: l.cfg.policy(), LockID: r.LockID, FirstFence: r.FirstFence, Force: true, Now: r.Now, Reason: r.Reason}
	if r.FirstFence == 0 {
		return l.endStanding(ctx, r.LockID, r.Resources, op, revoked(r.Reason))
	}
	op.Resource = r.Resources[0]
	d, err := l.release(ctx, op, Order{}, revoked(r.Reason))
	if len(d.Last.Released()) > 0 {
		held = r.Resources
	}
	return held, err
}

// endStanding ends what a lock ID has on the resources now, in the way of the release how: it reads
// which holds, claims and places there are, and ends each by its name, so that a repetition of a
// command ends nothing that was granted since.
func (l *Locker) endStanding(ctx context.Context, lockID string, names []string, how engine.Release, why ending) (held []string, err error) {
	docs, err := l.eng.Read(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("lockstep: read what %q holds: %w", lockID, err)
	}
	how.Policy, how.LockID = l.cfg.policy(), lockID
	for i := range docs {
		d := &docs[i]
		waiting, fences := standing(d, lockID, how.Label, how.Now)
		for _, lease := range waiting {
			op := l.leaveOp(lease, false)
			op.Waiting, op.Reason = true, how.Reason
			err = errors.Join(err, l.leave(ctx, op, lease, why))
		}
		how.Resource = d.ID
		for _, how.FirstFence = range fences {
			after, one := l.release(ctx, how, Order{}, why)
			err = errors.Join(err, one)
			if len(after.Last.Released()) > 0 {
				held = append(held, d.ID)
			}
		}
	}
	return held, err
}

// standing names what a lock ID has in a document: the requests that wait or have a claim, and the
// first fences of its holds, and if drains, of those that ended and have parts that drain. With a
// run label it is what that run has.
func standing(d *engine.Document, lockID, run string, drains bool) (waiting []Lease, fences []int64) {
	add := func(part string, order int64) {
		waiting = append(waiting, Lease{Resource: d.ID, LockID: lockID, Run: run, Part: part, Order: orderOf(order)})
	}
	for _, w := range d.Waiters {
		if w.LockID == lockID && (run == "" || w.Label == run) {
			add(w.Part, w.Order)
		}
	}
	for _, e := range d.Held {
		switch {
		case e.LockID != lockID, run != "" && e.Label != run:
		case e.State == engine.Claimed:
			add(e.Part, e.Order)
		case (e.Holds() || drains) && !slices.Contains(fences, e.FirstFence):
			fences = append(fences, e.FirstFence)
		}
	}
	return waiting, fences
}

// afterWrite takes in what a write did beside its own purpose: it writes the spans of what it
// ended, and wakes those who wait in this process and were granted a claim.
func (l *Locker) afterWrite(ctx context.Context, d *engine.Document, why ending) {
	l.server.learn(d.At)
	l.tel.ended(ctx, d, why)
	l.watch.wrote(d)
}
