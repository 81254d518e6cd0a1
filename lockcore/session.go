package lockcore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
)

// Session holds locks and renews them in the background until Leave or Release, or until one is lost. A session
// that is neither left nor released renews until Locker.Close, or as long as the process lives. It is safe for
// concurrent use. Sessions of one lock ID share a hold on a resource, which ends with the last of them.
type Session struct {
	locker *Locker
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	leases []held
	lost   *LostError
	ended  bool
	// upgrading is the resource of the upgrade under way.
	upgrading string

	// ofStep is called when the session of a step ends; nil for other sessions. until is the local time of clock.Now from
	// which its leases are not renewed; zero means that they always are.
	ofStep func()
	until  time.Time
}

// NewSession returns a session that renews leases from Enter, TryEnter or Renew. Call Renew first for a lease
// that came from another process: its age is not known, so the session would lose it at once. The session's
// context derives from ctx, but the end of ctx does not end the session. On a closed Locker the session is
// returned already ended, with ErrClosed.
func (l *Steps) NewSession(ctx context.Context, leases []Lease) *Session {
	return l.newSession(ctx, leases)
}

func (l *Locker) newSession(ctx context.Context, leases []Lease) *Session {
	return l.begin(l.session(ctx, leases))
}

// NewStepSession is NewSession for a step that this process may not have stopped before it closes the Locker. Close
// cancels the session's context, with ErrClosed as its cause, and waits until the step has left, while its leases are
// renewed, or until Close's context ends, after which they expire. If left is not 0, it is the time after which no
// caller waits for the step, although its code may hang. The session's context is then cancelled, with
// context.DeadlineExceeded as its cause, and its leases are no longer renewed, and expire. A lease with the TTL
// Forever does not expire.
func (l *Steps) NewStepSession(ctx context.Context, leases []Lease, left time.Duration) *Session {
	s := l.session(ctx, leases)
	if left > 0 {
		s.until = clock.Now().Add(left)
	}
	stop, done := context.AfterFunc(l.life.closing, func() { s.cancel(ErrClosed) }), l.life.steps.add()
	s.ofStep = func() {
		stop()
		done()
	}
	return l.begin(s)
}

func (l *Locker) session(ctx context.Context, leases []Lease) *Session {
	s := &Session{locker: l}
	for _, lease := range leases {
		if lease.validUntil.IsZero() {
			lease.validUntil = clock.Now()
		}
		s.leases = append(s.leases, held{Lease: lease})
	}
	slices.SortStableFunc(s.leases, func(a, b held) int { return strings.Compare(a.Resource, b.Resource) })
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// begin begins to renew the session's leases.
func (l *Locker) begin(s *Session) *Session {
	if !l.keeper.add(s) {
		s.end(ErrClosed)
	}
	return s
}

// Context returns a context that derives from the context that the session was made with. It is cancelled when
// a lock is lost, with the *LostError as its cause; when the session ends, with ErrEnded; and by Locker.Close, with
// ErrClosed.
func (s *Session) Context() context.Context { return s.ctx }

// Lost returns the *LostError if the session has lost a lock, otherwise nil. It reports a loss even if the
// session's context had ended before.
func (s *Session) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return nil
	}
	return s.lost
}

// Leases returns the session's current leases, in the order of the resources' names.
func (s *Session) Leases() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make([]Lease, len(s.leases))
	for i := range s.leases {
		leases[i] = s.leases[i].Lease
	}
	return leases
}

// Leave stops the renewal and ends this session's use of the locks. A hold of the lock ID stays if other sessions
// use it, or if a [StepRequest] keeps it. Leave waits for the database until ctx ends. Locks that it could not end
// expire; one that never expires is ended in the background, if a command was sent. It may be repeated.
func (s *Session) Leave(ctx context.Context) error { return s.leave(ctx, ErrEnded) }

func (s *Session) leave(ctx context.Context, cause error) error {
	defer s.locker.life.calls.add()()
	return s.locker.Leave(ctx, s.end(cause)...)
}

// Release is a Leave that ends the hold of the whole lock ID: other sessions that use it lose it. It returns a
// *LostError if the hold was lost before. It also does if that cannot be excluded: the hold is missing, no release
// of it is recorded, and older records of losses have been dropped.
func (s *Session) Release(ctx context.Context) error {
	defer s.locker.life.calls.add()()
	leases := s.end(ErrEnded)
	errs := make([]error, len(leases))
	inParallel(len(leases), func(i int) { errs[i] = s.locker.releaseHold(ctx, leases[i]) })
	return errors.Join(errs...)
}

// replace replaces the leases of the same resources, unless the session has ended or lost a lock.
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

// leaseOn returns the session's lease on a resource, or nil. The mutex is held.
func (s *Session) leaseOn(resource string) *held {
	for i := range s.leases {
		if s.leases[i].Resource == resource {
			return &s.leases[i]
		}
	}
	return nil
}

// add adds a lease, and returns the cause if the session's context has ended.
func (s *Session) add(lease Lease) error {
	s.mu.Lock()
	s.leases = append(s.leases, held{Lease: lease})
	s.mu.Unlock()
	s.locker.keeper.poke()
	return context.Cause(s.ctx)
}

// end stops the renewal, and returns the leases to end in the database. A renewal under way does no harm: if
// it comes after the end, it finds nothing to renew.
func (s *Session) end(cause error) []Lease {
	s.mu.Lock()
	first := !s.ended
	s.ended = true
	s.mu.Unlock()
	s.locker.keeper.remove(s)
	s.cancel(cause)
	if first && s.ofStep != nil {
		s.ofStep()
	}
	return s.Leases()
}

// Downgrade makes the session's exclusive leases shared, so that readers may hold the resources too, unless
// the lock ID holds them exclusively by another session. It sends one command per resource. Fences do not
// change. Just before it sends the command for a lease, the session starts to treat that lease as shared.
// The errors are those of [Locker.Resume]. An error does not revert earlier downgrades, and Downgrade may be
// repeated after it.
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

// Upgrade makes the session's shared lease on a resource exclusive, with a new fence. It skips the queue,
// and waits until the other holders have left, or ctx ends. After an error the session holds in shared
// mode, as before. If two sessions wait for an upgrade of one resource, one of them gets ErrDeadlock. A
// session upgrades one resource at a time.
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
	// The request adds an exclusive entry to the session's part. The shared one stays.
	req, err := s.locker.complete(StepRequest{
		Caller: Caller{LockID: lease.LockID, Run: lease.Run, Part: lease.Part, Order: lease.Order}, Resources: []Resource{{Name: resource, Mode: ModeExclusive}},
		TTL: lease.requestTTL(), Owner: lease.owner, Host: lease.host, Comment: lease.comment,
	}, false)
	if err != nil {
		return err
	}
	op := s.locker.acquireOp(&req, req.Resources[0])
	op.Upgrades = lease.id
	up, err := s.locker.acquireOne(ctx, ctx, &req, op, s)
	if err != nil {
		s.locker.undo(ctx, req.leaseOn(resource)) // the session holds in shared mode, as before
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
	err := cmp.Or(refuse(lease == nil, "resource", quote(resource), "one that the session holds"),
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
