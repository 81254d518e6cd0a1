package lockcore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Resource is one thing to lock, and how. Make one with [Exclusive], [Shared] or [SharedLimit].
type Resource = party.Resource

// Mode is ModeExclusive or ModeShared.
type Mode = party.Mode

// The modes.
const (
	ModeExclusive = party.ModeExclusive
	ModeShared    = party.ModeShared
)

// Exclusive asks for name alone: 1 to 512 bytes of valid UTF-8 without NUL.
func Exclusive(name string) Resource { return party.Exclusive(name) }

// Shared asks for name together with any number of other shared holders.
func Shared(name string) Resource { return party.Shared(name) }

// SharedLimit asks for name together with fewer than limit other shared holders: a semaphore. limit is
// 1 to 1,000,000. It belongs to the request: others may ask with another one.
func SharedLimit(name string, limit int) Resource { return party.SharedLimit(name, limit) }

// Forever, as a TTL, makes a lock that never ends by itself: it is held until it is released. A
// process that dies leaves it held.
const Forever time.Duration = party.Forever

// Lease is what a session got on one resource: a value that can be stored, sent, and used by another
// process. Its Fence grows with every grant of the resource, FirstFence names the hold, and Valid
// reports whether it may still be trusted by this process's clocks.
type Lease = party.Lease

// Config is what a Locker is made with. Its zero value is the default: a TTL of 30 s, and a queue of
// 2,000 waiters for each resource.
type Config = party.Config

// Store keeps the documents of a Locker. New makes one on a collection, and package lockcoretest has
// one in memory.
type Store = party.Store

// What Status lists.
type (
	// Status is a party that holds a resource, or waits for it.
	Status = party.Status
	// Holder is the part of it that is also in a BusyError: who, on which host, since when, and for how
	// long unless it is renewed. Its String is for people.
	Holder = party.Holder
	// State is StateHolding, StateClaimed, StateDraining or StateWaiting.
	State = party.State
	// Filter selects what to list. The zero Filter selects everything; each field that is set narrows it.
	Filter = party.Filter
)

// The states of what Status lists.
const (
	StateHolding  = party.StateHolding  // a hold, expired or not
	StateClaimed  = party.StateClaimed  // a waiter to whom the resource was granted, and who has not confirmed it yet
	StateDraining = party.StateDraining // a user that was cut off, and may not know yet
	StateWaiting  = party.StateWaiting  // a request in the queue
)

// Conditions. Match them with [errors.Is]; the types below carry the facts.
var (
	// ErrBusy: others hold the resource, or are ahead in its queue. Nothing was taken.
	ErrBusy = party.ErrBusy
	// ErrQueueFull: the queue has Config.MaxWaiters. Nothing was taken. It is an ErrBusy too.
	ErrQueueFull = party.ErrQueueFull
	// ErrLost: the lock ID, or the session, does not hold any longer what it held.
	ErrLost = party.ErrLost
	// ErrSuperseded: a later request, or a release, came first. Nothing changed.
	ErrSuperseded = party.ErrSuperseded
	// ErrDeadlock: the request was taken out of the queue to end a deadlock.
	ErrDeadlock = party.ErrDeadlock
	// ErrFenced: a write with a greater fence came first.
	ErrFenced = party.ErrFenced
	// ErrInvalid: an argument is never accepted. The database was not asked.
	ErrInvalid = party.ErrInvalid
	// ErrUnknownOutcome: the operation may have been applied. What it may have taken is given back in
	// the background; it may be repeated.
	ErrUnknownOutcome = party.ErrUnknownOutcome
	// ErrEnded is the cause with which a session's context is cancelled when the session was left or
	// released.
	ErrEnded = party.ErrEnded
	// ErrClosed is returned by every call of a Locker that was closed, and is the cause with which calls
	// that wait end then.
	ErrClosed = party.ErrClosed
)

// The facts of errors.
type (
	// BusyError names the holders in the way, and the position in the queue.
	BusyError = party.BusyError
	// LostError names what was lost, and to whom if that is known.
	LostError = party.LostError
	// SupersededError names the request that came too late, and what overtook it.
	SupersededError = party.SupersededError
	// DeadlockError describes the circle of waits.
	DeadlockError = party.DeadlockError
	// FencedError names the fence that overtook a write.
	FencedError = party.FencedError
	// InvalidError names the field, the value and the bound.
	InvalidError = party.InvalidError
	// UnknownOutcomeError names the operation, and unwraps to the driver's error.
	UnknownOutcomeError = party.UnknownOutcomeError
	// LayoutError names the collection that has another layout, and what to do.
	LayoutError = party.LayoutError
)

// FenceField is the field in which [UpdateFenced] keeps what it remembers of the writes of a document.
const FenceField = party.FenceField

// UpdateFenced updates one document of the caller's on condition that the lease was not overtaken by a
// write under a later hold. So a holder that was paused for longer than its TTL cannot overwrite what
// the next holder wrote. filter and update are those of the driver's UpdateOne, and leave FenceField
// alone. All writers of the document must use it, under exclusive leases of the same resource.
//
// Errors: *FencedError; mongo.ErrNoDocuments if no document matches filter; *InvalidError; the
// driver's. After an error of the driver, also when ctx ends, the outcome is unknown, and the same
// update may be repeated under the same lease if it may run twice. The collection's own write concern
// counts: use majority, or the fence can be rolled back with the write.
//
// A source of the idea is Martin Kleppmann's "How to do distributed locking" (2016).
func UpdateFenced(ctx context.Context, coll *mongo.Collection, lease Lease, filter, update any) error {
	return party.UpdateFenced(ctx, coll, lease, filter, update)
}
