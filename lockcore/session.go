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
	// life ends with the first Leave or Release, and not with ctx's parent.
	life    context.Context
	endLife context.CancelFunc
	done    chan struct{} // closed when the renewal has stopped

	mu     sync.Mutex
	leases []Lease
}

// ErrEnded is the cause with which a session's context is cancelled when the session was left or released.
var ErrEnded = errors.New("lockstep: session ended")

// Keep renews leases that Enter gave in the background. The session's context derives from ctx; the
// renewal does not end with ctx, since work that was cancelled still cleans up under its locks: it ends
// with Leave or Release.
func (l *Locker) Keep(ctx context.Context, leases []Lease) *Session {
	s := &Session{locker: l, done: make(chan struct{}), leases: slices.Clone(leases)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.life, s.endLife = context.WithCancel(context.WithoutCancel(ctx))
	go s.renew()
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
	s.end()
	return s.locker.Leave(ctx, s.Leases()...)
}

// Release stops the renewal and ends the hold of the whole lock ID. It waits for the database as long as
// ctx allows; what it could not end ends with its TTL.
func (s *Session) Release(ctx context.Context) error {
	s.end()
	var errs []error
	for _, lease := range slices.Backward(s.Leases()) {
		part := lease.Part
		errs = append(errs, s.locker.Release(ctx, Release{
			LockID: lease.LockID, Resources: []string{lease.Resource}, Order: lease.Order, Leaving: &part,
		}))
	}
	return errors.Join(errs...)
}

// end stops the renewal, and returns when no command of it is under way any more.
func (s *Session) end() {
	s.endLife()
	s.cancel(ErrEnded)
	<-s.done
}

// renew extends the leases three times per TTL. A failure is tried again sooner, as long as the leases can
// be trusted: a passing error loses nothing.
func (s *Session) renew() {
	defer close(s.done)
	wait := s.interval()
	for {
		timer := time.NewTimer(min(wait, s.trusted()))
		select {
		case <-s.life.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := s.renewOnce()
		if lost := s.loss(err); lost != nil {
			s.cancel(lost)
			return
		}
		wait = s.interval()
		if err != nil {
			wait /= 5
		}
	}
}

// renewOnce sends the renewals, bounded by what is left of the trust.
func (s *Session) renewOnce() error {
	trusted := s.trusted()
	if trusted <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, trusted)
	defer cancel()
	renewed, err := s.locker.Renew(ctx, s.Leases()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range renewed {
		i := slices.IndexFunc(s.leases, func(old Lease) bool { return old.Resource == lease.Resource })
		s.leases[i] = lease
	}
	return err
}

// loss is what to tell the holder, or nil where all leases can still be trusted.
func (s *Session) loss(err error) error {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost
	}
	for _, lease := range s.Leases() {
		if lease.Valid() {
			continue
		}
		lost := &LostError{Resource: lease.Resource, LockID: lease.LockID, Part: lease.Part, Order: lease.Order, Reason: "it could not be renewed in time"}
		if err != nil {
			lost.Reason += ": " + err.Error()
		}
		return lost
	}
	return nil
}

// interval is how often to renew: a third of the shortest TTL.
func (s *Session) interval() time.Duration {
	shortest := Forever
	for _, lease := range s.Leases() {
		if !lease.forever {
			shortest = min(shortest, lease.ttl)
		}
	}
	return shortest / 3
}

// trusted is how long all leases can still be trusted.
func (s *Session) trusted() time.Duration {
	left := Forever
	for _, lease := range s.Leases() {
		if !lease.forever {
			left = min(left, time.Until(lease.validUntil))
		}
	}
	return left
}
