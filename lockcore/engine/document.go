package engine

import "time"

// Document is what is stored for one resource: everything that is known of who holds it and who waits.
// Its fields are a promise: they may be added to, never renamed.
type Document struct {
	// ID is the resource.
	ID string `bson:"_id"`
	// Seq counts the writes. It makes every answer a write.
	Seq int64 `bson:"seq"`
	// At is the database server's time of the last write. What is left of a promise is its expiry
	// less At; At is never used to order anything, since it can run backwards between writes.
	At time.Time `bson:"at"`
	// Fence is the highest fence that was given.
	Fence int64 `bson:"fence"`
	// Held is everything that stands in somebody's way: who holds, who drains, and who was granted a claim.
	Held []Entry `bson:"held"`
	// Waiters is the queue, first come first.
	Waiters []Waiter `bson:"waiters"`
	// Evicted remembers, a few at a time, who was displaced after its promise had ended, released by force, or
	// taken out of the queue.
	Evicted []Evicted `bson:"evicted"`
	// Undone are the parts that compensations undo, for some minutes.
	Undone []Undone `bson:"undone,omitempty"`
	// Commits are releases by runs, of all that their parties had up to an order, for some minutes.
	Commits []Commit `bson:"commits,omitempty"`
	// EvidenceSince is from when on Evicted is complete. That it says nothing of a hold proves that the
	// hold was not lost, if it began after that.
	EvidenceSince time.Time `bson:"since"`
	// Released remembers, a few at a time, what has ended, so that a request that arrives late changes
	// nothing.
	Released []Released `bson:"released"`
	// Last is what the last write did, for its caller to read in the answer.
	Last Last `bson:"last"`
	// IdleAt is when the last promise in the document ends, but for claims just made, rounded up. A TTL index removes the document
	// a retention time later.
	IdleAt time.Time `bson:"idleAt"`
	// Attn is what stands in the document beside plain holds, in no order: states of entries other
	// than Part, and modes of those who wait or were granted a claim by the last write. It is empty
	// for most documents, and an index has the others. What the last write ended in passing may
	// still be in it.
	Attn []string `bson:"attn"`
}

// States of an entry. Those that come before stateHolds in the alphabet go when they expire, and the others
// stay until an incompatible grant needs their room: an owner that comes back before that was alone all the time.
const (
	// Claimed is a waiter to whom the resource was granted, and who has not confirmed it yet. One that slept
	// through its claim is passed over; when it is heard of again it is the first in the queue, and its next claim stands
	// twice as long.
	Claimed = "claimed"
	// Draining is a part that was superseded, or whose hold was released by somebody else: it is
	// not renewed any more, and keeps others than its own lock ID out as long as it may trust.
	Draining = "draining"
	// Part is a running user of a hold: only a part trusts the lock at this moment.
	Part = "held"
	// Kept is a hold that stands without parts too, between the steps of a saga.
	Kept = "kept"

	// StateHolds divides the states: what is not less belongs to a hold.
	StateHolds = "h"
)

// Never is the expiry of what has no end.
var Never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Entry is one party's foothold on a resource. A lock ID's hold is its entries in the states Part and
// Kept, which have the same mode. Two entries are compatible if they have the same lock ID or modes that go
// together.
type Entry struct {
	LockID string `bson:"lockId"`
	// Label is the run label that the entry was made under, empty outside of Temporal.
	Label string `bson:"label,omitempty"`
	// Part is null in a kept entry.
	Part  string `bson:"part"`
	Order int64  `bson:"order"`
	Mode  string `bson:"mode"`
	State string `bson:"state"`
	// Fence is the one that this entry was last given; a claim has none yet.
	Fence int64 `bson:"fence,omitempty"`
	// FirstFence is the one with which the entry's hold began: it names the hold, also after its part was cut off.
	FirstFence int64 `bson:"first,omitempty"`
	// FirstOrder, of a kept entry, is the order of the request that made it, and 0 once another run has taken it over.
	FirstOrder int64 `bson:"firstOrder,omitempty"`
	// Joined, of a kept entry, says that a later request has entered the hold since it was kept, so that the first request
	// cannot take it back.
	Joined bool `bson:"joined,omitempty"`
	// TTL is, in milliseconds, how long the entry stands without a sign of life; 0 is without end.
	TTL       int64     `bson:"ttl,omitempty"`
	ExpiresAt time.Time `bson:"expiresAt"`
	// RenewedAt is when it was last renewed.
	RenewedAt *time.Time `bson:"renewedAt,omitempty"`
	// Since is when the request queued, where it had to wait, and ClaimedAt when it was granted then.
	Since     *time.Time `bson:"since,omitempty"`
	ClaimedAt *time.Time `bson:"claimedAt,omitempty"`
	// After, of a request that had to wait, is the hold whose end let it in; absent where no hold's end did. It is taken from
	// what the write that made the claim ended: the first entry that tells of a hold, or drained for one, among those that
	// were released, then among those that left or were downgraded, then among those that had expired.
	After *Ended `bson:"after,omitempty"`
	// Place is, of a claim, when its place in the queue would have been given up.
	Place *time.Time `bson:"place,omitempty"`
	// ClaimTTL, of a claim, is the ClaimTTL of the waiter that it was made for.
	ClaimTTL int64 `bson:"claimTTL,omitempty"`

	// What is told of a hold stands in its Kept entry, or in the parts that need none. Such an entry has
	// CreatedAt, which is when it began.
	CreatedAt *time.Time `bson:"createdAt,omitempty"`
	// Owner is absent where it is the lock ID.
	Owner   string `bson:"owner,omitempty"`
	Host    string `bson:"host,omitempty"`
	Comment string `bson:"comment,omitempty"`
	// Limit is the semaphore limit that the grant was asked with; 0 is none.
	Limit int64 `bson:"limit,omitempty"`
	// Trace is the W3C traceparent of whoever entered last.
	Trace string `bson:"trace,omitempty"`
}

// Holds tells whether the entry belongs to a hold.
func (e *Entry) Holds() bool { return e.State >= StateHolds }

// Waiter is a queued request. It is small, since every write of the document rewrites the queue.
type Waiter struct {
	LockID string `bson:"lockId"`
	// Label and Within are the request's.
	Label  string `bson:"label,omitempty"`
	Within string `bson:"within,omitempty"`
	Part   string `bson:"part"`
	Order  int64  `bson:"order"`
	Mode   string `bson:"mode"`
	// Limit is how many lock IDs may hold when this one is granted, itself included: 1 for an exclusive request,
	// absent where there is none.
	Limit int64 `bson:"limit,omitempty"`
	// Owner is absent where it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Started is when the owner began, where that was told, and Safe says that it must not be the
	// victim of a deadlock.
	Started *time.Time `bson:"started,omitempty"`
	Safe    bool       `bson:"safe,omitempty"`
	// Since is when it queued.
	Since time.Time `bson:"since"`
	// ExpiresAt is when the place is given up unless it is refreshed.
	ExpiresAt time.Time `bson:"expiresAt"`
	// OverdueAt is when the waiter is passed over, until it is heard of again. It keeps its place
	// meanwhile. It is not after ExpiresAt.
	OverdueAt time.Time `bson:"overdueAt"`
	// Verdict, of a tombstone, is the deadlock that the waiter was taken out of the queue for. A
	// tombstone is ahead of no waiter and gets no claim. Every request of the part reads it, until
	// the part leaves, or until ExpiresAt; its OverdueAt is LongAgo.
	Verdict string `bson:"verdict,omitempty"`
	// Ahead says that the waiter queues before all that do not say so: it upgrades its hold, or it
	// slept through its claim.
	Ahead bool `bson:"ahead,omitempty"`
	// ClaimTTL is how many milliseconds its next claim stands, where that is longer than Policy.ClaimTTL. Whoever comes
	// back and finds that its claim has lapsed waits for a claim that stands twice as long, up to
	// Acquire.LongestClaim. It is absent where no claim was slept through.
	ClaimTTL int64 `bson:"claimTTL,omitempty"`
}

// LongAgo is before every time of a server.
var LongAgo = time.Unix(0, 0).UTC()

// Waits reports whether the waiter has a place in the queue at now: its place stands, and it is no
// tombstone.
func (w *Waiter) Waits(now time.Time) bool { return w.Verdict == "" && w.ExpiresAt.After(now) }

// Overdue reports whether the waiter is passed over at now, since it was not heard of when it had
// said.
func (w *Waiter) Overdue(now time.Time) bool { return !w.OverdueAt.After(now) }

// Evicted is evidence: it says that a lock ID lost its hold, and to whom or why; or that another run speaks for its party.
type Evicted struct {
	LockID string `bson:"lockId"`
	// Label is the run label that the hold had.
	Label string `bson:"label,omitempty"`
	// To, of a change of run, is the label that replaced it. Nothing was lost then.
	To string `bson:"to,omitempty"`
	// Fence is the one with which the hold began; 0 of a change of run.
	Fence int64 `bson:"fence"`
	// At is when that was.
	At     time.Time `bson:"at"`
	By     string    `bson:"by,omitempty"`
	Reason string    `bson:"reason,omitempty"`
}

// Released says that everything a lock ID, or one of its parts, asked for up to an order has ended.
type Released struct {
	LockID string `bson:"lockId"`
	// Label is the run's that ended it. A release of the whole lock ID is over for the requests of that run only.
	Label string `bson:"label,omitempty"`
	// Part is null where the whole lock ID was released.
	Part  *string `bson:"part"`
	Order int64   `bson:"order"`
	// Lost, of a release of the whole lock ID, says that there was evidence of a loss then. The release has ended that.
	Lost bool `bson:"lost,omitempty"`
	// Reason is why, where somebody else did it.
	Reason string `bson:"reason,omitempty"`
}

// Commit says that a run has released all that its party had up to an order. A repetition of that release knows by it that it
// is one, also after many others.
type Commit struct {
	LockID string    `bson:"lockId"`
	Label  string    `bson:"label"`
	Order  int64     `bson:"order"`
	At     time.Time `bson:"at"`
}

// Ended is a hold that has ended, as those who waited for it remember it.
type Ended struct {
	LockID string `bson:"lockId"`
	// Fence is the one with which the hold began.
	Fence int64 `bson:"fence"`
	// Owner is absent where it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Trace is the W3C traceparent of whoever entered it last.
	Trace string `bson:"trace,omitempty"`
}

// Last is what the last write did.
type Last struct {
	// Outcome is what became of the request that this write was for.
	Outcome Outcome `bson:"outcome"`
	// Released and Expired are the entries of holds that this write ended, several where a hold had
	// several, or a kept hold parts: those with CreatedAt tell of it.
	Released []Entry `bson:"released"`
	Expired  []Entry `bson:"expired"`
	// Gone are the places in the queue, and the claims, that this write's own request gave up: by a leave, a release or a
	// withdrawal. Places that nobody had refreshed in time are not told, nor claims whose place had ended so.
	Gone []Gone `bson:"gone"`
	// Position is the place in the queue of the request that this write was for, from 1; 0 without one.
	Position int64 `bson:"position"`
	// Length is how many wait.
	Length int64 `bson:"length"`
	// Note, of the outcome Deadlock, is what the waiter's tombstone said, and of OtherRun the other run's label.
	Note string `bson:"note,omitempty"`
}

// Gone is a place in the queue, or a claim, that was given up.
type Gone struct {
	LockID string `bson:"lockId"`
	Part   string `bson:"part"`
	Order  int64  `bson:"order"`
	Mode   string `bson:"mode"`
	Owner  string `bson:"owner,omitempty"`
	// Limit is the request's, as it stood in the queue.
	Limit int64 `bson:"limit,omitempty"`
	// Since is when it queued, and ClaimedAt when it was granted, where it was a claim; After is the claim's.
	Since     time.Time  `bson:"since"`
	ClaimedAt *time.Time `bson:"claimedAt,omitempty"`
	After     *Ended     `bson:"after,omitempty"`
}

// Outcome is what became of a request, as it is stored.
type Outcome string

// The outcomes. Acquire has all of them. Renew and Withdraw are granted or lost; Leave and Release
// are always granted.
const (
	// Granted: a new hold, or an upgrade; the part stands, and may trust until its expiry.
	Granted Outcome = "granted"
	// Joined: the lock ID held already, and the part stands.
	Joined Outcome = "joined"
	// Again: the request was granted before, and its part stands.
	Again Outcome = "again"
	// Queued: a place in the queue stands.
	Queued Outcome = "queued"
	// Busy: others are in the way, and there is no place in the queue.
	Busy Outcome = "busy"
	// Full: others are in the way, and the queue has no room.
	Full Outcome = "full"
	// Lost: the lock ID held before and does not any more.
	Lost Outcome = "lost"
	// Late: the request came later than [CommandTimeout] after it was issued. Nothing changed.
	Late Outcome = "late"
	// Overtaken: a later request of the same part, or a release, came first.
	Overtaken Outcome = "overtaken"
	// Deadlock: the part waited, and was taken out of the queue to end a deadlock. It is told once;
	// the same request again is overtaken by a record that gives the verdict as its reason.
	Deadlock Outcome = "deadlock"
)
