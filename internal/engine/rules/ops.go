package rules

import (
	"math"
	"slices"
	"time"
)

// Modes, as they are stored.
const (
	Exclusive = "X"
	Shared    = "S"
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
	Apply(d *Document, now time.Time) (*Document, Result)
	// ResourceName returns the name of the resource.
	ResourceName() string
}

// Retention is the time for which the document of an idle resource is kept. The evidence of a new document
// is complete for that time. It is a constant, because processes with different values could miss a loss.
const Retention = 24 * time.Hour

// Policy configures how operations settle a document. All times are in milliseconds.
type Policy struct {
	// ClaimTTL is the time within which a claim must be confirmed, unless Waiter.ClaimTTL is longer.
	ClaimTTL int64
}

// Acquire requests the resource. All times are in milliseconds; a TTL of 0 has no end.
type Acquire struct {
	Policy
	Resource string
	// Call is the random ID of the call. An operation that is repeated with the same ID gets the same
	// answer. Another call with the same part and order is superseded.
	Call string
	Caller
	// TakeOver is a run that the request's run may replace, even if that run's hold has expired.
	TakeOver     string
	Mode         string
	Limit        int64
	TTL, HoldTTL int64
	// Keep keeps the hold for HoldTTL after its last part. HoldOnly, with Keep, requests the hold
	// without a part; a waiter is then granted the hold at once, without a claim.
	Keep, HoldOnly bool
	// HeldSince, unless it is 0, is an order of the same run by which the lock ID must have kept the
	// resource, and since: otherwise it is lost. Reacquire permits the request to acquire again what was
	// lost. NewFence draws a new fence even if the request joins. Queue queues the request if it is busy,
	// or refreshes its position in the queue.
	HeldSince                  int64
	Reacquire, NewFence, Queue bool
	// LostSince is as in Verify: from this time on, losses of any run of the lock ID count like its own.
	LostSince time.Time
	// Queued is set if the request has queued before. If it is then neither queued nor granted, another
	// operation has ended it, and it is superseded.
	Queued bool
	// Upgrades is the ID of the part's shared entry, which has the same order. The request adds an
	// exclusive entry to the part. If the shared one is missing, it is lost.
	Upgrades string
	// Refresh refreshes the position in the queue without granting anything to the request. A lapsed
	// claim becomes a waiter at the head again. If there is neither a waiter nor a lapsed claim, or
	// without Queue, the outcome is Busy.
	Refresh   bool
	WaiterTTL int64
	// NextRefresh is the time until the waiter's next refresh. After twice that time the waiter is
	// overdue, and passed over until its next refresh. Defaults to half of WaiterTTL.
	NextRefresh                 int64
	MaxWaiters                  int64
	Owner, Host, Comment, Trace string
	// Started and NeverVictim are stored in the queue, where the choice of a deadlock's victim reads
	// them. Started may be zero.
	Started     time.Time
	NeverVictim bool
}

// OverdueAfter returns the time after which the waiter is overdue unless it is refreshed.
func (op *Acquire) OverdueAfter() int64 {
	if op.NextRefresh == 0 {
		return op.WaiterTTL
	}
	return min(2*op.NextRefresh, op.WaiterTTL)
}

// LongestClaim returns the bound to which claims grow after earlier ones have lapsed.
func (op *Acquire) LongestClaim() int64 { return 4 * op.ClaimTTL }

// Renew extends a part by its TTL, and its kept hold.
type Renew struct {
	Policy
	Resource string
	Caller
	// Downgrade makes the part shared, and what its lock ID keeps if no other part is running.
	Downgrade bool
	// TTL, unless 0, is the part's new TTL from now on, even if the part then ends sooner. It is for
	// parts whose lease nothing trusts. A part that has expired is not renewed: it is superseded.
	TTL int64
}

// Leave ends a part, its claim, and its waiters up to an order. A hold that is not kept ends with its last
// part.
type Leave struct {
	Policy
	Resource string
	// Caller is that of the request. If its Run is set, the leave also ends entries of the part that were cut off.
	Caller
	// QueueOnly ends waiters and claims, but no running part.
	QueueOnly bool
	// Keep lets what a step within another lock ID keeps end HoldTTL from now. Requests that wait for other
	// resources set it. Otherwise it ends with the part.
	Keep    bool
	HoldTTL int64
}

// TakeBack undoes an Acquire, and nothing else: it ends what the call with the ID Call was granted, and its
// claim and waiter, which are those of exactly this part and order. Fences stay.
type TakeBack struct {
	Policy
	Resource string
	Caller
	Call string
}

// Release ends the hold of a lock ID that FirstFence names; or, if FirstFence is 0, everything up to
// an order, including claims and queued requests.
type Release struct {
	Policy
	Resource, LockID string
	// Run, unless it is empty, restricts the release to entries of that run. It must be empty with Force,
	// which also ends parts of the hold that were cut off.
	Run string
	// FirstFence is the fence with which the hold began. Draining entries match too.
	FirstFence int64
	// Order is the greatest order that ends. With FirstFence it is only the order of the part Leaving.
	Order int64
	// Leaving names a part whose request with exactly this order is known to have stopped, so that it
	// need not drain. May be nil.
	Leaving *string
	// Committed, without FirstFence and with Run, states that the saga that used the resource has committed
	// without asking whether it still held it. If there is evidence that it had lost it, that is recorded as
	// Missed.
	Committed bool
	// Force, with FirstFence, leaves evidence with the reason. Now, with Force, lets no part drain.
	Force, Now bool
	Reason     string
}

// Withdraw turns the waiter of a request into a tombstone with a reason, which must not be empty. See
// Waiter.Verdict. The outcome is Lost if the request does not wait any longer.
type Withdraw struct {
	Policy
	Resource string
	Caller
	Reason string
}

// Verify renews what a lock ID keeps for a run, and releases nothing. The outcome is Granted if the
// hold began with an order up to Order, which is that of its use, and no evidence of a loss counts, and Lost otherwise. A hold of
// another run is answered as by Acquire.
type Verify struct {
	Policy
	Resource, LockID, Run, TakeOver string
	Order                           int64
	// LostSince, of a run that a reset has made, is the time from which losses of any run of the lock ID count
	// like its own. Zero counts its own only.
	LostSince time.Time
}

// Raise bars the requests of a saga and of the sagas inside it, up to an order, and all their requests that
// replaced runs have made: running parts are cut off, claims and queued requests end, and later requests are
// refused. Requests within the lock ID are barred like its own. The outcome is Busy while a part that
// was cut off may still run. A new bar draws a fence for what the lock ID keeps; a bar that exists draws none.
type Raise struct {
	Policy
	Resource, LockID, Run, TakeOver, Saga string
	Order                                 int64
}

// Settle only settles the document: see the package documentation.
type Settle struct {
	Policy
	Resource string
}

// ResourceName returns the name of the resource.
func (op Acquire) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Renew) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Leave) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Release) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op TakeBack) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Withdraw) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Verify) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Raise) ResourceName() string { return op.Resource }

// ResourceName returns the name of the resource.
func (op Settle) ResourceName() string { return op.Resource }

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

// Released returns the entries of holds that the operation ended.
func (r *Result) Released() []Entry {
	return r.ended(func(e *Entry) bool { return e.Holds() })
}

// Withdrawn returns the waiters and the claims that the operation ended before they expired.
func (r *Result) Withdrawn(at time.Time) []Entry {
	return r.ended(func(e *Entry) bool {
		return (e.State == "" || e.State == StateClaimed) && e.Verdict == "" && (e.Alive(at) || (e.QueuedUntil != nil && e.QueuedUntil.After(at)))
	})
}

func (r *Result) ended(which func(*Entry) bool) []Entry {
	return slices.DeleteFunc(slices.Clone(r.Ended), func(e Entry) bool { return !which(&e) })
}
