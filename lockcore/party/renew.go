package party

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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

// renewedAtOnce is the number of leases that one command renews.
const renewedAtOnce = store.ExtendChunk

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
		if lease.id != "" && !lease.failing {
			together = append(together, i)
		} else {
			alone = append(alone, i)
		}
	}
	// In batches of their own, so that one lost lease does not make all others be renewed one by one.
	for chunk := range slices.Chunk(together, renewedAtOnce) {
		batch, cancel := l.clock.WithTimeout(ctx, within)
		all, renewed := l.renewBatch(batch, leases, chunk)
		cancel()
		for n, i := range chunk {
			if all {
				apply(i, renewResult{renewed[n], nil})
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

// renewBatch extends the entries that leases name, and reports whether all of them are known to have
// been extended. What a lock ID keeps is extended when half of its time is over.
func (l *Locker) renewBatch(ctx context.Context, leases []Lease, indexes []int) (all bool, renewed []Lease) {
	if l.life.closed.Err() != nil {
		return false, nil
	}
	ctx, span := l.tel.batch(ctx, len(indexes))
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	sent, now := time.Now(), l.lines.Now()
	if now.At.IsZero() { // the server's time is not known: it comes with a read
		loaded, err := l.store.LoadMajority(ctx)
		if err != nil {
			span.end(nil, err)
			return false, nil
		}
		now, sent = l.lines.Learn(loaded.At, sent), time.Now()
	}
	parts := make([]store.Extension, 0, len(indexes))
	for _, i := range indexes {
		lease := leases[i]
		end := now.At.Add(lease.ttl)
		if lease.Left == Forever {
			end = rules.Never
		}
		parts = append(parts, store.Extension{Resource: lease.Resource, ID: lease.id, End: end, At: now.At, IdleAt: rules.IdleAt(end)})
		lease.Left = min(lease.Left, lease.ttl)
		if end.Equal(rules.Never) {
			lease.Left = Forever
		}
		lease.validUntil = earlier(now.Sent, sent).Add(lease.ttl - lease.ttl/trustMargin)
		if lease.keptID != "" && lease.holdTTL != Forever && -elapsed(lease.keptUntil, sent) < lease.holdTTL/2 {
			kept := now.At.Add(lease.holdTTL)
			parts = append(parts, store.Extension{Resource: lease.Resource, ID: lease.keptID, End: kept, At: now.At, IdleAt: rules.IdleAt(kept)})
			lease.keptUntil = now.Sent.Add(lease.holdTTL)
		}
		renewed = append(renewed, lease)
	}
	all, err := l.lines.Extend(ctx, parts)
	told := err
	if err != nil && outcomeUnknown(err) {
		told = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	span.end(nil, told)
	return all, renewed
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (l *Locker) renewOp(lease Lease) rules.Renew {
	return rules.Renew{
		Policy: l.cfg.policy(), Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order.number(),
	}
}

func (l *Locker) renewOne(ctx context.Context, lease Lease, downgrade bool) (Lease, error) {
	if err := checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); err != nil {
		return lease, err
	}
	spanCtx, span := l.tel.start(ctx, telemetry.SpanRenew, lease)
	op := l.renewOp(lease)
	op.Downgrade = downgrade
	a, err := l.do(spanCtx, "renew", lease.Order, l.call(spanCtx, op, ending{}))
	if err != nil {
		span.end(nil, err)
		return lease, err
	}
	p := a.After.Part(op.LockID, op.Part, op.Order)
	if p == nil {
		r := rules.Request{LockID: lease.LockID, Label: lease.Run, Part: lease.Part, Order: lease.Order.number()}
		err := lostError(a.After, r)
		span.end(&a, err)
		return lease, err
	}
	renewed := leaseOf(p, &a)
	renewed.Joined, renewed.Bars, renewed.Undone, renewed.keeps = lease.Joined, lease.Bars, lease.Undone, lease.keeps
	renewed.owner, renewed.host, renewed.comment = lease.owner, lease.host, lease.comment
	span.end(&a, nil)
	return renewed, nil
}
