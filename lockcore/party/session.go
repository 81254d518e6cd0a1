package party

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Session is a lock that is held and renewed in the background until Leave or Release, or until it
// is lost. It is safe for concurrent use. A session that is neither left nor released renews until
// Locker.Close, or for as long as the process lives.
type Session struct {
	locker *Locker
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	leases []held
	lost   *LostError
	ended  bool
	// upgrading is the resource on which the session asks for an upgrade now.
	upgrading string
}

// ErrEnded is the cause with which a session's context is cancelled when the session was left or
// released.
var ErrEnded = errors.New("lockstep: session ended")

// NewSession makes a session of leases that Enter or Renew gave. One that came from another process
// has to be renewed here before: it is not known how long it was on its way, so the session would
// be lost at once. The session's context derives from ctx; the session does not end with ctx, but
// with Leave or Release. On a Locker that was closed the session has ended, with ErrClosed.
func (l *Locker) NewSession(ctx context.Context, leases []Lease) *Session {
	s := &Session{locker: l}
	for _, lease := range leases {
		if lease.validUntil.IsZero() {
			lease.validUntil = time.Now()
		}
		s.leases = append(s.leases, held{Lease: lease})
	}
	slices.SortStableFunc(s.leases, func(a, b held) int { return strings.Compare(a.Resource, b.Resource) })
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if !l.keeper.add(s) {
		s.end(ErrClosed)
	}
	return s
}

// Context is derived from the one that acquired the session. It is cancelled when the lock is lost,
// with the *LostError as its cause; when the session ends, with ErrEnded; and when Locker.Close
// ends it, with ErrClosed.
func (s *Session) Context() context.Context { return s.ctx }

// Lost returns the *LostError if the session has lost a lock, and else nil: also if the session's
// context had ended before the loss.
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
	leases := make([]Lease, len(s.leases))
	for i := range s.leases {
		leases[i] = s.leases[i].Lease
	}
	return leases
}

// Leave stops the renewal and ends this part. A hold that was kept stands. It waits for the
// database as long as ctx allows; what it could not end ends with its TTL. It may be repeated.
func (s *Session) Leave(ctx context.Context) error { return s.leave(ctx, ErrEnded) }

// LeaveWithin is a Leave that is in no hurry: the renewal stops at once, and [Locker.LeaveWithin] ends the
// part.
func (s *Session) LeaveWithin(ctx context.Context, d time.Duration) error {
	defer s.locker.life.calls.add()()
	return s.locker.LeaveWithin(ctx, d, s.end(ErrEnded)...)
}

func (s *Session) leave(ctx context.Context, cause error) error {
	defer s.locker.life.calls.add()()
	return s.locker.Leave(ctx, s.end(cause)...)
}

// Release is Leave that ends the hold of the whole lock ID, also one that was kept. It returns a
// *LostError if the hold is missing and was not released: evidence says so, or is not complete.
func (s *Session) Release(ctx context.Context) error {
	defer s.locker.life.calls.add()()
	leases := s.end(ErrEnded)
	errs := make([]error, len(leases))
	inParallel(len(leases), func(i int) {
		lease := leases[i]
		_, lost, err := s.locker.releaseEach(ctx, Release{
			LockID: lease.LockID, Run: lease.Run, Resources: []string{lease.Resource}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
		}, lease.granted, true)
		errs[i] = errors.Join(append(lost, err)...)
	})
	return errors.Join(errs...)
}

// live reports whether the session, if there is one, has neither ended nor lost its lock.
func (s *Session) live() bool { return s == nil || s.replace() == nil }

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
		*s.leaseOn(lease.Resource) = held{Lease: lease}
	}
	return nil
}

// leaseOn is the session's lease on a resource, or nil. The mutex is held.
func (s *Session) leaseOn(resource string) *held {
	for i := range s.leases {
		if s.leases[i].Resource == resource {
			return &s.leases[i]
		}
	}
	return nil
}

// add lets the session keep another lease, unless it has lost what it had.
func (s *Session) add(lease Lease) error {
	s.mu.Lock()
	s.leases = append(s.leases, held{Lease: lease})
	s.mu.Unlock()
	s.locker.keeper.poke()
	return context.Cause(s.ctx)
}

// end stops the renewal, and returns what is left to end in the database. A renewal that is under
// way does no harm: if it comes after the end it finds nothing to renew.
func (s *Session) end(cause error) []Lease {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.locker.keeper.remove(s)
	s.cancel(cause)
	return s.Leases()
}

// Downgrade makes the session's exclusive leases shared, so that readers may come in beside it. A
// lock ID that has other running parts on a resource stays exclusive there: the lease's Mode says
// so. It takes one command per resource. The fences stay. Errors are those of Renew; what was
// downgraded before one stays so. From before the command is sent the session trusts only shared:
// after an error Mode says so, and Downgrade may be repeated.
func (s *Session) Downgrade(ctx context.Context) error {
	for _, lease := range s.Leases() {
		if lease.Mode != ModeExclusive && !lease.downgrading {
			continue
		}
		s.trustShared(lease.Resource)
		down, err := s.locker.renewOne(ctx, lease, true)
		if err != nil {
			return err
		}
		if err := s.replace(down); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) trustShared(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	lease.Mode, lease.downgrading = ModeShared, true
}

// Upgrade makes the session's shared lease on a resource exclusive, with a new fence. It goes ahead
// of the queue and waits until the other holders have left, or ctx ends: then, as after any other
// error, the session holds in shared mode as before. If two sessions wait to upgrade on a resource,
// one of them gets ErrDeadlock. A session upgrades one resource at a time.
func (s *Session) Upgrade(ctx context.Context, resource string) error {
	ctx, done, err := s.locker.life.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	lease, err := s.beginUpgrade(resource)
	if err != nil {
		return err
	}
	defer s.endUpgrade()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// It is the session's own part, which asks for more: its shared entry is kept until it gets that.
	req, err := s.locker.complete(Request{
		LockID: lease.LockID, Run: lease.Run, Resources: []Resource{{Name: resource, Mode: ModeExclusive, Held: true}}, Part: lease.Part, Order: lease.Order,
		TTL: lease.requestTTL(), Owner: lease.owner, Host: lease.host, Comment: lease.comment,
	}, false)
	if err != nil {
		return err
	}
	op := s.locker.acquireOp(&req, req.Resources[0])
	op.Upgrades = lease.id
	up, err := s.locker.acquireOne(ctx, ctx, &req, op, s)
	if err != nil {
		s.locker.undoUpgrade(ctx, &op)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := s.replace(up); err != nil {
		s.locker.undo(ctx, up)
		return err
	}
	return nil
}

func (s *Session) beginUpgrade(resource string) (Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	err := firstError(refuse(lease == nil, "resource", quote(resource), "one that the session holds"),
		refuse(s.upgrading != "", "resource", quote(resource), "one upgrade of a session at a time"))
	if err != nil {
		return Lease{}, err
	}
	s.upgrading = resource
	return lease.Lease, nil
}

func (s *Session) endUpgrade() {
	s.mu.Lock()
	s.upgrading = ""
	s.mu.Unlock()
	s.locker.keeper.poke()
}

// undoUpgrade ends a request for an upgrade: the session holds in shared mode, under the ID that it
// had. If that cannot be done now, it is done with the next write.
func (l *Locker) undoUpgrade(ctx context.Context, op *rules.Acquire) {
	ctx, cancel := l.detached(ctx)
	defer cancel()
	c := l.undoCall(ctx, op)
	c.TakeBack, c.Owed = l.undoCall(ctx, op), true
	_, _ = l.do(ctx, "leave", orderOf(op.Order), c) // the cause is what the caller must see
}
