package rules

import (
	"slices"
	"time"
)

// Outcome is the answer to an operation.
type Outcome string

// The outcomes. Acquire has all of them. Renew, Withdraw, Verify and a Release of what was used are
// granted or lost; Leave, Settle and other releases are always granted; Raise is granted or busy.
const (
	// Granted: a new hold, or an upgrade; the part may trust it until its expiry.
	Granted Outcome = "granted"
	// Joined: the lock ID held already, and the part may trust the hold until its expiry.
	Joined Outcome = "joined"
	// Again: the same call was granted before.
	Again Outcome = "again"
	// Queued: the request is in the queue.
	Queued Outcome = "queued"
	// Busy: others are in the way, and the request is not in the queue.
	Busy Outcome = "busy"
	// Full: others are in the way, and the queue has no room.
	Full Outcome = "full"
	// Lost: the lock ID held before and does not any longer.
	Lost Outcome = "lost"
	// Superseded: a later request of the same part, or a release, came first.
	Superseded Outcome = "overtaken"
	// Deadlock: the request waited, and was taken out of the queue to end a deadlock. The outcome
	// stays until the part leaves.
	Deadlock Outcome = "deadlock"
	// OtherRun: the party is represented by another run, or was taken over by one, and nothing
	// changed. Result.Note is its label. This is the answer if another run's hold exists, or anything
	// of it is alive, unless TakeOver permits replacing it. Then kept holds continue under the new
	// label and a new fence, running parts are cut off, and queued requests and claims end. A lock ID
	// that is used with labels must never be used without.
	OtherRun Outcome = "other run"
)

// Result is what an operation tells its caller.
type Result struct {
	Outcome Outcome
	// Ended are the entries and the waiters that the operation itself ended, as they were. A waiter
	// has no State.
	Ended []Entry
	// Expired are the entries of holds that were evicted, because their room was given away.
	Expired []Entry
	// Holds are the kept entries that the operation granted to waiters without a claim, each with the
	// part of its waiter.
	Holds []Entry
	// Position is the request's position in the queue, from 1; 0 if it is not queued.
	Position int64
	// Length is the number of waiters.
	Length int64
	// ReadOnly is set if the answer does not depend on a write, and needs none if the document was
	// read for this call: others are in the way, or another run is. A later read corrects it if it was
	// stale. Every other answer follows an acknowledged write.
	ReadOnly bool
	// Note is the tombstone's verdict, of Deadlock, and the other run's label, of OtherRun.
	Note string
}

// Released returns the entries of holds that the operation itself ended.
func (r *Result) Released() []Entry {
	return r.ended(func(e *Entry) bool { return e.Holds() })
}

// Withdrawn returns the waiters and the claims that the operation itself ended before their time.
func (r *Result) Withdrawn(at time.Time) []Entry {
	return r.ended(func(e *Entry) bool {
		return (e.State == "" || e.State == StateClaimed) && e.Verdict == "" && (e.Alive(at) || (e.PositionExpiresAt != nil && e.PositionExpiresAt.After(at)))
	})
}

func (r *Result) ended(which func(*Entry) bool) []Entry {
	return slices.DeleteFunc(slices.Clone(r.Ended), func(e Entry) bool { return !which(&e) })
}
