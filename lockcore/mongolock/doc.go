// Package mongolock offers the names and the documented behaviour of the Go package mongo-lock (by
// Square, later by foomo) on version 2 of the MongoDB driver. Its locks are stored in lockcore's
// documents: a Client and a lockcore.Locker on one collection exclude each other. mongo-lock's own
// clients use another layout, and a collection that contains their documents is refused.
// docs/migrating.md describes the move.
//
// All locks of one lock ID are renewed and unlocked together. A lock ID holds a resource at most
// once: a second request returns ErrAlreadyLocked. A TTL is in seconds; 0 means no expiry, so the
// lock is held until it is unlocked, even if its holder dies. An expired lock does not block others.
// No call waits, and no lock is renewed automatically.
//
// After ErrAlreadyLocked, ErrLockNotFound, a *lockcore.InvalidError or a *lockcore.LayoutError,
// nothing was written. After an error of the database it is unknown whether the operation took
// effect. Every operation may be repeated, and Unlock is safe after a lock that may have been taken.
package mongolock
