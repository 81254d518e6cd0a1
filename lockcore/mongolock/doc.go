// Package mongolock stands in for the Go package mongo-lock, which came from square and then from foomo: the
// same names, on the same documents, for version 2 of the MongoDB driver. Its clients and the original's can
// work on one collection at the same time, and so can a lockcore.Locker whose Config.Layout is LayoutMongoLock.
//
// # Locks
//
// A resource is a string, and so is a lock ID. XLock takes a resource alone, SLock together with other shared
// locks, up to a number that the request names. All locks of one lock ID are renewed and unlocked together, by
// whoever knows it: knowing a resource is not enough. A lock ID holds a resource once; asking again is ErrAlreadyLocked.
//
//	               XLock, SLock
//	free ─────────────────────────────► held ◄───┐
//	  ▲                                  │  │    │ Renew, with a second or more left
//	  │               Unlock             │  └────┘
//	  ├──────────────────────────────────┤
//	  │                                  │ the TTL has ended
//	  │ Purge, or somebody               ▼
//	  └──────── needs the room ────── expired
//
// A TTL is in seconds, and 0 is none: such a lock stands until it is unlocked, whatever becomes of who took it.
// Expiry is decided by the database server's clock, and the times in a LockStatus are that server's.
//
// Nobody waits and nothing is renewed by itself. For a queue, sessions that renew, and fencing tokens, use
// lockcore on the same collection; for a new collection use lockcore in its own layout.
//
// # Errors
//
//	ErrAlreadyLocked         nothing was taken
//	ErrLockNotFound          a lock that should be renewed has gone, expired, or has less than a second left
//	*lockcore.InvalidError   an argument is never accepted; the database was not asked
//	*lockcore.LayoutError    the collection has no unique index on resource, or belongs to lockcore's own layout
//	any other                the database's; whether the operation took effect is open. All may be repeated, and
//	                         after a lock that may have been taken, Unlock is safe
//
// # What it does otherwise
//
// It keeps what mongo-lock documents, and departs from what that package does by mistake or by its clients' clocks:
//
//   - An error of the database is never reported as ErrLockNotFound.
//   - An expired shared lock keeps no writer out, and does not count for maxConcurrent. No purge is needed.
//   - Purge ends the locks that expired, and no other lock of the same lock ID.
//   - Renew with a lock that is about to expire renews none of the lock ID's.
//   - An empty lock ID is refused. There, Unlock of it unlocks everybody's.
//   - CreatedBefore and CreatedAfter work together.
//   - GC keeps documents that this library wrote for a day: they remember fences, and what was released.
//
// # What is not promised while mongo-lock clients are around
//
// Each of their updates is understood by the next operation here, and what is written here is understood by them. But:
//
//   - Their clients judge expiry by their own clocks. One that runs fast takes what has not expired, or purges it, and
//     with it every other lock of the same lock ID.
//   - They ignore what their layout has no place for: lockcore's queue and its grants to waiters, so that they overtake, and
//     parts of a saga that were cut off and may still trust their lease.
//   - They give no fence. Fences still grow over the grants of this library, and a resource that checks them cannot tell
//     an original client's turn.
//   - Their expired readers keep their own writers out, as always, until somebody purges.
//   - A lock of lockcore that they end, by Unlock or by a purge, is lost: its session learns of it at its next renewal, and
//     meanwhile keeps other clients of this library out, but not them.
//   - Their GC removes documents that nobody holds, with the queue and the records in them. Whoever waited has to ask again.
//
// When the last of them is gone all of this holds again.
package mongolock
