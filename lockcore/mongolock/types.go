package mongolock

import (
	"bytes"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The Type of a lock that XLock made, and of one that SLock made.
const (
	LOCK_TYPE_EXCLUSIVE = "exclusive" //nolint:staticcheck // the name is mongo-lock's
	LOCK_TYPE_SHARED    = "shared"    //nolint:staticcheck // the name is mongo-lock's
)

// Errors that do not come from the database. They are returned unwrapped, so that == works like
// errors.Is.
var (
	// ErrAlreadyLocked is returned by XLock and SLock: others hold the resource, the lock ID itself
	// holds it, or others wait for it in the queue of a lockcore.Locker. No lock was taken.
	ErrAlreadyLocked = errors.New("unable to acquire lock (resource is already locked)")
	// ErrLockNotFound is returned by Renew: the lock ID has no lock, or one with less than a second
	// left. It never replaces an error of the database.
	ErrLockNotFound = errors.New("unable to find lock")
)

// LockDetails describes a lock to acquire. Its zero value is a lock that does not expire and has no
// description.
type LockDetails struct {
	// Owner, Host and Comment are for people: at most 512, 255 and 1,024 bytes. The
	// lockstep command shows an empty Host as "-".
	Owner, Host, Comment string
	// TTL is the time in seconds after which the lock expires unless it is renewed: up to ten years. 0
	// means that it does not expire.
	TTL uint
}

// LockStatus describes one lock.
type LockStatus struct {
	Resource string
	LockId   string //nolint:staticcheck // the name is mongo-lock's
	// Type is LOCK_TYPE_EXCLUSIVE or LOCK_TYPE_SHARED.
	Type string
	// Owner, Host and Comment are copied from LockDetails.
	Owner, Host, Comment string
	// CreatedAt is the time of the grant, and RenewedAt that of the last renewal, or nil if there was
	// none, both by the database server's clock.
	CreatedAt time.Time
	RenewedAt *time.Time
	// TTL is the number of whole seconds that were left when the lock was read, by the database server's
	// clock: 0 for less than one and for an expired lock, -1 for a lock that does not expire.
	TTL int64

	// objectID, name and fence are the hold's in lockcore.
	objectID bson.ObjectID
	name     string
	fence    int64
	expired  bool
}

// LockStatusesByCreatedAtDesc sorts locks, the newest first. Locks that one process acquired within a
// millisecond are sorted by the order of its requests.
type LockStatusesByCreatedAtDesc []LockStatus

// Len is that of sort.Interface.
func (ls LockStatusesByCreatedAtDesc) Len() int { return len(ls) }

// Less reports whether lock i is newer than lock j.
func (ls LockStatusesByCreatedAtDesc) Less(i, j int) bool {
	a, b := &ls[i], &ls[j]
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.After(b.CreatedAt)
	}
	return bytes.Compare(a.objectID[:], b.objectID[:]) > 0
}

// Swap is that of sort.Interface.
func (ls LockStatusesByCreatedAtDesc) Swap(i, j int) { ls[i], ls[j] = ls[j], ls[i] }

// Filter selects locks for Status. A lock must match all fields; a field with its zero value matches
// every lock.
type Filter struct {
	// CreatedBefore and CreatedAfter are compared with LockStatus.CreatedAt, which has whole milliseconds. A
	// lock that was created at exactly that time matches neither. Both may be given.
	CreatedBefore, CreatedAfter time.Time
	// TTLlt and TTLgte are compared with LockStatus.TTL: less than, and greater than or equal to. A
	// lock that does not expire matches neither.
	TTLlt, TTLgte uint
	// Resource, LockId and Owner are compared with the fields of the same names.
	Resource string
	LockId   string //nolint:staticcheck // the name is mongo-lock's
	Owner    string
}

func (f *Filter) matches(s *LockStatus) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Resource, s.Resource) && is(f.LockId, s.LockId) && is(f.Owner, s.Owner) &&
		(f.CreatedBefore.IsZero() || s.CreatedAt.Before(f.CreatedBefore)) &&
		(f.CreatedAfter.IsZero() || s.CreatedAt.After(f.CreatedAfter)) &&
		(f.TTLlt == 0 || (s.TTL >= 0 && uint64(s.TTL) < uint64(f.TTLlt))) &&
		(f.TTLgte == 0 || (s.TTL >= 0 && uint64(s.TTL) >= uint64(f.TTLgte)))
}
