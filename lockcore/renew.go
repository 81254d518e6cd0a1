package lockcore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
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

// keeper renews the leases of all sessions of a Locker. Its goroutine runs while there are sessions. It renews a
// lease when a third of its TTL has passed, or soon after a renewal that failed, together with the leases that
// are nearly due. If a lease cannot be trusted any longer, its session is lost.
type keeper struct {
	locker *Locker

	mu              sync.Mutex
	sessions        map[*Session]bool
	running, closed bool
	// next is the time of the next plan.
	next time.Time
	wake chan struct{}
}

// add reports whether the Locker still renews.
func (k *keeper) add(s *Session) bool {
	due, _ := s.times()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.sessions[s] = true
	switch {
	case !k.running:
		k.running = true
		go k.run()
	case due.Before(k.next): // a plan visits all sessions, so not every session that is added makes one
		k.poke()
	}
	return true
}

func (k *keeper) remove(s *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.sessions, s); len(k.sessions) == 0 {
		k.poke()
	}
}

// close refuses further sessions, and returns the sessions that must be ended.
func (k *keeper) close() []*Session {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	return k.all()
}

func (k *keeper) all() []*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.sessions))
}

// recentlyForced is the age up to which a forced release is looked at: the holder's renewal finds an older one.
const recentlyForced = 10 * time.Minute

// noteForced renews at once the leases of holds that an operator has ended by force. The document was read for a waiter. So a holder that waits for
// nothing here learns of the end before its next renewal, if this process watches the resource.
func (k *keeper) noteForced(d *rules.Document) {
	recent := func(e rules.Evidence) bool { return d.At.Sub(e.At) < recentlyForced }
	if !slices.ContainsFunc(d.Forced, recent) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for s := range k.sessions {
		if s.hurry(d) {
			k.poke()
		}
	}
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run renews leases that are due until all sessions have ended. Then no session needs the results of renewals
// under way.
func (k *keeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := k.locker.clock.NewTimer(keeperPause)
	defer timer.Stop()
	for {
		now := clock.Now()
		found, any := k.plan(now)
		if !any {
			return
		}
		for _, g := range found.groups {
			go k.renew(ctx, g)
		}
		for _, s := range found.over {
			s.expire(now)
		}
		for _, s := range found.givenUp {
			k.remove(s)
			s.cancel(context.DeadlineExceeded)
		}
		timer.Reset(found.pause)
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// keeperPause is the longest pause between two plans. Timers stop while the machine is suspended.
const keeperPause = time.Second

// renewals is a plan of the keeper.
type renewals struct {
	// groups are the leases to renew now, by the binary logarithm of the time for which they are trusted. A command may
	// take as long as a lease lasts, and would keep a much shorter one in its group from being renewed.
	groups map[int][]dueLease
	// over are the sessions that can no longer be trusted.
	over []*Session
	// givenUp are the sessions of steps whose time is over.
	givenUp []*Session
	// pause is the time to the next plan.
	pause time.Duration
}

// dueLease is a lease of a session that must be renewed.
type dueLease struct {
	Lease
	of *Session
}

// plan returns what to do now, and reports whether any session is left.
func (k *keeper) plan(now time.Time) (found renewals, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sessions) == 0 {
		k.running = false
		return found, false
	}
	found.pause = keeperPause
	sooner := func(at time.Time) { found.pause = min(found.pause, max(-clock.Elapsed(at, now), time.Millisecond)) }
	due := false
	for s := range k.sessions {
		next, trusted := s.times()
		switch {
		case s.isGivenUp(now):
			found.givenUp = append(found.givenUp, s)
			sooner(now)
			continue
		case trusted.IsZero(): // it holds nothing
			continue
		case over(trusted, now):
			found.over = append(found.over, s)
			sooner(now) // what replaces the lease in this moment is looked at then
			continue
		case next.IsZero():
		case over(next, now):
			due = true
		default:
			sooner(next)
		}
		sooner(trusted)
		if !s.until.IsZero() {
			sooner(s.until)
		}
	}
	k.next = now.Add(found.pause)
	found.groups = map[int][]dueLease{}
	for s := range k.sessions {
		if !due {
			break
		}
		for _, lease := range s.beginRenewal(now) {
			g := bits.Len64(uint64(lease.validUntil.Sub(now))) //nolint:gosec // it is trusted, so this is not negative
			found.groups[g] = append(found.groups[g], dueLease{lease, s})
		}
	}
	return found, true
}

// renew renews a group. It takes at most nine tenths of their shortest trust, so that its error comes before a loss and
// is its reason, and at most the time limit of a command.
func (k *keeper) renew(ctx context.Context, group []dueLease) {
	now, within := clock.Now(), commandTimeout
	leases := make([]Lease, len(group))
	for i := range group {
		leases[i] = group[i].Lease
		within = min(within, leases[i].validUntil.Sub(now)*9/10)
	}
	ctx, cancel := k.locker.clock.WithTimeout(ctx, within)
	defer cancel()
	var asks sync.Once // it starts the question, and holds no mutex while the answer is awaited
	var busy error
	asked := make(chan struct{})
	k.locker.renewAll(ctx, within/2, leases, func(i int, r renewResult) {
		if errors.Is(r.err, context.DeadlineExceeded) && !store.PoolBusy(r.err) {
			asks.Do(func() {
				go func() {
					busy = k.locker.poolBusy()
					close(asked)
				}()
			})
			<-asked
			r.err = errors.Join(r.err, busy)
		}
		group[i].of.apply(r)
	})
	k.poke()
}

// poolWait is the time for which poolBusy waits for a connection. It is short compared to the trust that is left after
// the time limit of a renewal, unless a TTL is less than a few seconds.
const poolWait = 50 * time.Millisecond

// poolBusy returns the reason if no connection to the database is free. A renewal by a line only knows that its time
// is over.
func (l *Locker) poolBusy() error {
	ctx, cancel := l.clock.WithTimeout(l.life.closed, poolWait)
	defer cancel()
	if _, err := l.store.LoadMajority(ctx); store.PoolBusy(err) {
		return err
	}
	return nil
}

// held is a lease of a session with the state of its renewal.
type held struct {
	Lease
	renewing bool
	lastTry  time.Time
	lastErr  error
	// forced is set once a document has shown that the hold was ended by force, and hurryAt until the renewal that follows.
	forced  bool
	hurryAt time.Time
}

// next returns the time of the next renewal. A renewal that failed is repeated soon, as long as the lease is
// trusted: a transient error loses nothing.
func (h *held) next() time.Time {
	if !h.hurryAt.IsZero() {
		return h.hurryAt
	}
	if h.lastErr != nil {
		return h.lastTry.Add(h.ttl / 15)
	}
	return h.validUntil.Add(h.ttl/trustMargin - h.ttl + h.ttl/3)
}

// times returns the time of the next renewal, except of leases that are being renewed, and the time until which
// all leases are trusted; zero if there are none.
func (s *Session) times() (next, trusted time.Time) {
	earliest := func(a *time.Time, b time.Time) {
		if a.IsZero() || b.Before(*a) {
			*a = b
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.leases {
		h := &s.leases[i]
		earliest(&trusted, h.validUntil)
		if !h.renewing {
			earliest(&next, h.next())
		}
	}
	return next, trusted
}

// hurry makes the renewals of the leases due whose holds were ended by force, and reports whether there are any. It does so once for each lease.
func (s *Session) hurry(d *rules.Document) (any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.leases {
		h := &s.leases[i]
		ended := func(e rules.Evidence) bool { return e.LockID == h.LockID && e.Fence == h.FirstFence }
		if h.Resource == d.ID && !h.forced && slices.ContainsFunc(d.Forced, ended) {
			h.forced, h.hurryAt, any = true, clock.Now(), true
		}
	}
	return any
}

// isGivenUp reports whether the caller of the session's step has stopped waiting for it.
func (s *Session) isGivenUp(now time.Time) bool { return !s.until.IsZero() && over(s.until, now) }

// beginRenewal begins to renew the leases that are due, or will be within a quarter of their interval.
func (s *Session) beginRenewal(now time.Time) (due []Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.leases {
		h := &s.leases[i]
		if s.ended || s.lost != nil || s.isGivenUp(now) || h.renewing || -clock.Elapsed(h.next(), now) >= h.ttl/12 || over(h.validUntil, now) {
			continue
		}
		h.failing = h.lastErr != nil
		h.renewing, h.lastTry, h.hurryAt = true, now, time.Time{}
		due = append(due, h.Lease)
	}
	return due
}

func (s *Session) apply(r renewResult) {
	var lost *LostError
	s.mu.Lock()
	i := slices.IndexFunc(s.leases, func(h held) bool {
		return h.Resource == r.lease.Resource && h.Part == r.lease.Part && h.Order == r.lease.Order
	})
	if i >= 0 && !s.ended && s.lost == nil { // otherwise it was replaced during the renewal
		h := &s.leases[i]
		h.renewing = false
		h.lastErr = r.err
		switch {
		case errors.As(r.err, &lost) && s.upgrading == r.lease.Resource:
			lost = nil // the upgrade may have replaced the lease already: its answer decides
		case lost != nil:
			s.lost = lost
		case r.err == nil:
			h.validUntil = rules.Later(h.validUntil, r.lease.validUntil)
			// The mode may have changed during the renewal.
			h.Left, h.ttl, h.kept, h.seen = r.lease.Left, r.lease.ttl, r.lease.kept, r.lease.seen
		}
	}
	s.mu.Unlock()
	s.reportLoss(lost)
}

// expire ends the session with a *LostError if one of its leases cannot be trusted any longer. It checks again, since a
// lease may have been replaced after the keeper's plan.
func (s *Session) expire(now time.Time) {
	s.lose("it could not be renewed in time", func(h *held) bool { return over(h.validUntil, now) })
}

// lose ends the session with a *LostError if one of its leases is lost.
func (s *Session) lose(reason string, isLost func(*held) bool) {
	s.mu.Lock()
	i := slices.IndexFunc(s.leases, func(h held) bool { return isLost(&h) })
	if i < 0 || s.ended || s.lost != nil {
		s.mu.Unlock()
		return
	}
	h := s.leases[i]
	lost := &LostError{Resource: h.Resource, LockID: h.LockID, Part: h.Part, Order: h.Order, Reason: reason}
	if h.lastErr != nil {
		if store.PoolBusy(h.lastErr) {
			lost.Reason += ": no connection of the MongoDB client's pool was free (give locks a client of their own)"
		}
		lost.Reason += ": " + h.lastErr.Error()
	}
	s.lost = lost
	s.mu.Unlock()
	s.reportLoss(lost)
}

func (s *Session) reportLoss(lost *LostError) {
	if lost == nil {
		return
	}
	s.locker.keeper.remove(s)
	s.locker.tel.count(s.ctx, s.locker.tel.losses, lost.Resource)
	addLostEvent(s.ctx, lost)
	s.cancel(lost)
}
