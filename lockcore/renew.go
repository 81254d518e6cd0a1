package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Renew extends the leases, each by the TTL it was taken with, and returns those that stand with what is
// left now. Several leases are renewed in batches of up to 500 resources, one command each. A lease that is lost is
// left out and answered by a *LostError; an error of the database leaves a lease as it was, since a promise outlives
// a passing error, and is an *UnknownOutcomeError where the lease may have been extended. Several errors are joined.
func (l *Locker) Renew(ctx context.Context, leases ...Lease) ([]Lease, error) {
	kept := make([]Lease, 0, len(leases))
	var errs []error
	answers := make([]renewal, len(leases))
	l.renewAll(ctx, leases, func(i int, r renewal) { answers[i] = r })
	for _, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
		if a.err == nil || !errors.Is(a.err, ErrLost) {
			kept = append(kept, a.lease)
		}
	}
	return kept, errors.Join(errs...)
}

// Downgrade makes an exclusive lease shared, and renews it, so that readers may come in beside it. Where the lock ID has
// other running parts it stays exclusive: the answer's Mode tells. Errors are those of Renew.
func (l *Locker) Downgrade(ctx context.Context, lease Lease) (Lease, error) {
	return l.renewOne(ctx, lease, true)
}

// renewal is what became of a lease.
type renewal struct {
	lease Lease
	err   error
}

// renewAll renews in batches, and then one by one what a batch could not renew, which tells why, and what came from
// another process and has a TTL that is not known here. It tells of each lease as soon as it knows: what asks for one must
// not keep the others' holders waiting.
func (l *Locker) renewAll(ctx context.Context, leases []Lease, tell func(int, renewal)) {
	var together, alone []int
	for i, lease := range leases {
		if len(leases) > 1 && (lease.forever || lease.ttl > 0) {
			together = append(together, i)
		} else {
			alone = append(alone, i)
		}
	}
	if len(together) > 0 {
		sent := time.Now()
		renewed, err := l.renewBatch(ctx, leases, together)
		for n, i := range together {
			switch {
			case n < len(renewed) && renewed[n]: // also where a later command of the batch failed
				tell(i, renewal{extended(leases[i], sent), nil})
			case err != nil:
				tell(i, renewal{leases[i], failure("renew", leases[i].Resource, leases[i].Order, err)})
			default:
				alone = append(alone, i)
			}
		}
	}
	for _, i := range alone {
		lease, err := l.renewOne(ctx, leases[i], false)
		tell(i, renewal{lease, err})
	}
}

// renewBatch renews those of the leases whose indexes are given. The error is the engine's.
func (l *Locker) renewBatch(ctx context.Context, leases []Lease, indexes []int) ([]bool, error) {
	ctx, span := l.tel.batch(ctx, len(indexes))
	ops := make([]engine.Renew, len(indexes))
	for n, i := range indexes {
		ops[n] = l.renewOp(leases[i])
	}
	renewed, err := l.eng.RenewAll(ctx, ops)
	told := err
	if err != nil && outcomeUnknown(err) {
		told = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	span.end(nil, told)
	return renewed, err
}

// renewOp is a lease's renewal, as engines take it.
func (l *Locker) renewOp(lease Lease) engine.Renew {
	return engine.Renew{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(),
	}
}

// extended is a lease after a batch that was sent then. The batch does not say what is left, and need not: it is the
// whole TTL, counted from no earlier than that.
func extended(lease Lease, sent time.Time) Lease {
	if !lease.forever {
		lease.Left = lease.ttl
		lease.validUntil = sent.Add(lease.Left - lease.ttl/trustMargin)
	}
	return lease
}

func (l *Locker) renewOne(ctx context.Context, lease Lease, downgrade bool) (Lease, error) {
	ctx, span := l.tel.start(ctx, telemetry.SpanRenew, lease)
	op := l.renewOp(lease)
	op.Downgrade = downgrade
	var sent time.Time
	d, err := insist(ctx, "renew", lease.Resource, lease.Order, func() (engine.Document, error) {
		sent = time.Now()
		return l.eng.Renew(ctx, op)
	})
	if err != nil {
		span.end(nil, err)
		return lease, err
	}
	l.settled(ctx, &d, ending{})
	p := d.Part(op.LockID, op.Part, op.Order)
	if p == nil {
		err := lostError(&d, lease.LockID, lease.Part, lease.Order.number())
		if by, ok := d.Overtaker(lease.LockID, lease.Part, lease.Order.number()); ok && by.Part != nil && by.Order == lease.Order.number() {
			span.ended(&d, telemetry.OutcomeGone, nil) // it was left meanwhile, by its holder
			return lease, err
		}
		l.tel.lost(ctx, lease.Resource)
		span.end(&d, err)
		return lease, err
	}
	renewed := leaseOf(p, &d, sent)
	renewed.Joined, renewed.owner = lease.Joined, lease.owner
	span.end(&d, nil)
	return renewed, nil
}
