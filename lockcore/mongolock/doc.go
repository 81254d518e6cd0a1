// Package mongolock has the names and the documented behaviour of the Go package mongo-lock, which
// came from square and then from foomo, for version 2 of the MongoDB driver. Its locks are
// lockcore's, in lockcore's documents: a Client and a lockcore.Locker on one collection keep each
// other out. The documents of mongo-lock's own clients are another layout, and a collection that
// has any is refused. docs/mongolock.md says how to move.
//
// # Locks
//
// A resource is a string, and so is a lock ID. XLock takes a resource alone, SLock together with
// other shared locks, up to a number that the request names. All locks of one lock ID are renewed
// and unlocked together. A lock ID holds a resource once; asking again is ErrAlreadyLocked.
//
//	               XLock, SLock
//	free ─────────────────────────────► held ◄───┐
//	  ▲                                  │  │    │ Renew, with a second or more left
//	  │               Unlock             │  └────┘
//	  ├──────────────────────────────────┤
//	  │                                  │ the TTL has ended
//	  │ Purge, or the room               ▼
//	  └──────── is needed ────────── expired
//
// A TTL is in seconds, and 0 is none: such a lock stands until it is unlocked, whatever becomes of
// who took it. Expiry is decided by the database server's clock, and the times in a LockStatus are
// that server's.
//
// Nothing waits and nothing is renewed by itself. A lockcore.Locker on the same collection has a
// queue, sessions that renew, and fencing tokens. It sees a lock of lock ID "import" as held by
// "mongo-lock/import/" and an ID.
//
// # Errors
//
//	ErrAlreadyLocked         nothing was taken
//	ErrLockNotFound          a lock that should be renewed has gone, expired, or has less than a second left
//	*lockcore.InvalidError   an argument is never accepted; the database was not asked
//	*lockcore.LayoutError    the collection has documents of another layout; nothing was written
//	any other                the database's; whether the operation took effect is open. All may be repeated, and
//	                         after a lock that may have been taken, Unlock is safe
//
// It keeps what mongo-lock documents. docs/mongolock.md says in what it departs from what that
// package does by mistake or by its clients' clocks.
package mongolock
