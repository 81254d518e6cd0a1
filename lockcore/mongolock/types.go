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

// The answers that are not the database's. They are returned as they are, so that == works as
// errors.Is does.
var (
	// ErrAlreadyLocked is XLock's and SLock's: others hold the resource, or the lock ID itself does,
	// or others wait for it in the queue of a party.Locker. Nothing was taken.
	ErrAlreadyLocked = errors.New("unable to acquire lock (resource is already locked)")
	// ErrLockNotFound is Renew's: the lock ID has no lock, or one with less than a second left. An
	// error of the database never becomes this one.
	ErrLockNotFound = errors.New("unable to find lock")
)

// LockDetails is what is told of a lock that is taken. Its zero value is a lock without an end of
// which nothing is told.
type LockDetails struct {
	// Owner, Host and Comment are for people: at most 512, 255 and 1,024 bytes. The
	// lockstep command shows an empty Host as "-".
	Owner, Host, Comment string
	// TTL is how many seconds the lock stands unless it is renewed, at most ten years. 0 is without an
	// end.
	TTL uint
}

// LockStatus is one lock as it stands.
type LockStatus struct {
	Resource string
	LockId   string //nolint:staticcheck // the name is mongo-lock's
	// Type is LOCK_TYPE_EXCLUSIVE or LOCK_TYPE_SHARED.
	Type string
	// Owner, Host and Comment are what LockDetails told.
	Owner, Host, Comment string
	// CreatedAt is when it was taken, and RenewedAt when it was last renewed, nil if it never was, by
	// the database server's clock.
	CreatedAt time.Time
	RenewedAt *time.Time
	// TTL is how many whole seconds were left, by the database server's clock, when it was read: 0 for
	// less than one and for a lock that has expired, -1 for one without an end.
	TTL int64

	// objectID, name and fence are the hold's in lockcore.
	objectID bson.ObjectID
	name     string
	fence    int64
	expired  bool
}

// LockStatusesByCreatedAtDesc sorts locks, the newest first. Those that one process took within a
// millisecond are in the order in which it asked for them.
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

// Filter says which locks Status tells of: those that match all of its fields. A field with its
// zero value selects everything.
type Filter struct {
	// CreatedBefore and CreatedAfter are compared with LockStatus.CreatedAt. Both may be given.
	CreatedBefore, CreatedAfter time.Time
	// TTLlt and TTLgte are compared with LockStatus.TTL: less than, and greater than or equal to. A
	// lock without an end matches neither.
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
