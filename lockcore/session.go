package lockcore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Session is a lock that is held and renewed in the background until Leave or Release, or until it
// is lost. It is safe for concurrent use. A session that is neither left nor released renews until
// Locker.Close, or for as long as the process lives.
type Session struct {
	locker *Locker
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	leases []Lease
	// startedAt is when the session began, and lastTry when the last renewal did.
	startedAt, lastTry time.Time
	// lastErr is an error of the last renewal, and currentErr of the one that is under way.
	lastErr, currentErr error
	// unanswered is how many leases the renewal that is under way has not heard of.
	unanswered int
	lost       *LostError
	ended      bool
	// orders is the highest order of the session's part, and upgrading is the resource on which it asks for more just now.
	orders    Order
	upgrading string
}

// ErrEnded is the cause with which a session's context is cancelled when the session was left or
// released.
var ErrEnded = errors.New("lockstep: session ended")

// Keep renews leases that Enter gave in the background. The session's context derives from ctx; the
// renewal does not end with ctx, since work that was cancelled still cleans up under its locks: it
// ends with Leave or Release. On a Locker that was closed the session has ended, with ErrClosed.
func (l *Locker) Keep(ctx context.Context, leases []Lease) *Session {
	s := &Session{locker: l, leases: slices.Clone(leases), startedAt: time.Now()}
	for _, lease := range leases {
		if s.orders.Less(lease.Order) {
			s.orders = lease.Order
		}
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if !l.keeper.add(s) {
		s.end(ErrClosed)
	}
	return s
}

// TryAcquire is Enter, with a Session that renews what it got.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	call, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	leases, err := l.enter(call, req, false)
	if err != nil {
		return nil, endedByClose(call, err)
	}
	return l.Keep(ctx, leases), nil
}

// Context is derived from the one that acquired the session; it is cancelled when the lock is lost,
// with the *LostError as its cause, and with ErrEnded when the session ends, or ErrClosed if
// Locker.Close ended it.
func (s *Session) Context() context.Context { return s.ctx }

// Lost returns the *LostError if the session has lost a lock, and else nil. Unlike the cause of its
// context it tells of a loss that came after the context had ended.
func (s *Session) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return nil
	}
	return s.lost
}

// Leases are what the session holds now, in the order of their resources' names.
func (s *Session) Leases() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases)
}

// Leave stops the renewal and ends this part. A hold that was kept stands. It waits for the
// database as long as ctx allows; what it could not end ends with its TTL. It may be repeated.
func (s *Session) Leave(ctx context.Context) error { return s.leave(ctx, ErrEnded) }

func (s *Session) leave(ctx context.Context, cause error) error {
	return s.locker.Leave(ctx, s.end(cause)...)
}

// Release stops the renewal and ends the hold of the whole lock ID. It waits for the database as
// long as ctx allows; what it could not end ends with its TTL. It may be repeated. It returns a
// *LostError if the hold is missing and was not released: evidence says so, or is not complete any more.
func (s *Session) Release(ctx context.Context) error {
	var errs []error
	for _, lease := range slices.Backward(s.end(ErrEnded)) {
		errs = append(errs, s.locker.releaseLease(ctx, lease))
	}
	return errors.Join(errs...)
}

// trustShared makes the session trust no more than a shared lease on a resource.
func (s *Session) trustShared(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	lease.Mode, lease.downgrading = ModeShared, true
}

// replace puts leases in the place of those of the same resources, unless the session has ended or
// lost its lock.
func (s *Session) replace(leases ...Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lost != nil:
		return s.lost
	case s.ended:
		return ErrEnded
	}
	for _, lease := range leases {
		*s.leaseOn(lease.Resource) = lease
	}
	return nil
}

// leaseOn is the session's lease on a resource. The mutex is held.
func (s *Session) leaseOn(resource string) *Lease {
	i := slices.IndexFunc(s.leases, func(l Lease) bool { return l.Resource == resource })
	return &s.leases[i]
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

// end stops the renewal, and returns what is left to end in the database. A renewal that is under
// way does no harm: one that comes after the end finds nothing to renew.
func (s *Session) end(cause error) []Lease {
	s.mu.Lock()
	s.ended = true
	leases := slices.Clone(s.leases)
	s.mu.Unlock()
	s.locker.keeper.remove(s)
	s.cancel(cause)
	return leases
}
