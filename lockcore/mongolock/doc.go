// Package mongolock has the names and the documented behaviour of the Go package mongo-lock, which
// came from square and then from foomo, for version 2 of the MongoDB driver. Its locks are
// lockcore's, in lockcore's documents: a Client and a party.Locker on one collection keep each
// other out. The documents of mongo-lock's own clients are another layout, and a collection that
// has any is refused. docs/migrating.md says how to move.
//
// All locks of one lock ID are renewed and unlocked together. A lock ID holds a resource once;
// asking again is ErrAlreadyLocked. A TTL is in seconds, and 0 is none: such a lock stands until it
// is unlocked, whatever becomes of who took it. An expired lock is in no other's way. Nothing waits
// and nothing is renewed by itself.
//
// The answers are ErrAlreadyLocked, ErrLockNotFound, a *lockcore.InvalidError or
// *lockcore.LayoutError, after which nothing was written, and the database's errors, which leave
// open whether the operation took effect. All may be repeated, and after a lock that may have been
// taken, Unlock is safe.
package mongolock
