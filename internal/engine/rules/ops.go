package rules

import (
	"math"
	"time"
)

// Modes, as they are stored.
const (
	Exclusive = "X"
	Shared    = "S"
	// Pool is that of requests for one member of a pool.
	Pool = "P"
)

// Bounds of the lists in a document, and of the waiters that one write grants. A write keeps at most
// MaxEvidence records that it finds, and adds its own.
const (
	MaxEvidence = 64
	MaxReleases = 64
	MaxBars     = 64
	// MaxHoldBars bounds the bars of one hold.
	MaxHoldBars = 16
	MaxForced   = 5
	MaxMissed   = 16
	SettleMost  = 64
)

// LastPlain is the greatest order of plain requests, which are requests without an order of their own.
const LastPlain = math.MaxUint32

// Sizes of a document from which requests are answered with Full: MaxBytes for requests that neither
// hold nor wait, MaxBytesOfHolders for requests of lock IDs that hold. MongoDB stores documents of up
// to 16 MB. A larger document could no longer be written, and no holder could leave.
const (
	MaxBytes          = 12 << 20
	MaxBytesOfHolders = 14 << 20
)

// IdleGrain is the unit to which IdleAt is rounded up, so that most writes do not change its index.
const IdleGrain = time.Hour

// EndlessTTL is the TTL with which a lease without an end is renewed, trusted and drained.
const EndlessTTL = 30 * time.Second

// Crowd is the number of lock IDs on a resource above which a grant evicts all expired holds, even if
// their room is not needed, so that documents stay small.
const Crowd = 256

// Op is an operation on one document. It does not change the document that it is given.
type Op interface {
	// Apply returns the document after the operation, and the answer for the caller. now is the
	// server's time. A nil document does not exist. If the result is ReadOnly, the operation has only
	// settled the document.
	Apply(d *Document, now time.Time, settings Settings) (*Document, Result)
	// ResourceName returns the name of the resource.
	ResourceName() string
}

// Retention is the time for which the document of an idle resource is kept. The evidence of a new document
// is complete for that time. It is a constant, because processes with different values could miss a loss.
const Retention = 24 * time.Hour

// Settings are what an operation needs to know besides the document. All times are in milliseconds.
type Settings struct {
	// ClaimTTL is the time within which a claim must be confirmed, unless Waiter.ClaimTTL is longer.
	ClaimTTL int64
	// Policies are those of the collection, as the process knows them.
	Policies *Policies
}

// Query selects documents to list. Conditions are combined, and an empty field is ignored. A
// store may list more documents than the query selects.
type Query struct {
	// Resource is a name, and Prefix the beginning of names.
	Resource, Prefix string
	// LockID, LockIDPrefix and Owner select documents in which such a party holds or waits.
	LockID, LockIDPrefix, Owner string
	// Waiting selects documents with a queue. Contended selects documents with more than plain holds.
	Waiting, Contended bool
}

// Outcome is the answer to an operation.
type Outcome string

// The outcomes. Acquire has all of them. Renew is granted, lost or superseded; Withdraw is granted or
// lost; Verify is granted, lost or of another run; Raise is granted, busy or of another run. All other
// operations are always granted.
const (
	// Granted: a new hold or an upgrade. The part may trust it until it expires.
	Granted Outcome = "granted"
	// Joined: the lock ID held already. The part may trust the hold until it expires.
	Joined Outcome = "joined"
	// Again: the same call was granted before.
	Again Outcome = "again"
	// Queued: the request is in the queue.
	Queued Outcome = "queued"
	// Busy: the resource is not available, and the request is not in the queue.
	Busy Outcome = "busy"
	// Full: the resource is not available, and the queue has no room.
	Full Outcome = "full"
	// Unreadable: a policy that cannot be decoded decides about the request, and it is not in the queue.
	Unreadable Outcome = "unreadable"
	// NoPool: the request is for a member of a pool, and the resource is none.
	NoPool Outcome = "no pool"
	// OnlyPool: the resource is a pool, and the request is not for a member of it.
	OnlyPool Outcome = "only pool"
	// Lost: the lock ID held before, and does not any longer.
	Lost Outcome = "lost"
	// Superseded: a release or a later request of the same part came first.
	Superseded Outcome = "superseded"
	// Deadlock: the request was withdrawn from the queue to end a deadlock. The outcome is repeated
	// until the part leaves.
	Deadlock Outcome = "deadlock"
	// OtherRun: another run represents the party, or has taken it over, and nothing changed.
	// Result.Note is that run. This is the outcome if a hold of another run exists, or an entry or a
	// waiter of it is alive, unless TakeOver permits replacing that run. In that case kept holds
	// continue under the new run and a new fence, running parts are cut off, and waiters and claims
	// end. A lock ID that is used with runs must never be used without.
	OtherRun Outcome = "other run"
)

// Result is the answer to an operation.
type Result struct {
	Outcome Outcome
	// Ended contains the entries and the waiters that the operation ended, in their last state. Waiters
	// have no State.
	Ended []Entry
	// Expired contains the evicted entries of holds whose room was given away.
	Expired []Entry
	// Holds contains the kept entries that were granted to waiters without a claim, each with the part
	// of its waiter.
	Holds []Entry
	// Position is the request's position in the queue, from 1; 0 if it is not queued.
	Position int64
	// Length is the number of waiters.
	Length int64
	// ReadOnly is set if the answer needs no write when the document was read for this call: the
	// resource is busy, or another run represents the party. If the read was stale, a later one corrects
	// it. Every other answer must follow an acknowledged write.
	ReadOnly bool
	// Note is the verdict for Deadlock, and the other run for OtherRun.
	Note string
}
