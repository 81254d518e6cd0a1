package engine

import (
	"slices"
	"time"
)

// Document is what is stored for one resource.
type Document struct {
	// ID is the resource.
	ID string `bson:"_id"`
	// Seq counts the writes. It makes every answer a write.
	Seq int64 `bson:"seq"`
	// At is the database server's time of the last write. It can run backwards between writes, so it
	// orders nothing.
	At time.Time `bson:"at"`
	// Fence is the highest fence that was given.
	Fence int64 `bson:"fence"`
	// Entries are who holds, who drains, and who was granted a claim.
	Entries []Entry `bson:"held"`
	// Waiters is the queue, first come first.
	Waiters []Waiter `bson:"waiters"`
	// Evicted is evidence of what became of holds, and complete from EvidenceSince on.
	Evicted       []Evicted `bson:"evicted"`
	EvidenceSince time.Time `bson:"since"`
	// Undone are the parts that compensations undo: the last of them.
	Undone []Undone `bson:"undone,omitempty"`
	// Commits are releases by runs, of all that their parties had up to an order: the last of them.
	Commits []Commit `bson:"commits,omitempty"`
	// Released remembers what has ended, so that a request that arrives late changes nothing.
	Released []Released `bson:"released"`
	// Last is what the last write did, for its caller to read in the answer.
	Last Last `bson:"last"`
	// IdleAt is when the last promise in the document ends, but for claims just made, rounded up. A
	// TTL index removes the document a retention time later.
	IdleAt time.Time `bson:"idleAt"`
	// Attn is what stands in the document beside plain holds: states of entries other than Part, and
	// modes of waiters and new claims. A partial index has the documents in which it is not empty.
	Attn []string `bson:"attn"`
}

// States of an entry. docs/internals.md says what they mean, and what becomes of each when it has
// expired. What is not less than StateHolds belongs to a hold.
const (
	StateClaimed  = "claimed"
	StateDraining = "draining"
	StateRunning  = "held"
	StateKept     = "kept"
	StateHolds    = "h"
)

// Never is the expiry of what has no end.
var Never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Entry is what is stored of a holder, a draining part or a claim. A lock ID's hold is its entries
// in the states Part and Kept, which have the same mode.
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
	// FirstFence is the one with which the entry's hold began: it names the hold.
	FirstFence int64 `bson:"first,omitempty"`
	// FirstOrder, of a kept entry, is the least of the requests that entered it. A run that takes the
	// hold over leaves it: a run that was reset has the numbers of its history in common with the one
	// before, and what began after a use is not what was used.
	FirstOrder int64 `bson:"firstOrder,omitempty"`
	// HandedOver, of a kept entry, says that its run has left it to the next one: see Acquire.HandOver.
	HandedOver bool `bson:"handed,omitempty"`
	// Joined, of a kept entry, says that a later request has entered the hold, so that the first one
	// cannot take it back.
	Joined bool `bson:"joined,omitempty"`
	// Within, of a kept entry and of a claim, is the lock ID that its own lives within.
	Within string `bson:"within,omitempty"`
	// TTL is, in milliseconds, how long the entry stands without a sign of life; 0 is without end.
	TTL       int64     `bson:"ttl"`
	ExpiresAt time.Time `bson:"expiresAt"`
	// RenewedAt is when it was last renewed.
	RenewedAt *time.Time `bson:"renewedAt,omitempty"`
	// Since is when the request queued, if it had to wait, and ClaimedAt when it was granted then.
	Since     *time.Time `bson:"since,omitempty"`
	ClaimedAt *time.Time `bson:"claimedAt,omitempty"`
	// After, of a request that had to wait, is the hold whose end let it in, if one did: the first
	// that the write which made the claim released, then ended otherwise, then displaced.
	After *Ended `bson:"after,omitempty"`
	// Place is, of a claim, when its place in the queue would have been given up, and ClaimTTL that of
	// its waiter.
	Place    *time.Time `bson:"place,omitempty"`
	ClaimTTL int64      `bson:"claimTTL,omitempty"`

	// CreatedAt is when the hold began. It and what follows stand in the Kept entry, or in the parts
	// of a hold that has none.
	CreatedAt *time.Time `bson:"createdAt,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner   string `bson:"owner,omitempty"`
	Host    string `bson:"host,omitempty"`
	Comment string `bson:"comment,omitempty"`
	// Verdict is that of a tombstone: see Waiter. Entries of Last.Ended alone have one.
	Verdict string `bson:"verdict,omitempty"`
	// Limit is the semaphore limit that the grant was asked with; 0 is none.
	Limit int64 `bson:"limit,omitempty"`
	// Trace is the W3C traceparent of the request that entered last.
	Trace string `bson:"trace,omitempty"`
}

// Holds reports whether the entry belongs to a hold.
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
	// Limit is how many lock IDs may hold when this one is granted, itself included: 1 for an
	// exclusive request, absent if there is no limit.
	Limit int64 `bson:"limit,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Started and NeverVictim are the request's.
	Started     *time.Time `bson:"started,omitempty"`
	NeverVictim bool       `bson:"safe,omitempty"`
	// Since is when it queued.
	Since time.Time `bson:"since"`
	// ExpiresAt is when the place is given up unless it is refreshed.
	ExpiresAt time.Time `bson:"expiresAt"`
	// OverdueAt, which is not after ExpiresAt, is when the waiter is passed over, until it is heard of
	// again. It keeps its place meanwhile.
	OverdueAt time.Time `bson:"overdueAt"`
	// Verdict, of a tombstone, is the deadlock that the waiter was taken out of the queue for. A
	// tombstone is ahead of no waiter and gets no claim. Every request of the part reads it, until the
	// part leaves, or until ExpiresAt; its OverdueAt is LongAgo.
	Verdict string `bson:"verdict,omitempty"`
	// Ahead says that the waiter queues before all that do not say so.
	Ahead bool `bson:"ahead,omitempty"`
	// ClaimTTL is how many milliseconds its next claim stands, if it slept through one: twice as long
	// as that, up to Acquire.LongestClaim.
	ClaimTTL int64 `bson:"claimTTL,omitempty"`
}

// LongAgo is before every time of a server.
var LongAgo = time.Unix(0, 0).UTC()

// Waits reports whether the waiter's place stands at now, and it is no tombstone.
func (w *Waiter) Waits(now time.Time) bool { return w.Verdict == "" && w.ExpiresAt.After(now) }

// Overdue reports whether the waiter is passed over at now.
func (w *Waiter) Overdue(now time.Time) bool { return !w.OverdueAt.After(now) }

// Evicted is evidence that a lock ID lost its hold, or that another run speaks for its party.
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
	// Label is the run's that ended it, and whose requests are over by a release of the whole lock ID.
	Label string `bson:"label,omitempty"`
	// Part is null if the whole lock ID was released.
	Part  *string `bson:"part"`
	Order int64   `bson:"order"`
	// Lost, of a release of the whole lock ID, says that there was evidence of a loss then, which the
	// release has ended.
	Lost bool `bson:"lost,omitempty"`
	// Reason is why, if another than the holder did it.
	Reason string `bson:"reason,omitempty"`
}

// Commit says that a run has released all that its party had up to an order. A repetition of that
// release knows by it that it is one, also after many others.
type Commit struct {
	LockID string `bson:"lockId"`
	Label  string `bson:"label"`
	Order  int64  `bson:"order"`
}

// Ended is a hold that has ended, as a request that waited for it remembers it.
type Ended struct {
	LockID string `bson:"lockId"`
	// Fence is the one with which the hold began.
	Fence int64 `bson:"fence"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Trace is the W3C traceparent of the request that entered it last.
	Trace string `bson:"trace,omitempty"`
}

// Last is what the last write did.
type Last struct {
	// Outcome is what became of the request that this write was for.
	Outcome Outcome `bson:"outcome"`
	// Ended are the entries and the places that this write's own request ended, as they stood. A
	// place has no State.
	Ended []Entry `bson:"ended"`
	// Expired are the entries of holds whose room this write gave away.
	Expired []Entry `bson:"expired"`
	// Position is the request's place in the queue, from 1; 0 without one.
	Position int64 `bson:"position"`
	// Evidence says, to a request, that some evidence is about its lock ID, or its run.
	Evidence bool `bson:"evidence,omitempty"`
	// Length is how many wait.
	Length int64 `bson:"length"`
	// Note is the tombstone's verdict, of Deadlock, and the other run's label, of OtherRun.
	Note string `bson:"note,omitempty"`
}

// Released are the entries of holds that the write's own request ended.
func (l *Last) Released() []Entry {
	return l.ended(func(e *Entry) bool { return e.Holds() })
}

// Gone are the places in the queue and the claims that the write's own request gave up, and that
// had not ended by then.
func (l *Last) Gone(at time.Time) []Entry {
	return l.ended(func(e *Entry) bool {
		return (e.State == "" || e.State == StateClaimed) && e.Verdict == "" && (e.Stands(at) || (e.Place != nil && e.Place.After(at)))
	})
}

func (l *Last) ended(which func(*Entry) bool) []Entry {
	return slices.DeleteFunc(slices.Clone(l.Ended), func(e Entry) bool { return !which(&e) })
}

// Outcome is what became of a request, as it is stored.
type Outcome string

// The outcomes. Acquire has all of them. Renew, Withdraw and a Release of what was used are granted
// or lost; Leave and other releases are always granted.
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
	// Superseded: a later request of the same part, or a release, came first.
	Superseded Outcome = "overtaken"
	// Deadlock: the part waited, and was taken out of the queue to end a deadlock. It is told once;
	// the same request again is overtaken by a record with the verdict as its reason.
	Deadlock Outcome = "deadlock"
)
