package lockcore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"
)

// Config is what a [Locker] is made with. Its zero value is the default.
type Config struct {
	// TTL is how long a part may be silent before others may displace it: 100 ms or more, or Forever.
	// Defaults to 30 s.
	TTL time.Duration
	// HoldTTL is how long a hold that is kept may stand with no part and no sign of life: 100 ms or
	// more, or Forever. Not less than TTL. Defaults to 10 min.
	HoldTTL time.Duration
	// RenewEvery is how often a Session renews. At most half of TTL. Defaults to a third of the TTL.
	RenewEvery time.Duration
	// ClaimTTL is how long a grant to a waiter stands before it must be confirmed. Defaults to 30 s.
	ClaimTTL time.Duration
	// WaiterTTL is how long a queued place stands without being refreshed. Defaults to 5 min.
	WaiterTTL time.Duration
	// Retention is how long the document of an idle resource is kept, and with it the memory of its
	// fence and of what was released. At least 1 h. Defaults to 24 h.
	Retention time.Duration
	// MaxWaiters bounds the queue of one resource. 1 to 10,000. Defaults to 2,000.
	MaxWaiters int
	// Host is stored with each hold, for people. Defaults to the host name and process ID.
	Host string
	// TracerProvider makes the spans. Defaults to the global one.
	TracerProvider trace.TracerProvider
}

// Locker takes, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct{}

// New makes a Locker on coll. The collection is cloned with majority, journaled writes, majority reads
// and the primary, whatever the caller's client was set to. It asks the database nothing.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) { return nil, errors.ErrUnsupported }

// CreateIndexes makes the index by which documents of idle resources are removed. It may be called
// again at any time.
func (l *Locker) CreateIndexes(ctx context.Context) error { return errors.ErrUnsupported }

// Enter asks once, and takes the lock as a value: nothing renews it but Renew, and nothing ends it but
// Leave, Release or its TTL. When it is busy the answer is a *BusyError and nothing was taken, unless
// queue is set: then what was taken stays taken, and the request stands in the queue of the first
// resource that was busy, until it is repeated, released, or Config.WaiterTTL has passed.
func (l *Locker) Enter(ctx context.Context, req Request, queue bool) ([]Lease, error) {
	return nil, errors.ErrUnsupported
}

// Renew extends the leases, each by the TTL it was taken with, and returns them with what is left now.
// A lease that is lost is left out and answered by a *LostError; several are joined.
func (l *Locker) Renew(ctx context.Context, leases ...Lease) ([]Lease, error) {
	return nil, errors.ErrUnsupported
}

// Leave ends the parts that the leases name, and the hold too where it was not kept and no other part
// is left. Leaving what has already gone is no error.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error { return errors.ErrUnsupported }

// Release is what Release ends.
type Release struct {
	// LockID is whose holds, claims and queued places end.
	LockID string
	// Resources are where: up to 100 names.
	Resources []string
	// Order bounds what ends: everything up to it, and nothing that was asked for later.
	Order Order
}

// Release ends the holds of a lock ID, and whatever it asked for, on the resources. A part of it that may
// still trust its lease keeps others out until it leaves or its promise ends. Releasing what is not
// held is no error.
func (l *Locker) Release(ctx context.Context, r Release) error { return errors.ErrUnsupported }

// TryAcquire is Enter, with a Session that renews what it got.
func (l *Locker) TryAcquire(ctx context.Context, req Request) (*Session, error) {
	return nil, errors.ErrUnsupported
}

// Acquire waits in the queue until all resources are held, ctx ends or req.MaxWait has passed.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Session, error) {
	return nil, errors.ErrUnsupported
}

// Keep renews leases that Enter gave in the background. The session's context derives from ctx.
func (l *Locker) Keep(ctx context.Context, leases []Lease) *Session { return nil }

// Session is a lock that is held and renewed in the background until Leave or Release, or until it is
// lost.
type Session struct{}

// Context is derived from the one that acquired the session; it is cancelled when the lock is lost, with
// the *LostError as its cause, and when the session ends.
func (s *Session) Context() context.Context { return nil }

// Leases are what the session holds now.
func (s *Session) Leases() []Lease { return nil }

// Leave stops the renewal and ends this part. A hold that was kept stands.
func (s *Session) Leave(ctx context.Context) error { return errors.ErrUnsupported }

// Release stops the renewal and ends the hold of the whole lock ID.
func (s *Session) Release(ctx context.Context) error { return errors.ErrUnsupported }
