package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

// quick is the time of the slowest answer with which a process must renew a lock in time.
const quick = shortTTL / 8

// trust is a check with two parts: a lease that is not renewed, and one that its process renews.
func (r *run) trust(ctx context.Context, seed uint64) (outcome, error) {
	clients, stop, err := r.clients(ctx, 4, seed)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	var parts [2]outcome
	var errs [2]error
	harness.InParallel(2, func(i int) {
		if i == 0 {
			parts[i], errs[i] = r.forsaken(ctx, clients[0], clients[1], fmt.Sprintf("trust/%d/forsaken", seed))
			return
		}
		var slowest time.Duration
		for attempt := range 3 { // a machine that is busy for a moment renews late
			var took time.Duration
			parts[i], took, errs[i] = r.renewed(ctx, clients[2], clients[3], fmt.Sprintf("trust/%d/renewed/%d", seed, attempt))
			if errs[i] != nil || parts[i].reason == "" {
				return
			}
			slowest = max(slowest, took)
		}
		parts[i].seen = neverRenewed(slowest)
	})
	return outcome{
		count: parts[0].count + parts[1].count, seen: cmp.Or(parts[0].seen, parts[1].seen), reason: parts[1].reason,
	}, errors.Join(errs[:]...)
}

// neverRenewed describes that a lock was not renewed in several attempts, unless an answer was so slow that this may be the reason.
func neverRenewed(slowest time.Duration) string {
	if slowest >= quick {
		return ""
	}
	return fmt.Sprintf("a process never renewed a lock with a TTL of %s in time, although each answer took less than %s", shortTTL, quick)
}

// forsaken asks a holder that does not renew, again and again, whether it trusts its lease, while another
// client waits. It must not after the lease's end, nor after the other was granted the lock.
func (r *run) forsaken(ctx context.Context, holder, waiter *process, resource string) (found outcome, err error) {
	o := order{Do: linear.TakeExclusive, Resource: resource, TTL: shortTTL, Within: waiting}
	a, _, _, err := holder.do(ctx, o)
	if err := expected(a, o, err); err != nil {
		return found, err
	}
	wait := order{Do: linear.WaitExclusive, Resource: resource, TTL: longTTL, Within: waiting}
	loaded, err := r.store.LoadMajority(ctx, resource)
	if err != nil {
		return found, err
	}
	end := ends(loaded, resource, holder.number)
	var granted atomic.Pointer[time.Time]
	h := &handover{run: r, waiter: waiter, resource: resource}
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		h.answer, _, _, h.err = waiter.do(ctx, wait)
		now := time.Now()
		granted.Store(&now)
	}()
	for {
		now, err := r.store.LoadMajority(ctx)
		if err != nil {
			return found, err
		}
		a, from, _, err := holder.do(ctx, order{Do: askValid, Resource: resource})
		if err != nil {
			return found, err
		}
		found.count++
		since := granted.Load()
		other := since != nil && from.After(*since)
		switch {
		case a.OK && other && h.answer.OK:
			found.seen = fmt.Sprintf("on %s: client %d trusted its lease after client %d had been granted the lock", resource, holder.number, waiter.number)
			return found, nil
		case a.OK && !end.IsZero() && !now.At.Before(end):
			found.seen = fmt.Sprintf("on %s: client %d trusted its lease at %s by the server's clock, or later, and it ended at %s",
				resource, holder.number, now.At.Format(timeOfDay), end.Format(timeOfDay))
			return found, nil
		case other:
			<-done
			return found, expected(h.answer, wait, h.err)
		}
	}
}

// renewed lets a client renew a lock for a few TTLs while another one asks for it. A grant is wrong if it came
// before an end of the lock that had been read before the question. The check shows nothing if the lock was not
// renewed in time. slowest is the time that the slowest answer took.
func (r *run) renewed(ctx context.Context, holder, other *process, resource string) (found outcome, slowest time.Duration, err error) {
	o := order{Do: linear.WaitExclusive, Resource: resource, TTL: shortTTL, Within: waiting}
	a, _, _, err := holder.do(ctx, o)
	if err := expected(a, o, err); err != nil {
		return found, 0, err
	}
	asked := time.Now()
	answered := func() { slowest, asked = max(slowest, time.Since(asked)), time.Now() }
	const late = "the holder did not renew its lock in time: the library or the machine is too slow"
	var first, last time.Time // ends of the lock
	for began := time.Now(); time.Since(began) < 3*shortTTL && ctx.Err() == nil; harness.Pause(ctx, 5*poll) {
		asked = time.Now()
		before, err := r.store.LoadMajority(ctx, resource)
		if err != nil {
			return found, 0, err
		}
		answered()
		if _, _, _, err := holder.do(ctx, order{Do: ping}); err != nil {
			return found, 0, err
		}
		answered()
		end := ends(before, resource, holder.number)
		if last = end; first.IsZero() {
			first = end
		}
		a, _, _, err := other.do(ctx, order{Do: linear.TakeShared, Resource: resource, TTL: shortTTL, Within: waiting})
		if err != nil {
			return found, 0, err
		}
		answered()
		after, err := r.store.LoadMajority(ctx)
		if err != nil {
			return found, 0, err
		}
		answered()
		found.count++
		r.operations.Add(1)
		if a.OK {
			trusts, _, _, err := holder.do(ctx, order{Do: askValid, Resource: resource})
			switch {
			case err != nil:
				return found, 0, err
			case trusts.OK:
				found.seen = fmt.Sprintf("on %s: client %d trusted its lease after client %d had been granted the lock", resource, holder.number, other.number)
			case after.At.Before(end):
				found.seen = fmt.Sprintf("on %s: client %d was granted the lock at %s by the server's clock, at the latest, and client %d had it until %s",
					resource, other.number, after.At.Format(timeOfDay), holder.number, end.Format(timeOfDay))
			default:
				found.reason = late
			}
			return found, slowest, nil
		}
	}
	if !last.After(first) {
		found.reason = late
	}
	return found, slowest, nil
}
