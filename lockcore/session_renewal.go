package lockcore

import (
	"errors"
	"slices"
	"time"
)

// unknownTrust is how long a session tries to renew a lease that came from another process, before
// it gives it up.
const unknownTrust = 10 * time.Second

// due is when to renew next, and until when all leases can be trusted; both are zero in a session
// of nothing. A failure is tried again sooner, as long as the leases can be trusted: a passing
// error loses nothing.
func (s *Session) due() (next, trusted time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shortest := Forever
	for _, lease := range s.leases {
		end, at, ttl := s.trustEnd(lease), s.startedAt, unknownTrust/3
		if !lease.unknown() {
			ttl = lease.ttl
			at = end.Add(ttl/trustMargin - ttl + ttl/3)
		}
		shortest = min(shortest, ttl)
		if trusted.IsZero() || end.Before(trusted) {
			trusted = end
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.lastErr != nil {
		next = s.lastTry.Add(shortest / 15)
	}
	return next, trusted
}

// trustEnd is until when the session trusts a lease, or tries to learn whether it may.
func (s *Session) trustEnd(lease Lease) time.Time {
	if lease.unknown() {
		return s.startedAt.Add(unknownTrust)
	}
	return lease.validUntil
}

// slack is by how much the leases may be renewed early, to go with others: a quarter of the
// interval.
func (s *Session) slack() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	shortest := Forever
	for _, lease := range s.leases {
		if !lease.unknown() {
			shortest = min(shortest, lease.ttl)
		}
	}
	return shortest / 12
}

// beginRenewal notes that a renewal begins, and returns what it is to renew.
func (s *Session) beginRenewal(now time.Time) []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.lost != nil {
		return nil
	}
	s.lastTry, s.currentErr, s.unanswered = now, nil, len(s.leases)
	return slices.Clone(s.leases)
}

// apply takes in what became of a lease that the keeper renewed, and reports whether that was the
// last.
func (s *Session) apply(r renewResult) (last bool) {
	s.mu.Lock()
	lost := s.take(r)
	if s.unanswered--; s.unanswered == 0 {
		s.endRenewal()
	}
	last = s.unanswered == 0
	s.mu.Unlock()
	s.tellLost(lost)
	return last
}

// take returns the loss, if the answer is one. The mutex is held.
func (s *Session) take(r renewResult) (lost *LostError) {
	i := slices.IndexFunc(s.leases, func(old Lease) bool {
		return old.Resource == r.lease.Resource && old.Part == r.lease.Part && old.Order == r.lease.Order
	})
	if i < 0 || s.ended || s.lost != nil { // i < 0: it was replaced meanwhile
		return nil
	}
	old := &s.leases[i]
	old.failing = r.err != nil
	switch {
	case errors.As(r.err, &lost) && s.upgrading == r.lease.Resource:
		// The upgrade may have taken its place already: its answer tells.
		s.currentErr = r.err
		return nil
	case errors.As(r.err, &lost):
		s.lost = lost
		return lost
	case r.err != nil:
		s.currentErr = r.err
	default:
		// Only what the renewal is about: the mode may have changed while it was under way.
		old.Left, old.ttl, old.forever = r.lease.Left, r.lease.ttl, r.lease.forever
		old.validUntil = later(old.validUntil, r.lease.validUntil)
	}
	return nil
}

// endRenewal notes that the renewal is over. The mutex is held.
func (s *Session) endRenewal() { s.lastErr = s.currentErr }

// expire ends the session's trust, if it is over. What was replaced since the keeper looked is
// trusted.
func (s *Session) expire(now time.Time) {
	s.mu.Lock()
	var lost *LostError
	if !s.ended && s.lost == nil {
		for _, lease := range s.leases {
			if over(s.trustEnd(lease), now) {
				lost = &LostError{
					Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order, Reason: "it could not be renewed in time",
				}
				if s.lastErr != nil {
					lost.Reason += ": " + s.lastErr.Error()
				}
				s.lost = lost
				break
			}
		}
	}
	s.mu.Unlock()
	s.tellLost(lost)
}

// tellLost tells the holder, and stops the renewal.
func (s *Session) tellLost(lost *LostError) {
	if lost == nil {
		return
	}
	s.locker.keeper.remove(s)
	s.locker.tel.lost(s.ctx, lost.Resource)
	tellLoss(s.ctx, lost)
	s.cancel(lost)
}
