package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Renew extends the leases, each by the TTL it was taken with, and returns those that stand with
// what is left now. Several leases are renewed in batches of up to 500 resources, one command each;
// what a batch could not renew is renewed one by one. A lease that is lost is left out and answered
// by a *LostError; an error of the database leaves a lease as it was, since a promise outlives a
// passing error, and is an *UnknownOutcomeError if the lease may have been extended. Several errors
// are joined. When ctx ends, leases that were not renewed by then are answered so.
func (l *Locker) Renew(ctx context.Context, leases ...Lease) ([]Lease, error) {
	kept := make([]Lease, 0, len(leases))
	var errs []error
	results := make([]renewResult, len(leases))
	l.renewAll(ctx, commandTimeout/2, leases, func(i int, r renewResult) { results[i] = r })
	for _, r := range results {
		if r.err != nil {
			errs = append(errs, r.err)
		}
		if errors.Is(r.err, ErrLost) {
			l.tel.lost(ctx, r.lease.Resource)
		} else {
			kept = append(kept, r.lease)
		}
	}
	return kept, errors.Join(errs...)
}

type renewResult struct {
	lease Lease
	err   error
}

// renewAll renews in batches, which take no longer than within, and then one by one what a batch
// could not renew, what failed the last time, and what has a TTL that is not known here. It calls
// apply for each lease as soon as it knows, from several goroutines at once.
func (l *Locker) renewAll(ctx context.Context, within time.Duration, leases []Lease, apply func(int, renewResult)) {
	var together, alone []int
	for i, lease := range leases {
		if len(leases) > 1 && lease.ttl > 0 && !lease.failing {
			together = append(together, i)
		} else {
			alone = append(alone, i)
		}
	}
	if len(together) > 0 {
		sent := time.Now()
		batch, cancel := l.clock.WithTimeout(ctx, within)
		renewed := l.renewBatch(batch, leases, together)
		cancel()
		for n, i := range together {
			if n < len(renewed) && renewed[n] {
				apply(i, renewResult{extended(leases[i], sent), nil})
			} else {
				alone = append(alone, i)
			}
		}
	}
	inParallel(len(alone), func(n int) {
		lease, err := l.renewOne(ctx, leases[alone[n]], false)
		apply(alone[n], renewResult{lease, err})
	})
}

// inParallel calls do with 0 to n-1, a few at a time.
func inParallel(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var calls errgroup.Group
	calls.SetLimit(16)
	for i := range n {
		calls.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = calls.Wait()
}

func (l *Locker) renewBatch(ctx context.Context, leases []Lease, indexes []int) []bool {
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
	return renewed
}

func (l *Locker) renewOp(lease Lease) engine.Renew {
	return engine.Renew{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(),
	}
}

// extended is a lease after a batch that was sent then. The batch does not say what is left: it is
// the whole TTL, counted from no earlier than that.
func extended(lease Lease, sent time.Time) Lease {
	if lease.Left != Forever {
		lease.Left = lease.ttl
	}
	lease.validUntil = sent.Add(lease.ttl - lease.ttl/trustMargin)
	return lease
}

func (l *Locker) renewOne(ctx context.Context, lease Lease, downgrade bool) (Lease, error) {
	ctx, span := l.tel.start(ctx, telemetry.SpanRenew, lease)
	op := l.renewOp(lease)
	op.Downgrade = downgrade
	var sent time.Time
	d, err := l.retryUnknown(ctx, "renew", lease.Resource, lease.Order, func(ctx context.Context) (engine.Document, error) {
		sent = time.Now()
		return l.eng.Renew(ctx, op)
	})
	if err != nil {
		span.end(nil, err)
		return lease, err
	}
	l.afterWrite(ctx, &d, ending{})
	p := d.Part(op.LockID, op.Part, op.Order)
	if p == nil {
		err := lostError(&d, lease.LockID, lease.Run, lease.Part, lease.Order.number())
		if by, ok := d.Overtaker(lease.LockID, lease.Run, lease.Part, lease.Order.number()); ok && by.Part != nil && by.Order == lease.Order.number() {
			span.ended(&d, telemetry.OutcomeGone, nil) // it was left meanwhile, by its holder
			return lease, err
		}
		span.end(&d, err)
		return lease, err
	}
	renewed := leaseOf(p, &d, sent)
	renewed.Joined, renewed.Bars, renewed.Undone, renewed.owner = lease.Joined, lease.Bars, lease.Undone, lease.owner
	span.end(&d, nil)
	return renewed, nil
}
