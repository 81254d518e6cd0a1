package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Document is the state of one resource, as it is stored.
type Document struct {
	// ID is the name of the resource.
	ID string `bson:"_id"`
	// Version changes with every write and never repeats.
	Version Version `bson:"version"`
	// At is the server's time of the read, or of the operation that returned this document. Not stored.
	At time.Time `bson:"at,omitempty"`
	// Fence is the highest fence ever granted.
	Fence int64 `bson:"fence"`
	// LastMember is the member of a pool that was granted last, so that all members get their turn.
	LastMember string `bson:"lastMember,omitempty"`
	// Entries are the holds, claims and draining parts. A lock ID's hold is its entries in the states
	// StateRunning and StateKept. Each has the mode of its own request.
	Entries []Entry `bson:"entries"`
	// Waiters is the queue, first come first.
	Waiters []Waiter `bson:"waiters"`
	// Evidence records evictions, forced releases and take-overs. It is complete from EvidenceSince on.
	Evidence      []Evidence `bson:"evidence"`
	EvidenceSince time.Time  `bson:"evidenceSince"`
	// LastEvidence is the greatest number of a record of evidence so far. Records are numbered because
	// times can run backwards, and two losses can share a fence.
	LastEvidence int64 `bson:"lastEvidence,omitempty"`
	// Releases records, by lock ID and run, the order up to which all requests have been released.
	Releases []ReleaseRecord `bson:"releases,omitempty"`
	// Bars refuse late requests of steps that compensations undo, of lock IDs that keep nothing: see Bar.
	Bars []Bar `bson:"bars,omitempty"`
	// Forced has the last MaxForced forced releases, for people. No rule reads it.
	Forced []Evidence `bson:"forced,omitempty"`
	// Missed has the last MaxMissed losses that sagas found out only after they had committed, of the last
	// Retention, for people. No rule reads it.
	Missed []Missed `bson:"missed,omitempty"`
	// IdleAt is not before the end of any entry except claims, nor before that of any Missed, and is rounded up to IdleGrain. A TTL
	// index removes the document after Retention.
	IdleAt time.Time `bson:"idleAt"`
	// Attn lists the states of entries other than StateRunning, the modes of waiters and of new
	// claims, and AttnMissed. A partial index contains the documents in which it is not empty.
	Attn []string `bson:"attn"`
	// Reserved gives one process precedence in writing the document for a moment.
	Reserved *Reservation `bson:"reserved,omitempty"`
	// Policy applies to the resource at the time At, or nil. Not stored.
	Policy *Policy `bson:"-"`
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

// Reservation asks other processes to hold back their writes of a document, and all processes to hold
// back renewals. It is only advice: a process that ignores it does no harm, because writes compare versions.
type Reservation struct {
	// By identifies the process.
	By string `bson:"by"`
	// Until is at most LongestReservation after the reservation was made.
	Until time.Time `bson:"until"`
	// From is the server's time as the process estimates it. The reservation does not replace one that is in force then.
	From time.Time `bson:"-"`
}

// LongestReservation bounds reservations. One that ends later than this from now is ignored: the server's
// clock was set back since, and the reservation could bind others for as long.
const LongestReservation = 3 * time.Second

// Caller identifies a request: who asks, in the name of whom. Operations on one request embed its Caller, and so do the
// waiters and the entries that the request makes. Operations and records of a whole lock ID do not, because a Part in
// them would have no meaning.
type Caller struct {
	// LockID names the hold. Requests of one lock ID never block each other.
	LockID string `bson:"lockId"`
	// Run is the workflow run for which the request is made, empty outside of Temporal.
	Run string `bson:"run,omitempty"`
	// Part names the user of the hold. It is empty in a kept entry.
	Part  string `bson:"part"`
	Order int64  `bson:"order"`
	// Saga is the path of the request's saga: see Bar.
	Saga string `bson:"saga,omitempty"`
	// Within is the enclosing lock ID.
	Within string `bson:"within,omitempty"`
}

// SamePart reports whether both are requests of one part.
func (c *Caller) SamePart(o *Caller) bool { return c.LockID == o.LockID && c.Part == o.Part }

// SameRequest reports whether both are the request of one part with one order.
func (c *Caller) SameRequest(o *Caller) bool { return c.SamePart(o) && c.Order == o.Order }

// isUpTo reports whether the request is another one, or an earlier one of its part.
func (c *Caller) isUpTo(o *Caller) bool { return c.SamePart(o) && c.Order <= o.Order }

// bytes returns the length of the texts.
func (c *Caller) bytes() int {
	return len(c.LockID) + len(c.Run) + len(c.Part) + len(c.Saga) + len(c.Within)
}

// States of an entry, as they are stored. Entries in the states StateRunning and StateKept belong to a hold.
// docs/internals.md describes how each ends.
const (
	StateClaimed  = "claimed"
	StateDraining = "draining"
	StateRunning  = "running"
	StateKept     = "kept"
)

// Never is the expiry of an entry that has no end.
var Never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Entry is a running part, a kept hold, a draining part or a claim.
type Entry struct {
	// ID is the random ID of the call that made the entry. Extensions name entries by it, a repeated
	// call finds its grant by it, and a call is taken back by it. A kept entry that was made together
	// with a part has the suffix "/k", the settled kept entry of a lock ID "/s", and a draining entry
	// "/d".
	ID string `bson:"id,omitempty"`
	// Caller is the request that made the entry. The Run of a kept entry becomes that of a run that takes it over.
	Caller `bson:",inline"`
	Mode   string `bson:"mode"`
	State  string `bson:"state"`
	// Fence is the latest fence of the entry; 0 in a claim.
	Fence int64 `bson:"fence,omitempty"`
	// FirstFence is the fence with which the hold began. It names the hold.
	FirstFence int64 `bson:"firstFence,omitempty"`
	// LeastFence is the smallest fence under which a part of the hold may still write to a fenced
	// document. It is FirstFence until another run takes the hold over.
	LeastFence int64 `bson:"leastFence,omitempty"`
	// FirstOrder, of a kept entry, is the smallest order of its requests, so that Verify recognizes a
	// hold that began after its use. It is 0 if the hold was taken over from another run, whose orders are not
	// comparable: it is older than all requests of this one.
	FirstOrder int64 `bson:"firstOrder,omitempty"`
	// Regained, of a kept entry, is the number of the newest evidence of a loss that its request has
	// outlived, because it was allowed to acquire the resource again.
	Regained int64 `bson:"regained,omitempty"`
	// Bars, of a kept entry, are the bars of its lock ID. At most one kept entry of a lock ID has any.
	Bars []Bar `bson:"bars,omitempty"`
	// CutOff is set in a draining part that also blocks its own lock ID, because another run of its
	// party or a compensation has replaced it.
	CutOff bool `bson:"cutOff,omitempty"`
	// TTL is the length of a lease in milliseconds; 0 has no end.
	TTL       int64     `bson:"ttl"`
	ExpiresAt time.Time `bson:"expiresAt"`
	// RenewedAt is the time of the last renewal.
	RenewedAt *time.Time `bson:"renewedAt,omitempty"`
	// Since and ClaimedAt, of a request that had to wait, are the times at which it queued and at
	// which it was granted.
	Since     *time.Time `bson:"since,omitempty"`
	ClaimedAt *time.Time `bson:"claimedAt,omitempty"`
	// Predecessor, of a request that had to wait, is the hold whose end made the grant possible.
	Predecessor *EndedHold `bson:"predecessor,omitempty"`
	// QueuedUntil, of a claim, is the time at which its waiter would have left the queue.
	// ClaimTTL is that of the waiter.
	QueuedUntil *time.Time `bson:"queuedUntil,omitempty"`
	ClaimTTL    int64      `bson:"claimTtl,omitempty"`
	// Passed is set in a claim after whose end a write has granted something. Such a claim is not
	// confirmed, because a server whose clock is behind may consider it alive again.
	Passed bool `bson:"passed,omitempty"`

	// CreatedAt is the time at which the hold began. It and the fields below are in the kept entry,
	// or in the parts of a hold that has none.
	CreatedAt *time.Time `bson:"createdAt,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner   string `bson:"owner,omitempty"`
	Host    string `bson:"host,omitempty"`
	Comment string `bson:"comment,omitempty"`
	// Limit is the semaphore limit of the request; 0 is none.
	Limit int64 `bson:"limit,omitempty"`
	// Member is the member of a pool that the entry has.
	Member string `bson:"member,omitempty"`
	// Trace is the W3C traceparent of the latest request.
	Trace string `bson:"trace,omitempty"`

	// Verdict is set only in a Result, for a waiter that is a tombstone, and Priority for one that is not of DefaultPriority,
	// or a hold that was granted to it.
	Verdict  string `bson:"-"`
	Priority int64  `bson:"-"`
}

// Holds reports whether the entry belongs to a hold.
func (e *Entry) Holds() bool { return e.State == StateRunning || e.State == StateKept }

// Alive reports whether the entry has not expired at now.
func (e *Entry) Alive(now time.Time) bool { return e.ExpiresAt.After(now) }

// Forfeited reports whether a claim has lapsed, and its position in the queue has expired too.
func (e *Entry) Forfeited(now time.Time) bool {
	return e.State == StateClaimed && !e.ExpiresAt.After(now) && (e.QueuedUntil == nil || !e.QueuedUntil.After(now))
}

// BelongsTo reports whether the entry is a lock ID's own. A draining part that was cut off (CutOff) also
// blocks its own lock ID, so it is treated like an entry of another party.
func (e *Entry) BelongsTo(lockID string) bool { return e.LockID == lockID && !e.CutOff }

// ofPart reports whether the entry is a lock ID's own, and of the same part as a request.
func (e *Entry) ofPart(c *Caller) bool { return e.BelongsTo(c.LockID) && e.Part == c.Part }

// Waiter is a queued request. It is small, because every write of the document rewrites the queue.
type Waiter struct {
	Caller `bson:",inline"`
	Mode   string `bson:"mode"`
	// Limit is the number of lock IDs that may hold when this one is granted, itself included. It is
	// absent without a limit, and in exclusive mode.
	Limit int64 `bson:"limit,omitempty"`
	// Member is the member of a pool that the waiter must get, because its lock ID has lost it. It is absent if any one
	// will do.
	Member string `bson:"member,omitempty"`
	// Priority is 1, which is first, to 5. It is absent for DefaultPriority. Promoted is set if an operator has put the waiter
	// first.
	Priority int64 `bson:"priority,omitempty"`
	Promoted bool  `bson:"promoted,omitempty"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Started and NeverVictim are those of the request.
	Started     *time.Time `bson:"started,omitempty"`
	NeverVictim bool       `bson:"neverVictim,omitempty"`
	// Since is the time at which it queued.
	Since time.Time `bson:"since"`
	// ExpiresAt is the time at which the waiter leaves the queue unless it is refreshed.
	ExpiresAt time.Time `bson:"expiresAt"`
	// OverdueAt is the time from which the waiter is passed over until it is refreshed. It keeps its
	// position. OverdueAt is not after ExpiresAt.
	OverdueAt time.Time `bson:"overdueAt"`
	// Verdict describes the deadlock because of which the waiter was withdrawn. Such a waiter is a
	// tombstone: it is granted nothing and delays no other waiter. Every request of the part is
	// answered with the verdict until the part leaves or ExpiresAt. Its OverdueAt is LongAgo.
	Verdict string `bson:"verdict,omitempty"`
	// Ahead is set in upgrades, in waiters whose claim has lapsed, and in those with a Member. They queue ahead of all
	// others.
	Ahead bool `bson:"ahead,omitempty"`
	// ClaimTTL is the length of the next claim in milliseconds if an earlier claim has lapsed: twice as
	// long as that one, up to four times Settings.ClaimTTL.
	ClaimTTL int64 `bson:"claimTtl,omitempty"`
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
	// Reacquire is that of the request.
	Reacquire bool `bson:"reacquire,omitempty"`
}

// LongAgo is before every time of a server.
var LongAgo = time.Unix(0, 0).UTC()

// Waits reports whether the waiter is queued at now and is not a tombstone.
func (w *Waiter) Waits(now time.Time) bool { return w.Verdict == "" && w.ExpiresAt.After(now) }

// IsTombstone reports whether the waiter was withdrawn to end a deadlock, and its part has not left since.
func (w *Waiter) IsTombstone(now time.Time) bool { return w.Verdict != "" && w.ExpiresAt.After(now) }

// Overdue reports whether the waiter is passed over at now.
func (w *Waiter) Overdue(now time.Time) bool { return !w.OverdueAt.After(now) }

// Evidence records that a lock ID lost its hold, or that another run replaced its run.
type Evidence struct {
	LockID string `bson:"lockId"`
	// Run is the run of the hold.
	Run string `bson:"run,omitempty"`
	// To, of a take-over, is the run that took over. In this case nothing was lost.
	To string `bson:"to,omitempty"`
	// Fence is the fence with which the hold began; 0 for a take-over.
	Fence int64 `bson:"fence"`
	// Number is greater than those of earlier records. See Document.LastEvidence.
	Number int64 `bson:"number,omitempty"`
	// Order is the last order of what was lost. A release up to it, or a later one, erases the record.
	Order int64 `bson:"order,omitempty"`
	// Member is the member of a pool that was lost.
	Member string    `bson:"member,omitempty"`
	At     time.Time `bson:"at"`
	By     string    `bson:"by,omitempty"`
	Reason string    `bson:"reason,omitempty"`
}

// ReleaseRecord records that everything a run of a lock ID requested up to an order was released. A
// later request of that run with such an order is refused.
type ReleaseRecord struct {
	LockID string `bson:"lockId"`
	// Run is the run of the release; empty for a lock ID without runs.
	Run   string `bson:"run,omitempty"`
	Order int64  `bson:"order"`
}

// EndedHold describes a hold for whose end a request has waited.
type EndedHold struct {
	LockID string `bson:"lockId"`
	// Fence is the fence with which the hold began.
	Fence int64 `bson:"fence"`
	// Owner is absent if it is the lock ID.
	Owner string `bson:"owner,omitempty"`
	// Trace is the W3C traceparent of its latest request.
	Trace string `bson:"trace,omitempty"`
}

// Identity is the document by which a collection identifies itself.
type Identity struct {
	// ID is unique, even among collections of the same name. Epoch is random too, and changes when everything in
	// the collection is released by force. Both are in the field In of a swap.
	ID    string `bson:"id"`
	Epoch string `bson:"epoch"`
	// Replaces lists the collections that this one replaces, by the decision of an operator: their content is
	// lost. It has at most MaxReplaces.
	Replaces []Replaced `bson:"replaces,omitempty"`
	// Version is the version of the layout.
	Version int `bson:"version"`
	// PolicyVersion is that of the Policies, which a read of the identity does not contain: the store reads them when it
	// finds another version. It is zero if there never was a policy.
	PolicyVersion Version   `bson:"policyVersion,omitempty"`
	Policies      *Policies `bson:"-"`
	// At is the server's time of the read.
	At time.Time `bson:"at,omitempty"`
}

// Generation identifies a collection between two changes of its ID or epoch.
type Generation struct{ ID, Epoch string }

// Generation returns the generation of a collection with this identity.
func (i *Identity) Generation() Generation { return Generation{i.ID, i.Epoch} }

// Replaced is a collection that another one replaces. Reason records why, and who decided it.
type Replaced struct {
	ID     string `bson:"id"`
	Reason string `bson:"reason"`
}

// MaxReplaces bounds the collections that one collection replaces.
const MaxReplaces = 20

// HasReplaced reports whether the collection replaces the one with this ID. It never replaces itself.
func (i *Identity) HasReplaced(id string) bool {
	return id != i.ID && slices.ContainsFunc(i.Replaces, func(r Replaced) bool { return r.ID == id })
}

// LayoutVersion is the version of the layout that this package describes, and PolicyLayout that of a collection with policies, from
// the first one on: a build that does not know them must not decide about requests. A collection with another version is
// refused with a *LayoutError.
const (
	LayoutVersion = 5
	PolicyLayout  = 6
)

// LayoutError reports a collection that is not in the layout of this version. Nothing was written. Package lockcore
// returns it as its own LayoutError.
type LayoutError struct {
	// Collection is the name of the collection.
	Collection string
	// Found describes its content, and Help the remedy.
	Found, Help string
}

// Error names the collection, what was found, and what to do.
func (e *LayoutError) Error() string {
	return Printable(fmt.Sprintf("lockstep: the collection %q has another layout: %s. %s", e.Collection, e.Found, e.Help))
}

// Printable returns a text with an escape such as \x1b or \n in place of each character that is not printable, for messages
// that contain texts of callers. Those could otherwise control a terminal, or begin a line of their own in a log.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Bytes returns an upper bound of the size of the stored document.
func (d *Document) Bytes() int {
	const document, entry, waiter, record = 1000, 900, 500, 200 // without texts
	n := document + len(d.ID) + len(d.LastMember) + 16*len(d.Attn)
	for i := range d.Entries {
		e := &d.Entries[i]
		n += entry + len(e.ID) + e.Caller.bytes() + len(e.Member) + len(e.Owner) + len(e.Host) + len(e.Comment) + len(e.Trace)
		n += barBytes(e.Bars)
		if e.Predecessor != nil {
			n += len(e.Predecessor.LockID) + len(e.Predecessor.Owner) + len(e.Predecessor.Trace)
		}
	}
	for i := range d.Waiters {
		w := &d.Waiters[i]
		n += waiter + w.Caller.bytes() + len(w.Member) + len(w.Owner) + len(w.Verdict)
		if w.Hold != nil {
			n += record + len(w.Hold.ID) + len(w.Hold.Host) + len(w.Hold.Comment) + len(w.Hold.Trace)
		}
	}
	for _, e := range slices.Concat(d.Evidence, d.Forced) {
		n += record + len(e.LockID) + len(e.Run) + len(e.To) + len(e.Member) + len(e.By) + len(e.Reason)
	}
	for i := range d.Releases {
		n += record + len(d.Releases[i].LockID) + len(d.Releases[i].Run)
	}
	for i := range d.Missed {
		m := &d.Missed[i]
		n += record + len(m.LockID) + len(m.Run) + len(m.By) + len(m.Reason)
	}
	return n + barBytes(d.Bars)
}

func barBytes(bars []Bar) (n int) {
	const record = 200 // without texts
	for i := range bars {
		b := &bars[i]
		n += record + len(b.LockID) + len(b.Run) + len(b.Saga)
	}
	return n
}

// Clone copies a document. The copy shares no slice with it, and lists that the database stores as
// empty arrays are not nil. Values behind pointers are shared, because they are never changed.
func (d *Document) Clone() *Document {
	c := *d
	c.Entries = append([]Entry{}, d.Entries...)
	for i := range c.Entries {
		c.Entries[i].Bars = slices.Clone(c.Entries[i].Bars)
	}
	c.Waiters = append([]Waiter{}, d.Waiters...)
	c.Evidence = append([]Evidence{}, d.Evidence...)
	c.Releases = slices.Clone(d.Releases)
	c.Bars = slices.Clone(d.Bars)
	c.Forced = slices.Clone(d.Forced)
	c.Missed = slices.Clone(d.Missed)
	c.Attn = append([]string{}, d.Attn...)
	return &c
}

// Part returns the running part of a request with exactly its order, or nil.
func (d *Document) Part(c Caller) *Entry {
	return d.last(&c, func(e *Entry) bool { return e.State == StateRunning && e.Order == c.Order })
}

// Latest returns the latest running part or claim of a request's part, or nil.
func (d *Document) Latest(c Caller) *Entry {
	return d.last(&c, func(e *Entry) bool { return e.State == StateRunning || e.State == StateClaimed })
}

// Claim returns the claim of a request's part, or nil. The claim may have lapsed.
func (d *Document) Claim(c Caller) *Entry {
	if e := d.Latest(c); e != nil && e.State == StateClaimed {
		return e
	}
	return nil
}

func (d *Document) last(c *Caller, which func(*Entry) bool) *Entry {
	for i := len(d.Entries) - 1; i >= 0; i-- {
		if e := &d.Entries[i]; e.ofPart(c) && which(e) {
			return e
		}
	}
	return nil
}

// Tombstone returns the waiter of a request's part that was withdrawn to end a deadlock, or nil.
func (d *Document) Tombstone(c Caller) *Waiter {
	i := slices.IndexFunc(d.Waiters, func(w Waiter) bool { return w.SamePart(&c) && w.Verdict != "" })
	if i < 0 {
		return nil
	}
	return &d.Waiters[i]
}

// ExpiresBy reports whether an entry, a waiter or the policy expires, or a waiter becomes overdue, by at. A nil
// document has none.
func (d *Document) ExpiresBy(at time.Time) bool {
	if d == nil {
		return false
	}
	if d.Policy != nil && d.Policy.Until != nil && !d.Policy.Until.After(at) {
		return true
	}
	for i := range d.Entries {
		if e := &d.Entries[i]; !e.ExpiresAt.After(at) || (e.QueuedUntil != nil && !e.QueuedUntil.After(at)) {
			return true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; !w.ExpiresAt.After(at) || (w.Verdict == "" && !w.OverdueAt.After(at)) {
			return true
		}
	}
	return false
}

// ReservedByOther reports whether a process other than the given one has reserved the document at a time.
func (d *Document) ReservedByOther(process string, at time.Time) bool {
	return d != nil && d.Reserved != nil && d.Reserved.By != process && d.Reserved.Until.After(at) &&
		!d.Reserved.Until.After(at.Add(LongestReservation))
}
