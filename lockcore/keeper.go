package lockcore

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

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
