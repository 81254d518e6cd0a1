package rules

import (
	"time"
)

// Document is the state of one resource, as it is stored.
type Document struct {
	// ID is the name of the resource.
	ID string `bson:"_id"`
	// Version changes with every write and never repeats.
	Version Version `bson:"version"`
	// At is the server's time of the read or of the operation that returned this document. It is not
	// stored.
	At time.Time `bson:"at,omitempty"`
	// Fence is the highest fence that was given out. It grows forever.
	Fence int64 `bson:"fence"`
	// Entries are the holds, claims and draining parts. A lock ID's hold is its entries in the states
	// StateRunning and StateKept, which have the same mode.
	Entries []Entry `bson:"held"`
	// Waiters is the queue, first come first.
	Waiters []Waiter `bson:"waiters"`
	// Evicted is evidence of evictions, forced releases and take-overs. It is complete from
	// EvidenceSince on.
	Evidence      []Evidence `bson:"evicted"`
	EvidenceSince time.Time  `bson:"since"`
	// Over records, by lock ID and run, the order up to which all requests have been released.
	Releases []ReleaseRecord `bson:"over,omitempty"`
	// Bars refuse late requests of steps that a compensation undoes.
	Bars []Bar `bson:"bars,omitempty"`
	// IdleAt is the end of the last TTL in the document, rounded up to IdleGrain. Claims made by the
	// same write do not count. A TTL index removes the document a retention time later.
	IdleAt time.Time `bson:"idleAt"`
	// Attn lists the states of entries other than StateRunning, and the modes of waiters and of new
	// claims. A partial index contains the documents in which it is not empty.
	Attn []string `bson:"attn"`
	// Reserved gives one process precedence in writing the document for a moment.
	Reserved *Reservation `bson:"reserved,omitempty"`
}

// Version identifies one stored state of a document. The zero Version means that no document is
// stored.
type Version struct {
	// N counts the writes of the document.
	N int64 `bson:"n"`
	// R is a random value of the command that wrote the state, so that a version does not repeat
	// after the document was removed and inserted again, or after a rollback.
	R string `bson:"r"`
}

// Reservation asks other processes to hold back their writes of a document. It is advice: a process
// that ignores it or has not read it does no harm, because writes compare versions.
type Reservation struct {
	// By identifies the process.
	By string `bson:"by"`
	// Until is at most a second after the reservation was made.
	Until time.Time `bson:"until"`
}

// States of an entry. docs/internals.md describes what becomes of each when it has expired. A state
// not less than StateHolds belongs to a hold.
const (
	StateClaimed  = "claimed"
	StateDraining = "draining"
	StateRunning  = "held"
	StateKept     = "kept"
	StateHolds    = "h"
)

// Never is the expiry of an entry that has no end.
var Never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Entry is a running part, a kept hold, a draining part or a claim.
type Entry struct {
	// ID is the random ID of the call that made the entry. Extensions name entries by it, and a
	// repeated call finds what it was granted. A kept entry has the suffix "/k", unless there was no
	// part, and a draining one "/d".
	ID     string `bson:"id,omitempty"`
	LockID string `bson:"lockId"`
	// Label is the run label under which the entry was made, empty outside of Temporal.
	Label string `bson:"label,omitempty"`
	// Part is empty in a kept entry.
	Part  string `bson:"part"`
	Order int64  `bson:"order"`
	Mode  string `bson:"mode"`
	State string `bson:"state"`
	// Fence is the latest fence of the entry; 0 in a claim.
	Fence int64 `bson:"fence,omitempty"`
	// FirstFence is the fence with which the hold began. It names the hold.
	FirstFence int64 `bson:"first,omitempty"`
	// LeastFence is the smallest fence under which a part of the hold may still write to a fenced
	// document. It is FirstFence until another run takes the hold over.
	LeastFence int64 `bson:"least,omitempty"`
	// FirstOrder, of a kept entry, is the smallest order of the requests that entered the hold. A
	// take-over does not change it: what began after a use is not what was used.
	FirstOrder int64 `bson:"firstOrder,omitempty"`
	// HandedOver, of a kept entry, is set if its run has left it to the next run. See Verify.
	HandedOver bool `bson:"handed,omitempty"`
	// Joined, of a kept entry, is set if a later request has entered the hold, so that the first one
	// cannot take it back.
	Joined bool `bson:"joined,omitempty"`
	// Within, of a kept entry and of a claim, is the enclosing lock ID of its request.
	Within string `bson:"within,omitempty"`
	// Saga is the outermost saga of the request that made the entry.
	Saga string `bson:"saga,omitempty"`
	// Own is set in a draining part that also blocks its own lock ID: it was cut off by another run
	// of its party, or by a compensation.
	CutOff bool `bson:"own,omitempty"`
	// TTL is, in milliseconds, how long the entry lasts without being renewed; 0 has no end.
	TTL       int64     `bson:"ttl"`
	ExpiresAt time.Time `bson:"expiresAt"`
	// RenewedAt is the time of the last renewal.
	RenewedAt *time.Time `bson:"renewedAt,omitempty"`
	// Since is the time at which the request queued, and ClaimedAt the time of the grant, of a
	// request that had to wait.
	Since     *time.Time `bson:"since,omitempty"`
	ClaimedAt *time.Time `bson:"claimedAt,omitempty"`
	// After, of a request that had to wait, is the hold whose end made the grant possible.
	Predecessor *EndedHold `bson:"after,omitempty"`
	// Place, of a claim, is the time at which its place in the queue would have expired, and ClaimTTL
	// that of its waiter.
	PositionExpiresAt *time.Time `bson:"place,omitempty"`
	ClaimTTL          int64      `bson:"claimTTL,omitempty"`

	// CreatedAt is the time at which the hold began. It and the fields below are in the kept entry,
	// or in the parts of a hold that has none.
	CreatedAt *time.Time `bson:"createdAt,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner   string `bson:"owner,omitempty"`
	Host    string `bson:"host,omitempty"`
	Comment string `bson:"comment,omitempty"`
	// Limit is the semaphore limit of the request; 0 is none.
	Limit int64 `bson:"limit,omitempty"`
	// Trace is the W3C traceparent of the request that entered last.
	Trace string `bson:"trace,omitempty"`

	// Verdict is that of a tombstone, in a Result alone: see Waiter.
	Verdict string `bson:"-"`
}

// Holds reports whether the entry belongs to a hold.
func (e *Entry) Holds() bool { return e.State >= StateHolds }

// Stands reports whether the entry has not expired at now.
func (e *Entry) Alive(now time.Time) bool { return e.ExpiresAt.After(now) }

// Waiter is a queued request. It is small, because every write of the document rewrites the queue.
type Waiter struct {
	LockID string `bson:"lockId"`
	// Label, Within and Saga are those of the request.
	Label  string `bson:"label,omitempty"`
	Within string `bson:"within,omitempty"`
	Saga   string `bson:"saga,omitempty"`
	Part   string `bson:"part"`
	Order  int64  `bson:"order"`
	Mode   string `bson:"mode"`
	// Limit is the number of lock IDs that may hold when this one is granted, itself included: 1 for
	// an exclusive request, absent if there is no limit.
	Limit int64 `bson:"limit,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Started and NeverVictim are those of the request.
	Started     *time.Time `bson:"started,omitempty"`
	NeverVictim bool       `bson:"safe,omitempty"`
	// Since is the time at which it queued.
	Since time.Time `bson:"since"`
	// ExpiresAt is the time at which the waiter leaves the queue unless it is refreshed.
	ExpiresAt time.Time `bson:"expiresAt"`
	// OverdueAt, which is not after ExpiresAt, is the time from which the waiter is passed over until
	// it is heard of again. It keeps its position.
	OverdueAt time.Time `bson:"overdueAt"`
	// Verdict, of a tombstone, is the deadlock that the waiter was withdrawn for. A tombstone is
	// ahead of no waiter and is granted nothing. Every request of the part reads it, until the part
	// leaves, or until ExpiresAt; its OverdueAt is LongAgo.
	Verdict string `bson:"verdict,omitempty"`
	// Ahead is set in upgrades and in waiters that slept through a claim: they queue before all
	// waiters without it.
	Ahead bool `bson:"ahead,omitempty"`
	// ClaimTTL is the length of its next claim in milliseconds, if it slept through one: twice as
	// long as that one, up to Acquire.LongestClaim.
	ClaimTTL int64 `bson:"claimTTL,omitempty"`
	// Hold is set if the waiter is granted a kept hold at once instead of a claim.
	Hold *WaitingHold `bson:"hold,omitempty"`
}

// WaitingHold describes the kept hold that a waiter is granted at once.
type WaitingHold struct {
	ID      string `bson:"id"`
	TTL     int64  `bson:"ttl"`
	Host    string `bson:"host,omitempty"`
	Comment string `bson:"comment,omitempty"`
	Trace   string `bson:"trace,omitempty"`
	// Reacquire is that of the request: the grant drops the evidence of an earlier loss.
	Reacquire bool `bson:"reacquire,omitempty"`
}

// LongAgo is before every time of a server.
var LongAgo = time.Unix(0, 0).UTC()

// Waits reports whether the waiter is still queued at now, and is not a tombstone.
func (w *Waiter) Waits(now time.Time) bool { return w.Verdict == "" && w.ExpiresAt.After(now) }

// Overdue reports whether the waiter is passed over at now.
func (w *Waiter) Overdue(now time.Time) bool { return !w.OverdueAt.After(now) }

// Evicted is evidence that a lock ID lost its hold, or that another run replaced its run.
type Evidence struct {
	LockID string `bson:"lockId"`
	// Label is the run label of the hold.
	Label string `bson:"label,omitempty"`
	// To, of a take-over, is the label of the run that took over. Nothing was lost then.
	To string `bson:"to,omitempty"`
	// Fence is the one with which the hold began; 0 for a take-over.
	Fence  int64     `bson:"fence"`
	At     time.Time `bson:"at"`
	By     string    `bson:"by,omitempty"`
	Reason string    `bson:"reason,omitempty"`
}

// Over records that everything a lock ID's run requested up to an order has been released. A request
// of that run with such an order came too late.
type ReleaseRecord struct {
	LockID string `bson:"lockId"`
	// Label is the run label of the release; empty for a lock ID without runs.
	Label string `bson:"label,omitempty"`
	Order int64  `bson:"order"`
	// Lost is set if the release found evidence of a loss, which it has removed.
	Lost bool `bson:"lost,omitempty"`
}

// Bar refuses requests of a run that a compensation has overtaken: those of Part, or those of the
// outermost saga Saga up to an order. It also matches requests whose Within is the lock ID.
type Bar struct {
	LockID string `bson:"lockId"`
	Label  string `bson:"label,omitempty"`
	Saga   string `bson:"saga,omitempty"`
	Part   string `bson:"part,omitempty"`
	Order  int64  `bson:"order"`
}

// Ended is a hold that has ended, as a request that waited for it remembers it.
type EndedHold struct {
	LockID string `bson:"lockId"`
	// Fence is the one with which the hold began.
	Fence int64 `bson:"fence"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Trace is the W3C traceparent of the request that entered it last.
	Trace string `bson:"trace,omitempty"`
}
