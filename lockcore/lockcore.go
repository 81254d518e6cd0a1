package lockcore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Locker acquires, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough. These methods are enough for plain locks:
//
//   - Acquire waits in the queue until all resources are held; TryAcquire does not wait.
//   - Resume returns a session that continues to renew leases, including those of another process.
//   - Leave ends leases that no session of this process renews, and Revoke ends a hold by force.
//   - Status streams holders and waiters.
//   - CreateIndexes prepares the collection, CollectionID identifies it, and Close ends all activity.
//
// The others are for layers that build on this package. The fields and methods of all types here are
// documented in package party: go doc github.com/temporal-lockstep/lockstep/lockcore/party.
type Locker = party.Locker

// Request is a request for locks on one or several resources under one lock ID. LockID and Resources are
// required. TTL, MaxWait, Owner, Started, Host and Comment are optional. The other fields are for layers
// that build on this package; leave them zero.
type Request = party.Request

// Session renews locks in the background until Leave or Release, or until one is lost. It is safe for
// concurrent use. A session that is neither left nor released renews until Locker.Close, or until the
// process ends. Several sessions can share a hold, if they have the same lock ID.
type Session = party.Session

// New returns a Locker on coll. It uses a handle of its own, with write concern majority and journal,
// and reads from the primary, whatever the settings of coll are. New sends nothing to the database; call
// CreateIndexes once per deployment. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) { return party.New(coll, cfg) }

// NewWithStore makes a Locker on another store, such as the one in memory of package lockcoretest.
func NewWithStore(s Store, cfg Config) (*Locker, error) { return party.NewWithStore(s, cfg) }

// Resource is a resource to lock, with the mode. Make one with [Exclusive], [Shared] or [SharedLimit].
type Resource = party.Resource

// Mode is ModeExclusive or ModeShared.
type Mode = party.Mode

// The modes.
const (
	ModeExclusive = party.ModeExclusive
	ModeShared    = party.ModeShared
)

// Exclusive requests exclusive access to name, which has 1 to 512 bytes of valid UTF-8 without NUL.
func Exclusive(name string) Resource { return party.Exclusive(name) }

// Shared requests shared access to name. Any number of parties may share it.
func Shared(name string) Resource { return party.Shared(name) }

// SharedLimit requests access to name that is granted while fewer than limit others hold it: a
// semaphore. limit is 1 to 1,000,000. Each request brings its own limit; it is not a property of the
// resource.
func SharedLimit(name string, limit int) Resource { return party.SharedLimit(name, limit) }

// Forever, as a TTL, makes a lock that never expires: it is held until it is released, even if its
// process dies.
const Forever time.Duration = party.Forever

// Lease describes a session's lock on one resource. It can be stored, sent, and used by another process.
// Its Fence is greater than that of every earlier grant of the resource, FirstFence is the fence that the
// hold began with, and Valid reports whether the lock is certainly still held, by the clocks of this
// process.
type Lease = party.Lease

// Config configures a Locker. Its zero value is the default: a TTL of 30 s, and a queue of up to 2,000
// waiters for each resource. HoldTTL, 1 h, is for kept holds: see party.Request.Persist.
//
// Give locks a MongoDB client of their own: if slow queries of the application use all connections of a shared
// one, renewals wait for a connection, and locks are lost while the database is healthy.
type Config = party.Config

// Store stores the documents of a Locker. New makes one on a collection, and package lockcoretest has
// one in memory.
type Store = party.Store

// What Status lists.
type (
	// Status describes one holder of a resource, or one waiter.
	Status = party.Status
	// Holder has the fields that Status and BusyError share: who holds, on which host, since when, and
	// when the lock expires if it is not renewed. Its String is human-readable.
	Holder = party.Holder
	// State is StateHolding, StateClaimed, StateDraining or StateWaiting.
	State = party.State
	// Filter selects what to list. The zero Filter selects everything; each field that is set narrows it.
	Filter = party.Filter
)

// The values of Status.State.
const (
	StateHolding  = party.StateHolding  // a hold, expired or not
	StateClaimed  = party.StateClaimed  // a grant to a waiter that has not confirmed it yet
	StateDraining = party.StateDraining // a session that was cut off, and may still trust its lease
	StateWaiting  = party.StateWaiting  // a request in the queue
)

// Conditions. Match them with [errors.Is]; the types below have the details.
var (
	// ErrBusy: others hold the resource, or are ahead in its queue. Nothing was acquired.
	ErrBusy = party.ErrBusy
	// ErrQueueFull: the queue already has Config.MaxWaiters waiters. Nothing was acquired. It also matches
	// ErrBusy.
	ErrQueueFull = party.ErrQueueFull
	// ErrLost: the lock ID or the session no longer holds the lock.
	ErrLost = party.ErrLost
	// ErrSuperseded: a newer request, or a release, was applied before this one. Nothing changed.
	ErrSuperseded = party.ErrSuperseded
	// ErrDeadlock: the request was removed from the queue to end a deadlock.
	ErrDeadlock = party.ErrDeadlock
	// ErrFenced: the document has a greater fence. Nothing was written.
	ErrFenced = party.ErrFenced
	// ErrInvalid: an argument is invalid. Nothing was sent to the database.
	ErrInvalid = party.ErrInvalid
	// ErrUnknownOutcome: the operation may have been applied. The call can be repeated. If it is not, what
	// it may have acquired is released in the background.
	ErrUnknownOutcome = party.ErrUnknownOutcome
	// ErrEnded is the cause with which a session's context is cancelled when the session was left or
	// released.
	ErrEnded = party.ErrEnded
	// ErrClosed is returned by every call of a closed Locker, and by calls that are waiting when it is
	// closed.
	ErrClosed = party.ErrClosed
)

// The error types.
type (
	// BusyError names the holders that block the request, and its position in the queue.
	BusyError = party.BusyError
	// LostError names the lost lock, and the next holder if that is known.
	LostError = party.LostError
	// SupersededError names the request that came too late, and the operation that overtook it.
	SupersededError = party.SupersededError
	// DeadlockError describes the cycle of waits.
	DeadlockError = party.DeadlockError
	// FencedError names the greater fence that the document has.
	FencedError = party.FencedError
	// InvalidError names the field, the value and the bound.
	InvalidError = party.InvalidError
	// UnknownOutcomeError names the operation, and unwraps to the driver's error.
	UnknownOutcomeError = party.UnknownOutcomeError
	// DamagedError names a document that cannot be decoded.
	DamagedError = party.DamagedError
	// LayoutError names a collection whose documents have another format, and the remedy.
	LayoutError = party.LayoutError
)

// FenceField is the field in which [UpdateFenced] records the fences of a document's writers.
const FenceField = party.FenceField

// UpdateFenced updates one of your own documents, unless a writer with a greater fence has already
// written it. So a holder that was paused for longer than its TTL cannot overwrite the writes of the next
// holder. filter
// and update are those of the driver's UpdateOne, and must not touch FenceField. All writers of the
// document must use UpdateFenced, under exclusive leases of the same resource.
//
// Errors: *FencedError; mongo.ErrNoDocuments if no document matches filter; *InvalidError; the
// driver's. After an error of the driver, including when ctx ends, the outcome is unknown; an idempotent
// update can be repeated under the same lease. UpdateFenced uses the write concern of coll: use
// majority, otherwise a failover can roll back the fence with the write.
//
// The idea is described in Martin Kleppmann's "How to do distributed locking" (2016).
func UpdateFenced(ctx context.Context, coll *mongo.Collection, lease Lease, filter, update any) error {
	return party.UpdateFenced(ctx, coll, lease, filter, update)
}
