package lockcore

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Locker acquires, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct {
	core *party.Locker
}

// New returns a Locker on coll. It uses a handle of its own, with write concern majority and journal,
// and reads from the primary, whatever the settings of coll are. New sends nothing to the database; call
// CreateIndexes once per deployment. The error is an *InvalidError that names the field of cfg.
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

// Core returns the underlying Locker of package party, for layers that build on this package.
func (l *Locker) Core() *party.Locker { return l.core }

// Request is a request for locks on one or several resources under one lock ID. The zero value of every
// field except LockID and Resources is the usual choice.
type Request struct {
	// LockID identifies the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string
	// Resources lists 1 to 100 resources with different names. They are acquired in the order of their
	// names. If the request fails, none stays held.
	Resources []Resource
	// TTL is the time after the last renewal after which others may acquire the locks: 100 ms or more,
	// or Forever. Defaults to Config.TTL.
	TTL time.Duration
	// MaxWait bounds the time that Acquire waits. By default only the context bounds it.
	MaxWait time.Duration
	// Owner names the thread of work behind the request, for display and for deadlock detection, which
	// treats all requests of one owner as sequential. At most 512 bytes. Defaults to LockID.
	Owner string
	// Started is the start time of the owner. The owner in a deadlock that started last is its victim.
	// Defaults to the time at which the request queued.
	Started time.Time
	// Host is the owner's host, for display. At most 255 bytes. Defaults to Config.Host.
	Host string
	// Comment is for display. At most 1,024 bytes.
	Comment string
}

func (r *Request) core() party.Request {
	return party.Request{
		LockID: r.LockID, Resources: r.Resources, TTL: r.TTL, MaxWait: r.MaxWait, Owner: r.Owner, Started: r.Started, Host: r.Host, Comment: r.Comment,
	}
}

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed. It
// acquires them in the order of their names, so two requests for several resources never deadlock, and
// renews those that it has while it waits for the rest.
//
// If it fails, it leaves the queue and releases what it has acquired. The error is ctx's cause, or after
// req.MaxWait the *BusyError that names the holders. Other errors: *InvalidError and *LayoutError
// (nothing was sent), *DeadlockError and an ErrQueueFull, *LostError (a lock was lost while it waited
// for the rest), *UnknownOutcomeError, ErrClosed, and those of the database.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	return session(l.core.Acquire(ctx, req.core()))
}

// TryAcquire acquires all resources if they are free, and does not wait: if one is busy it returns a
// *BusyError, and holds none. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	return session(l.core.TryAcquire(ctx, req.core()))
}

// Resume returns a session that continues to renew leases, also those of another process. If one is lost
// it returns a *LostError and no session. The other leases have then been renewed once, and expire with
// their TTL unless they are resumed again or left.
func (l *Locker) Resume(ctx context.Context, leases ...Lease) (*Session, error) {
	renewed, err := l.core.Renew(ctx, leases...)
	if err != nil {
		return nil, err
	}
	return &Session{l.core.NewSession(ctx, renewed)}, nil
}

// Leave ends the use of each lease, like [Session.Leave]. It is not an error if a lock has already ended.
// All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	return l.core.Leave(ctx, leases...)
}

// Revoke ends a hold by force. resource, lockID and firstFence identify it, as Status lists them. The
// holder's next renewal returns a *LostError with the reason, which has 1 to 512 bytes. Others stay
// locked out until the holder leaves or its lease ends. If dead is set, they do not: set it only if the
// holder is known to be dead. It is not an error if the hold does not exist.
func (l *Locker) Revoke(ctx context.Context, resource, lockID string, firstFence int64, reason string, dead bool) error {
	return l.core.Release(ctx, party.Release{
		LockID: lockID, Resources: []string{resource}, FirstFence: firstFence, Force: true, Now: dead, Reason: reason,
	})
}

// Status streams holders and waiters, sorted by resource name, and for each resource the holders before
// the queue. Filtering by name uses _id, and filtering by contention an index; any other filter reads
// all lock documents. It reads with read concern majority, one document after the other.
//
// The sequence ends after the first error: an *InvalidError, that of ctx, or that of the database.
func (l *Locker) Status(ctx context.Context, f Filter) iter.Seq2[Status, error] {
	return l.core.Status(ctx, f)
}

// CreateIndexes creates a TTL index that removes the documents of idle resources, and the index by which
// background work finds contended resources. It may be called again at any time. Without the indexes
// locks work, but documents stay forever, and background work reads all of them. A collection whose
// documents have another format is refused with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error { return l.core.CreateIndexes(ctx) }

// CollectionID returns the ID of the Locker's collection. Two Lockers exclude each other if their IDs are
// equal. It reads the database, and returns its errors, or ErrClosed.
func (l *Locker) CollectionID(ctx context.Context) (string, error) { return l.core.CollectionID(ctx) }

// Close ends all activity of the Locker. Calls that wait in a queue leave it and return ErrClosed. All
// sessions end as if by [Session.Leave], so stop the work that they protect first. Then Close waits, as
// long as ctx allows, until locks that abandoned requests may have acquired are released. The joined
// errors name the resources whose locks could not be released; they expire. A second call does nothing.
func (l *Locker) Close(ctx context.Context) error { return l.core.Close(ctx) }

// Session renews locks in the background until Leave or Release, or until one is lost. It is safe for
// concurrent use. A session that is neither left nor released renews until Locker.Close, or until the
// process ends. Several sessions can share a hold, if they have the same lock ID.
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

// Lost returns the *LostError if the session has lost a lock, otherwise nil. It also reports a loss after
// the session's context has ended.
func (s *Session) Lost() error { return s.core.Lost() }

// Leases returns what the session holds now, in the order of the resources' names.
func (s *Session) Leases() []Lease { return s.core.Leases() }

// Leave stops the renewal and ends this session's use of the hold. The hold stays if another session of
// the same lock ID uses it. Leave waits for the database as long as ctx allows; locks that it could not
// end expire with their TTL. It may be repeated.
func (s *Session) Leave(ctx context.Context) error { return s.core.Leave(ctx) }

// Release is a Leave that ends the hold for all sessions of the lock ID. It returns a *LostError if the
// hold was lost, or if that cannot be ruled out.
func (s *Session) Release(ctx context.Context) error { return s.core.Release(ctx) }

// Downgrade makes the session's exclusive leases shared, so that readers may hold the resources at the
// same time. A lock ID that has other sessions on a resource stays exclusive there, as the lease's Mode
// shows. The fences do not change. The session treats its leases as shared even if the call fails, and
// Downgrade may then be repeated.
func (s *Session) Downgrade(ctx context.Context) error { return s.core.Downgrade(ctx) }

// Upgrade makes the session's shared lease on a resource exclusive, with a new fence. It goes ahead
// of the queue and waits until the other holders have left, or ctx ends: then, as after any other
// error, the session holds in shared mode as before. If two sessions wait to upgrade on a resource,
// one of them gets ErrDeadlock. A session upgrades one resource at a time.
func (s *Session) Upgrade(ctx context.Context, resource string) error {
	return s.core.Upgrade(ctx, resource)
}
