package lockcore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Session is a lock that is held and renewed in the background until Leave or Release, or until it is
// lost. It is safe for concurrent use. A session that is neither left nor released renews for as long as
// the process lives.
type Session struct {
	locker *Locker
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	leases []Lease
	// kept is when the session began, and tried when the last renewal did.
	kept, tried time.Time
	// failed is an error of the last renewal, and failing of the one that is under way.
	failed, failing error
	ended           bool
	// orders is the highest order of the session's part, and upgrading is the resource on which it asks for more just now.
	orders    Order
	upgrading string
}

// ErrEnded is the cause with which a session's context is cancelled when the session was left or released.
var ErrEnded = errors.New("lockstep: session ended")

// Keep renews leases that Enter gave in the background. The session's context derives from ctx; the
// renewal does not end with ctx, since work that was cancelled still cleans up under its locks: it ends
// with Leave or Release.
func (l *Locker) Keep(ctx context.Context, leases []Lease) *Session {
	s := &Session{locker: l, leases: slices.Clone(leases), kept: time.Now()}
	for _, lease := range leases {
		if s.orders.Less(lease.Order) {
			s.orders = lease.Order
		}
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	l.keeper.add(s)
	return s
}

// TryAcquire is Enter, with a Session that renews what it got.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	leases, err := l.Enter(ctx, req, false)
	if err != nil {
		return nil, err
	}
	return l.Keep(ctx, leases), nil
}

// Context is derived from the one that acquired the session; it is cancelled when the lock is lost, with
// the *LostError as its cause, and with ErrEnded when the session ends.
func (s *Session) Context() context.Context { return s.ctx }

// Leases are what the session holds now, in the order of their resources' names.
func (s *Session) Leases() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases)
}

// Leave stops the renewal and ends this part. A hold that was kept stands. It waits for the database as
// long as ctx allows; what it could not end ends with its TTL.
func (s *Session) Leave(ctx context.Context) error {
	return s.locker.Leave(ctx, s.end()...)
}

// Release stops the renewal and ends the hold of the whole lock ID. It waits for the database as long as
// ctx allows; what it could not end ends with its TTL.
func (s *Session) Release(ctx context.Context) error {
	var errs []error
	for _, lease := range slices.Backward(s.end()) {
		errs = append(errs, s.locker.Release(ctx, Release{
			LockID: lease.LockID, Resources: []string{lease.Resource}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
		}))
	}
	return errors.Join(errs...)
}

// replace puts leases in the place of those of the same resources, unless the session has ended or lost its lock.
func (s *Session) replace(leases ...Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || errors.Is(context.Cause(s.ctx), ErrLost) {
		return false
	}
	for _, lease := range leases {
		i := slices.IndexFunc(s.leases, func(old Lease) bool { return old.Resource == lease.Resource })
		s.leases[i] = lease
	}
	return true
}

// add lets the session keep another lease, unless it has lost what it had.
func (s *Session) add(lease Lease) error {
	s.mu.Lock()
	s.leases = append(s.leases, lease)
	s.mu.Unlock()
	s.locker.keeper.poke()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// end stops the renewal, and returns what is left to end in the database. A renewal that is under way does
// no harm: one that comes after the end finds nothing to renew.
func (s *Session) end() []Lease {
	s.mu.Lock()
	s.ended = true
	leases := slices.Clone(s.leases)
	s.mu.Unlock()
	s.locker.keeper.remove(s)
	s.cancel(ErrEnded)
	return leases
}

// due is when to renew next, and until when all leases can be trusted; a zero trusted means for ever. A failure is
// tried again sooner, as long as the leases can be trusted: a passing error loses nothing.
func (s *Session) due() (next, trusted time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shortest := Forever
	for _, lease := range s.leases {
		var at, end time.Time
		switch {
		case lease.forever:
			// Nothing ends it but others, by force: that is asked for as often as leases of the usual TTL are renewed.
			if ask := later(s.kept, s.tried).Add(s.locker.cfg.TTL / 3); next.IsZero() || ask.Before(next) {
				next = ask
			}
			continue
		case lease.unknown():
			// It came from another process, and nobody knows for how long it can be trusted until it was renewed here.
			at, end = s.kept, s.kept.Add(unknownTrust)
			shortest = min(shortest, 3*time.Second)
		default:
			stood := lease.validUntil.Add(lease.ttl/trustMargin - lease.ttl)
			at, end = stood.Add(lease.ttl/3), lease.validUntil
			shortest = min(shortest, lease.ttl)
		}
		if trusted.IsZero() || end.Before(trusted) {
			trusted = end
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.failed != nil && shortest != Forever {
		next = s.tried.Add(shortest / 15)
	}
	return next, trusted
}

// unknownTrust is how long a session tries to renew a lease that came from another process, before it gives it up.
const unknownTrust = 10 * time.Second

// slack is by how much the leases may be renewed early, to go with others: a quarter of the interval.
func (s *Session) slack() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	shortest := Forever
	for _, lease := range s.leases {
		if !lease.forever && !lease.unknown() {
			shortest = min(shortest, lease.ttl)
		}
	}
	return shortest / 12
}

// began notes that a renewal of the session's leases begins.
func (s *Session) began(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.failing = at, nil
}

// answered notes that the renewal is over.
func (s *Session) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = s.failing
}

// answer takes in what became of a lease that the keeper renewed.
func (s *Session) answer(lease Lease, err error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	i := slices.IndexFunc(s.leases, func(old Lease) bool {
		return old.Resource == lease.Resource && old.Part == lease.Part && old.Order == lease.Order
	})
	var lost *LostError
	switch {
	case i < 0: // replaced meanwhile
	case errors.As(err, &lost) && s.upgrading == lease.Resource:
		// The upgrade may have taken its place already: its answer tells.
		s.failing, lost = err, nil
	case errors.As(err, &lost):
	case err != nil:
		s.failing = err
	default:
		// Only what the renewal is about: the mode may have changed while it was under way.
		old := &s.leases[i]
		old.Left, old.validUntil, old.ttl, old.forever = lease.Left, lease.validUntil, lease.ttl, lease.forever
	}
	s.mu.Unlock()
	if lost != nil && i >= 0 {
		s.lose(lost)
	}
}

// lose tells the holder, and stops the renewal.
func (s *Session) lose(lost *LostError) {
	s.locker.keeper.remove(s)
	tellLoss(s.ctx, lost)
	s.cancel(lost)
}

// expire tells the holder that its trust has ended.
func (s *Session) expire() {
	s.mu.Lock()
	failed, leases := s.failed, slices.Clone(s.leases)
	s.mu.Unlock()
	for _, lease := range leases {
		if lease.Valid() {
			continue
		}
		lost := &LostError{Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order, Reason: "it could not be renewed in time"}
		if failed != nil {
			lost.Reason += ": " + failed.Error()
		}
		s.locker.tel.lost(s.ctx, lease.Resource)
		s.lose(lost)
		return
	}
}
