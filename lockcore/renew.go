package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Renew extends each lease by its TTL, and returns the leases that are still held with the time that is left. It
// renews up to 500 resources with one command, more than 20 leases on one resource with one command for them, and
// one by one what such a command could not renew. A lost lease is omitted, and reported by a *LostError. After an
// error of the database a lease is returned unchanged, since it may outlive a transient error; the error is an
// *UnknownOutcomeError if the lease may have been extended. Errors are joined. If ctx ends, the leases that were
// not renewed have its error.
func (l *Steps) Renew(ctx context.Context, leases ...Lease) ([]Lease, error) {
	kept := make([]Lease, 0, len(leases))
	var errs []error
	results := make([]renewResult, len(leases))
	l.renewAll(ctx, commandTimeout/2, leases, func(i int, r renewResult) { results[i] = r })
	for _, r := range results {
		if r.err != nil {
			errs = append(errs, r.err)
		}
		if errors.Is(r.err, ErrLost) {
			l.tel.count(ctx, l.tel.losses, r.lease.Resource)
		} else {
			kept = append(kept, r.lease)
		}
	}
	return kept, errors.Join(errs...)
}

// Resume returns a session that continues to renew leases, also those of another process. The leases need not be
// valid, as long as no other has been granted the resource. If one is lost, Resume returns a *LostError and no
// session. The other leases have then been renewed once, and expire with their TTL unless they are resumed
// again or left. Other errors are *UnknownOutcomeError, ErrClosed, ctx's, and the database's.
func (l *Locker) Resume(ctx context.Context, leases ...Lease) (*Session, error) {
	renewed, err := l.Steps().Renew(ctx, leases...)
	if err != nil {
		return nil, err
	}
	return l.newSession(ctx, renewed), nil
}

const (
	// renewedAtOnce bounds the leases that one command renews.
	renewedAtOnce = store.ExtendChunk
	// renewedBesideLine bounds the leases on one resource that an extension renews. Its cost for the server grows
	// with the number of parts times the number of entries. Above it, the line's next swap renews them.
	renewedBesideLine = 20
	// soonAnswered is the time after which the renewal of a single lease no longer keeps others from beginning: the
	// commands for many documents may hang.
	soonAnswered = 250 * time.Millisecond
	// reservedPause is the first pause before a renewal that a reservation has prevented is repeated.
	reservedPause = 20 * time.Millisecond
)

type renewResult struct {
	lease Lease
	err   error
}

// renewAll renews leases: many on one resource with a swap, and others in batches, which take no longer than
// within. It then renews one by one what a batch could not renew, leases whose last renewal failed, and those of
// other processes, whose TTL is not known. It calls apply for each lease as soon as its result is known, from
// several goroutines.
func (l *Locker) renewAll(ctx context.Context, within time.Duration, leases []Lease, apply func(int, renewResult)) {
	on := map[string][]int{}
	for i, lease := range leases {
		if lease.id != "" {
			on[lease.Resource] = append(on[lease.Resource], i)
		}
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	var together, alone []int
	now := clock.Now()
	for i, lease := range leases {
		switch same := on[lease.Resource]; {
		case lease.id != "" && len(same) > renewedBesideLine:
			if same[0] == i {
				beside.Go(func() { l.renewCrowd(ctx, leases, same, apply) })
			}
		case lease.id != "" && !lease.failing && !lease.needsSwap(now):
			together = append(together, i)
		default:
			alone = append(alone, i)
		}
	}
	each := func(indexes []int) {
		inParallel(len(indexes), func(n int) {
			slow := l.clock.NewTimer(soonAnswered)
			defer slow.Stop()
			answered := make(chan struct{})
			beside.Go(func() {
				lease, err := l.renewOne(ctx, leases[indexes[n]], false)
				close(answered)
				apply(indexes[n], renewResult{lease, err})
			})
			select {
			case <-answered:
			case <-slow.C:
			}
		})
	}
	beside.Go(func() { each(alone) }) // a batch may have to wait for a document that is reserved
	var rest []int
	for chunk := range slices.Chunk(together, renewedAtOnce) {
		rest = append(rest, l.renewBatch(ctx, within, leases, chunk, apply)...)
	}
	each(rest)
}

// renewCrowd renews many leases on one resource with the next swap of its line.
func (l *Locker) renewCrowd(ctx context.Context, leases []Lease, indexes []int, apply func(int, renewResult)) {
	op := rules.RenewParts{Resource: leases[indexes[0]].Resource, Parts: map[rules.PartID]bool{}}
	c := l.call(ctx, op, ending{})
	c.First = true
	for _, i := range indexes {
		op.Parts[leases[i].partID()] = true
		if half := leases[i].half(); c.Urgent.IsZero() || half.Before(c.Urgent) {
			c.Urgent = half
		}
	}
	spanCtx, span := l.tel.batch(ctx, len(indexes))
	a, err := l.do(spanCtx, "renew", Order{}, c)
	span.end(nil, err)
	parts, kept := map[rules.PartID]int{}, map[string][]keptEntry{}
	for i := 0; err == nil && i < len(a.After.Entries); i++ {
		switch e := &a.After.Entries[i]; {
		case e.CutOff:
		case e.State == rules.StateRunning:
			parts[e.PartID()]++
		case e.State == rules.StateKept:
			kept[e.LockID] = addKept(kept[e.LockID], e, &a)
		}
	}
	for _, i := range indexes {
		lease := leases[i]
		var unknown *UnknownOutcomeError
		switch {
		case errors.As(err, &unknown):
			apply(i, renewResult{lease, &UnknownOutcomeError{Op: unknown.Op, Resource: lease.Resource, Order: lease.Order, Err: unknown.Err}})
		case err != nil:
			apply(i, renewResult{lease, err})
		case parts[lease.partID()] == 0:
			apply(i, renewResult{lease, lostError(a.After, lease.caller(), time.Time{})})
		default:
			lease.kept, lease.seen, lease.upgraded = kept[lease.LockID], a.Sent, parts[lease.partID()] > 1
			apply(i, renewResult{lease.renewed(a.Sent), nil})
		}
	}
}

func (l *Lease) partID() rules.PartID {
	c := l.caller()
	return c.PartID()
}

// half returns the local time at which half of the TTL is over. From then on, renewals ignore reservations.
func (l *Lease) half() time.Time { return l.validUntil.Add(l.ttl/trustMargin - l.ttl/2) }

// renewed returns the lease after a renewal by its TTL from a local time on.
func (l Lease) renewed(from time.Time) Lease {
	if l.Left != Forever {
		l.Left = min(l.Left, l.ttl)
	}
	l.validUntil = from.Add(l.ttl - l.ttl/trustMargin)
	return l
}

// renewBatch renews leases, and returns the indexes of the leases whose renewal is not certain. It repeats
// renewals that a reservation has prevented, with longer and longer pauses.
func (l *Locker) renewBatch(ctx context.Context, within time.Duration, leases []Lease, indexes []int, apply func(int, renewResult)) (alone []int) {
	ctx, cancel := l.clock.WithTimeout(ctx, within)
	defer cancel()
	for round := 1; len(indexes) > 0; round++ {
		renewed, rest := l.extend(ctx, leases, indexes)
		var again []int
		for n, i := range indexes {
			switch repeat, unknown := rest[leases[i].Resource]; {
			case renewed == nil, unknown && !repeat:
				alone = append(alone, i)
			case repeat:
				again = append(again, i)
			default:
				apply(i, renewResult{renewed[n], nil})
			}
		}
		pause := pace.Backoff(reservedPause, 16*reservedPause, round)
		if indexes = again; len(indexes) > 0 && !clock.Sleep(ctx, l.clock, pace.Jitter(pause, l.clock.Jitter)) {
			return append(alone, indexes...)
		}
	}
	return alone
}

// extend extends the entries of leases, and returns the renewed leases, or nil if nothing was sent. They count
// only if their resource is not in rest, see store.Extend. It extends a kept hold when half of its time is over.
func (l *Locker) extend(ctx context.Context, leases []Lease, indexes []int) (renewed []Lease, rest map[string]bool) {
	if l.life.closed.Err() != nil {
		return nil, nil
	}
	ctx, span := l.tel.batch(ctx, len(indexes))
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	sent, now := clock.Now(), l.lines.Now()
	if now.At.IsZero() { // the server's time is not known: it comes with a read
		loaded, err := l.store.LoadMajority(ctx)
		if err != nil {
			span.end(nil, err)
			return nil, nil
		}
		now, sent = l.lines.Learn(loaded.At, sent), clock.Now()
	}
	parts := make([]store.Extension, 0, len(indexes))
	for _, i := range indexes {
		lease := leases[i]
		end, yields := now.At.Add(lease.ttl), !over(lease.half(), sent)
		if lease.Left == Forever {
			end = rules.Never
		}
		parts = append(parts, store.Extension{Resource: lease.Resource, ID: lease.id, End: end, At: now.At, IdleAt: rules.IdleAt(end), Yields: yields})
		lease = lease.renewed(earlier(now.Sent, sent))
		lease.kept = slices.Clone(lease.kept)
		for k := range lease.kept {
			if kept := &lease.kept[k]; -clock.Elapsed(kept.until, sent) < kept.ttl/2 {
				end := now.At.Add(kept.ttl)
				parts = append(parts, store.Extension{Resource: lease.Resource, ID: kept.id, End: end, At: now.At, IdleAt: rules.IdleAt(end), Yields: yields})
				kept.until = now.Sent.Add(kept.ttl)
			}
		}
		renewed = append(renewed, lease)
	}
	rest, err := l.lines.Extend(ctx, parts)
	if err != nil && !errors.Is(err, store.ErrNotSent) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	span.end(nil, err)
	return renewed, rest
}

func (l *Locker) renewOne(ctx context.Context, lease Lease, downgrade bool) (Lease, error) {
	if err := checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); err != nil {
		return lease, err
	}
	spanCtx, span := l.tel.start(ctx, telemetry.SpanRenew, lease)
	op := rules.Renew{
		Resource: lease.Resource, Caller: lease.caller(), Downgrade: downgrade,
	}
	c := l.call(spanCtx, op, ending{})
	c.Urgent = lease.half()
	a, err := l.do(spanCtx, "renew", lease.Order, c)
	if err != nil {
		span.end(nil, err)
		return lease, err
	}
	p := a.After.Part(op.Caller)
	if p == nil {
		err := lostError(a.After, op.Caller, time.Time{})
		span.end(&a, err)
		return lease, err
	}
	renewed := leaseOf(p, &a)
	renewed.Joined, renewed.Bars, renewed.granted = lease.Joined, lease.Bars, lease.granted
	renewed.owner, renewed.host, renewed.comment = lease.owner, lease.host, lease.comment
	span.end(&a, nil)
	return renewed, nil
}
