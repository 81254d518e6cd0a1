package lockcore

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Locker takes, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct {
	core *party.Locker
}

// New makes a Locker on coll. The collection is cloned with majority, journaled writes and the
// primary, whatever the caller's client was set to. It asks the database nothing; call CreateIndexes
// once per deployment. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	core, err := party.New(coll, cfg)
	if err != nil {
		return nil, err
	}
	return &Locker{core}, nil
}

// NewWithStore makes a Locker on another store, such as the one in memory of package lockcoretest.
func NewWithStore(s Store, cfg Config) (*Locker, error) {
	core, err := party.NewWithStore(s, cfg)
	if err != nil {
		return nil, err
	}
	return &Locker{core}, nil
}

// Core returns what the Locker is made of, for layers that build on this package: see package party.
func (l *Locker) Core() *party.Locker { return l.core }

// Request asks for a hold on one or several resources in the name of one lock ID. The zero value of
// every field but LockID and Resources is the usual choice.
type Request struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string
	// Resources are taken in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource
	// TTL is how long the session may be silent before others may take its locks: 100 ms or more, or
	// Forever. Defaults to Config.TTL.
	TTL time.Duration
	// MaxWait is how long Acquire waits at most. Defaults to as long as its context lives.
	MaxWait time.Duration
	// Owner is the party that waits and holds, for people and for deadlock detection: requests of one
	// owner are taken to wait for one another, so it names one thread of work. At most 512 bytes, or
	// LockID. Defaults to LockID.
	Owner string
	// Started is when the owner began. Of the owners in a deadlock the one that started last gives up.
	// Defaults to when the request queued.
	Started time.Time
	// Host is where the owner is, for people. At most 255 bytes. Defaults to Config.Host.
	Host string
	// Comment is for people. At most 1,024 bytes.
	Comment string
}

func (r *Request) core() party.Request {
	return party.Request{
		LockID: r.LockID, Resources: r.Resources, TTL: r.TTL, MaxWait: r.MaxWait, Owner: r.Owner, Started: r.Started, Host: r.Host, Comment: r.Comment,
	}
}

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. It
// takes them in the order of their names, so requests of several never block each other forever;
// what it took is renewed while it waits for the rest.
//
// When it gives up it leaves the queue and gives back what it took. The error is ctx's cause, or
// after req.MaxWait the *BusyError that names the holders in the way. Other errors: *InvalidError and
// *LayoutError (nothing was sent), *DeadlockError and an ErrQueueFull (nothing was taken),
// *LostError (what it took was lost while it waited for the rest), *UnknownOutcomeError, ErrClosed, and
// the database's.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	return session(l.core.Acquire(ctx, req.core()))
}

// TryAcquire takes all resources if they are free, and does not wait: if one is busy the answer is a
// *BusyError, and nothing was taken. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	return session(l.core.TryAcquire(ctx, req.core()))
}

// Resume renews leases, also of another process, and makes a session of them that keeps renewing. If
// one is lost the error is a *LostError; the others stay as they are, and are renewed.
func (l *Locker) Resume(ctx context.Context, leases ...Lease) (*Session, error) {
	renewed, err := l.core.Renew(ctx, leases...)
	if err != nil {
		return nil, err
	}
	return &Session{l.core.NewSession(ctx, renewed)}, nil
}

// Leave ends the locks that the leases name. A lock that has already ended is not an error. All are
// tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	return l.core.Leave(ctx, leases...)
}

// Revoke ends a hold by force, for a holder that does not end it itself: the hold on a resource that
// began with a fence, as Status lists it. The holder's next renewal answers with a *LostError that
// gives the reason: 1 to 512 bytes. While it may still trust its lease it keeps others out, until it
// leaves or its time is over, unless dead is set: that is for a holder that is known to be dead. A
// hold that does not exist is not an error.
func (l *Locker) Revoke(ctx context.Context, resource, lockID string, firstFence int64, reason string, dead bool) error {
	return l.core.Release(ctx, party.Release{
		LockID: lockID, Resources: []string{resource}, FirstFence: firstFence, Force: true, Now: dead, Reason: reason,
	})
}

// Status streams who holds and who waits: by the resources' names, and of each resource the holders
// before the queue. A name is found by itself, and what is contended by an index; any other filter
// reads all lock documents. It lists what a majority of the servers had when it was read; documents
// are read one after the other.
//
// The sequence ends after the first error: an *InvalidError, ctx's, or the database's.
func (l *Locker) Status(ctx context.Context, f Filter) iter.Seq2[Status, error] {
	return l.core.Status(ctx, f)
}

// CreateIndexes makes the index by which documents of idle resources are removed, and the one by
// which background work finds what is contended. It may be called again at any time. Without it locks
// work, documents stay forever, and background work reads all of them. A collection in another layout
// is refused with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error { return l.core.CreateIndexes(ctx) }

// CollectionID returns the ID of the collection that the Locker keeps its locks in. Two Lockers
// exclude each other if they have the same. It asks the database, and returns its errors, or
// ErrClosed.
func (l *Locker) CollectionID(ctx context.Context) (string, error) { return l.core.CollectionID(ctx) }

// Close ends what the Locker does. Calls that wait in a queue leave it and answer with ErrClosed.
// All sessions end as by [Session.Leave]: so stop the work that they protect first. Then Close waits,
// as long as ctx allows, until everything that requests which gave up may have taken is given back.
// The joined errors name the resources on which that was not possible: it ends with its TTL. A second
// call does nothing.
func (l *Locker) Close(ctx context.Context) error { return l.core.Close(ctx) }

// Session is a lock that is held and renewed in the background until Leave or Release, or until it
// is lost. It is safe for concurrent use. A session that is neither left nor released renews until
// Locker.Close, or for as long as the process lives.
type Session struct {
	core *party.Session
}

func session(core *party.Session, err error) (*Session, error) {
	if err != nil {
		return nil, err
	}
	return &Session{core}, nil
}

// Context is derived from the one that acquired the session. It is cancelled when the lock is lost,
// with the *LostError as its cause; when the session ends, with ErrEnded; and when Locker.Close
// ends it, with ErrClosed.
func (s *Session) Context() context.Context { return s.core.Context() }

// Lost returns the *LostError if the session has lost a lock, and else nil, even if the session's
// context had ended before the loss.
func (s *Session) Lost() error { return s.core.Lost() }

// Leases returns what the session holds now, in the order of the resources' names.
func (s *Session) Leases() []Lease { return s.core.Leases() }

// Leave stops the renewal and ends this session's use of the hold: another session of the same lock
// ID keeps it. It waits for the database as long as ctx allows; what it could not end ends with its
// TTL. It may be repeated.
func (s *Session) Leave(ctx context.Context) error { return s.core.Leave(ctx) }

// Release is a Leave that ends the hold of the whole lock ID. It returns a *LostError if the hold is
// missing and was not released: there is evidence for that, or the evidence is not complete.
func (s *Session) Release(ctx context.Context) error { return s.core.Release(ctx) }

// Downgrade makes the session's exclusive leases shared, so that readers may hold at the same time. A
// lock ID that has other sessions on a resource stays exclusive there: the lease's Mode shows it.
// The fences stay. From before the command is sent the session trusts only shared: after an error
// Mode shows so, and Downgrade may be repeated.
func (s *Session) Downgrade(ctx context.Context) error { return s.core.Downgrade(ctx) }

// Upgrade makes the session's shared lease on a resource exclusive, with a new fence. It goes ahead
// of the queue and waits until the other holders have left, or ctx ends: then, as after any other
// error, the session holds in shared mode as before. If two sessions wait to upgrade on a resource,
// one of them gets ErrDeadlock. A session upgrades one resource at a time.
func (s *Session) Upgrade(ctx context.Context, resource string) error {
	return s.core.Upgrade(ctx, resource)
}
