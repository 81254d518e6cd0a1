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
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Lease describes a session's lock on one resource. It is a value that can be stored, sent, and used by another
// process to resume or leave the session. It is a snapshot; a [Session] keeps leases alive.
//
// LockID, Part and Order name the request that was granted. Part and Order are chosen by the Locker, and Run is
// empty, except in leases of a [StepRequest].
type Lease struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Run      string `json:"run,omitempty"`
	Part     string `json:"part,omitempty"`
	Order    Order  `json:"order"`
	Mode     Mode   `json:"mode"`
	// Fence increases with every grant of the resource.
	//
	// A resource that remembers the highest fence it has seen, and refuses lower ones, is safe from a holder
	// that has lost its lock unnoticed.
	Fence int64 `json:"fence"`
	// FirstFence is the fence with which the hold began, and names the hold.
	//
	// Later requests of the lock ID and upgrades can have greater fences.
	FirstFence int64 `json:"firstFence,omitempty"`
	// LeastFence is the smallest fence under which the hold may still write.
	//
	// It is FirstFence, or a later one. See [UpdateFenced].
	LeastFence int64 `json:"leastFence,omitempty"`
	// Bars is set if the request asked for NewFence: after a write under this lease, writes under smaller
	// fences are refused.
	//
	// That includes writes of other leases of the hold. See [StepRequest].
	Bars bool `json:"bars,omitempty"`
	// Member is the member of a pool that is held; empty for other resources.
	//
	// Fences of the pool increase with every grant, so they serve for each member.
	Member string `json:"member,omitempty"`
	// Left is the time to the lease's expiry; Forever if it never expires.
	//
	// It was true when the database answered.
	Left time.Duration `json:"left"`
	// Joined is set if the lock ID held the resource before this request.
	Joined bool `json:"joined,omitempty"`

	// The following fields are not encoded: they hold for the clocks of this process only.

	// id is the ID of the part's latest entry, by which it is extended and taken back. upgraded is set if
	// the part has another entry.
	id       string
	upgraded bool
	// kept lists what the lock ID kept at the local time seen.
	kept []keptEntry
	seen time.Time
	// validUntil is the time of clock.Now until which the lease is trusted: see leaseOf. It is zero in a lease
	// from another process.
	validUntil time.Time
	// ttl is the part's TTL, or rules.EndlessTTL.
	ttl time.Duration
	// owner, host and comment are the request's, for an upgrade.
	owner, host, comment string
	// waitTTL, unless it is 0, is the time for which a step keeps the resource after the leave, while it
	// waits for others.
	waitTTL time.Duration
	// granted is the server's time of the grant, if known.
	granted time.Time
	// failing is set if the last renewal failed, and downgrading while a downgrade has no answer.
	failing, downgrading bool
}

// keptEntry is an entry that a lock ID keeps without a part. It lasts until the local time until, and for
// ttl after a renewal.
type keptEntry struct {
	id    string
	until time.Time
	ttl   time.Duration
}

// caller returns the request that the lease belongs to.
func (l *Lease) caller() rules.Caller {
	return rules.Caller{LockID: l.LockID, Run: l.Run, Part: l.Part, Order: l.Order.number()}
}

// Valid reports whether the lock is certainly still held, by this process's clock. On Linux that is one that is
// never set and that includes the time in which the machine was suspended; elsewhere its monotonic or its wall
// clock, whichever has advanced more. A lease from another process is not valid until [Locker.Resume] has renewed
// it. A lease that never expires is valid for 27 s after each confirmation, since it can be released by force.
func (l Lease) Valid() bool { return !over(l.validUntil, clock.Now()) }

// requestTTL returns the TTL as a request names it.
func (l Lease) requestTTL() time.Duration {
	if l.Left == Forever {
		return Forever
	}
	return l.ttl
}

// trustMargin is the fraction of the TTL by which trust ends before the lease does: it allows for clocks
// that run at different speeds, and for work that notices the end late.
const trustMargin = 10

// leaseOf returns the lease of a part. A lease that ends at E is trusted until Sent + (E - At) less a
// tenth of the TTL, and never for longer than the TTL less that tenth after its command was sent.
func leaseOf(p *rules.Entry, a *update.Answer) Lease {
	d := a.After
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Run: p.Run, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		FirstFence: p.FirstFence, LeastFence: p.LeastFence, Member: p.Member, Left: remaining(p.ExpiresAt, d.At), ttl: time.Duration(p.TTL) * time.Millisecond, id: p.ID,
	}
	trusted := min(lease.Left, lease.ttl)
	if p.TTL == 0 {
		lease.ttl, trusted = rules.EndlessTTL, rules.EndlessTTL
	}
	lease.validUntil = a.Sent.Add(trusted - lease.ttl/trustMargin)
	lease.seen = a.Sent
	for i := range d.Entries {
		switch e := &d.Entries[i]; {
		case !e.BelongsTo(p.LockID):
		case e.State == rules.StateKept:
			lease.kept = addKept(lease.kept, e, a)
		case e.State == rules.StateRunning && e.SameRequest(&p.Caller) && e.ID != p.ID:
			lease.upgraded = true
		}
	}
	return lease
}

// addKept adds a kept entry of an answer, unless it has no end.
func addKept(all []keptEntry, e *rules.Entry, a *update.Answer) []keptEntry {
	if e.ID == "" || e.TTL == 0 {
		return all
	}
	return append(all, keptEntry{e.ID, a.Sent.Add(e.ExpiresAt.Sub(a.After.At)), ttlOf(e)})
}

// needsSwap reports whether the part cannot be renewed by the IDs of entries alone: it has several, or its
// lock ID may keep more than was seen, which a part renews too.
func (l *Lease) needsSwap(now time.Time) bool {
	return l.upgraded || slices.ContainsFunc(l.kept, func(k keptEntry) bool { return clock.Elapsed(l.seen, now) >= k.ttl/3 })
}

// holdOf returns the lease of a request with HoldOnly. It is not trusted, since nothing renews it.
func holdOf(op *rules.Acquire, a *update.Answer) Lease {
	d := a.After
	k := d.Kept(op.LockID)
	return Lease{
		Resource: d.ID, LockID: k.LockID, Run: k.Run, Part: op.Part, Order: orderOf(op.Order), Mode: Mode(k.Mode), Fence: k.Fence,
		FirstFence: k.FirstFence, LeastFence: k.LeastFence, Member: k.Member, Bars: op.NewFence,
		Left: remaining(k.ExpiresAt, d.At), Joined: a.Outcome == rules.Joined, id: op.Call, granted: d.At,
	}
}

// over reports whether end has been reached at now. Both are times of clock.Now.
func over(end, now time.Time) bool { return clock.Elapsed(end, now) >= 0 }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ttlOf returns the TTL of an entry.
func ttlOf(e *rules.Entry) time.Duration {
	if e.TTL == 0 {
		return Forever
	}
	return time.Duration(e.TTL) * time.Millisecond
}

// millis returns a TTL as package rules expects it: 0 never expires.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining returns the time from now to end, or Forever.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(rules.Never) {
		return Forever
	}
	return end.Sub(now)
}

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
	err := cmp.Or(refuse(lease == nil || lease.Mode == ModePool, "resource", quote(resource), "one that the session holds, and no pool"),
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
