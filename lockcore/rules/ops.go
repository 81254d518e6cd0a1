package rules

import (
	"math"
	"time"
)

// Modes, as they are stored.
const (
	Exclusive = "X"
	Shared    = "S"
)

// Bounds of the lists that remember what ended, and of the waiters that one write grants. MaxEvicted
// is how much of the evidence that it finds a write keeps; its own comes on top.
const (
	MaxEvidence = 64
	MaxReleases = 64
	MaxBars     = 64
	SettleMost  = 64
)

// LastPlain is the greatest order of plain requests, which bring no order of their own: all of them have the same one.
const LastPlain = math.MaxUint32

// MaxBytes is the size of a document from which requests are answered Full that neither hold nor wait,
// and MaxBytesOfHolders that from which also those are that hold. MongoDB stores documents of up to 16 MB.
// A swap of a larger one fails, and nobody could leave any longer.
const (
	MaxBytes          = 12 << 20
	MaxBytesOfHolders = 14 << 20
)

// IdleGrain is what IdleAt is rounded up to, so that most writes leave its index alone.
const IdleGrain = time.Hour

// EndlessTTL is the TTL by which a lease without end is renewed, trusted and drained.
const EndlessTTL = 30 * time.Second

// Crowd is the number of lock IDs on a resource from which a grant evicts those of their holds that
// have expired, needed or not, so that a document stays small.
const Crowd = 256

// Unlimited is the room of a shared request without a limit.
const Unlimited = 1 << 20

// Op is an operation on one document. It does not change the document that it is given.
type Op interface {
	// Apply returns the document after the operation, and what the caller is told. now is the
	// server's time; a nil document is one that does not exist. A read-only outcome leaves the
	// document as it was, apart from what every operation settles.
	Apply(d *Document, now time.Time) (*Document, Result)
	// On is the name of the resource.
	ResourceName() string
}

// Policy is what every operation needs to settle a document. All times are in milliseconds.
type Policy struct {
	// ClaimTTL is how long a claim lasts unconfirmed, unless Waiter.ClaimTTL is longer.
	ClaimTTL int64
	// Retention is how long the document of an idle resource is kept: the evidence of a new one is
	// complete since that long ago. Defaults to a day.
	Retention int64
}

// Memory is Retention, or its default.
func (p Policy) EvidenceRetention() int64 {
	if p.Retention == 0 {
		return (24 * time.Hour).Milliseconds()
	}
	return p.Retention
}

// Acquire asks for the resource. All times are in milliseconds; a TTL of 0 has no end.
type Acquire struct {
	Policy
	Resource string
	// Call is the random ID of the call. Sent again with the same ID, an operation gets the same
	// answer; another call with the same part and order is superseded.
	Call   string
	LockID string
	// Label names the run that the request is of. TakeOver is the label that it may replace, even if
	// that one's hold has expired. Within is the enclosing lock ID. Saga is the outermost saga of the
	// request. Undo names parts that the request, a compensation, undoes.
	Label, TakeOver string
	Within, Saga    string
	Undo            []string
	Part            string
	Order           int64
	Mode            string
	Limit           int64
	TTL, HoldTTL    int64
	// Persist: the hold outlives its parts, by HoldTTL. HoldOnly, with Persist, asks for no part; a
	// waiter is then granted the hold at once, without a claim.
	Persist, HoldOnly bool
	// Held: not holding already is a loss. Reacquire: a loss is no obstacle. NewFence: joining gives a
	// new fence. Queue: queue if it is busy, or refresh the position in the queue.
	Held, Reacquire, NewFence, Queue bool
	// Queued: the request has queued before. If it is neither queued nor granted any longer, another has
	// ended it: it is superseded.
	Queued bool
	// Upgrades is the ID of the part's own entry that this request makes exclusive. It has the same
	// order, and is replaced when the request is granted.
	Upgrades string
	// Refresh: refresh the position in the queue, but grant and claim nothing for the request. A claim
	// that lapsed becomes a waiter at the head again. If there is neither, or without Queue, the
	// outcome is Busy.
	Refresh   bool
	WaiterTTL int64
	// HeardIn is when the waiter will be heard of next. If that takes it twice as long, it is passed
	// over until it is heard of. Defaults to half of WaiterTTL.
	NextRefresh                 int64
	MaxWaiters                  int64
	Owner, Host, Comment, Trace string
	// Started and NeverVictim are stored in the queue, for deadlocks; Started may be zero.
	Started     time.Time
	NeverVictim bool
}

// Room is the number of lock IDs that may hold at once with this request, itself included.
func (op *Acquire) Room() int64 {
	switch {
	case op.Mode == Exclusive:
		return 1
	case op.Limit > 0:
		return op.Limit
	}
	return Unlimited
}

// Patience is the time after which its waiter is passed over.
func (op *Acquire) OverdueAfter() int64 {
	if op.NextRefresh == 0 {
		return op.WaiterTTL
	}
	return min(2*op.NextRefresh, op.WaiterTTL)
}

// LongestClaim bounds the claims of a request that sleeps through shorter ones.
func (op *Acquire) LongestClaim() int64 { return 4 * op.ClaimTTL }

// Renew extends a part by its own TTL, and its hold with it.
type Renew struct {
	Policy
	Resource, LockID, Part string
	Order                  int64
	// Downgrade: hold in shared mode from now on, unless the hold has other parts.
	Downgrade bool
	// TTL, unless 0, is the part's new TTL, from now, even if that ends sooner: for parts that are not
	// trusted by a lease. A part that has expired is not renewed: the outcome is Superseded.
	TTL int64
}

// Leave ends a part, and with the last one a hold that is not kept.
type Leave struct {
	Policy
	Resource, LockID string
	// Label is the request's. With it the leave also ends what was cut off of the part.
	Label string
	Part  string
	Order int64
	// Undo takes back the request: a hold that it began to keep ends too, unless another request has
	// entered it since, or another part runs.
	Undo bool
	// Call, unless it is empty, restricts the leave to what the call with this ID was granted, and to
	// claims and queued requests of exactly this order.
	Call string
	// Waiting ends positions in the queue and claims alone, and no part that runs.
	QueueOnly bool
	// Keep: a hold within another lock ID stands for HoldTTL from now, if the leave ends a part of it. The
	// request waits for other resources.
	Keep    bool
	HoldTTL int64
}

// GiveUpUpgrade takes back an Acquire with Upgrades.
type UndoUpgrade struct {
	Policy
	Resource, LockID, Part string
	Order                  int64
	// Call is the ID of the call that asked for the upgrade, and Upgrades that of the part's entry
	// before it.
	Call, Upgrades string
}

// Release ends a lock ID's hold: the one that FirstFence names, or, if that is 0, everything up to
// an order, claims and queued requests too.
type Release struct {
	Policy
	Resource, LockID string
	// Label, unless it is empty, restricts the release to entries with that run label. It does not go
	// with Force, which also ends what was cut off of the hold.
	Label string
	// FirstFence is the fence with which the hold began. Entries that drain already still match.
	FirstFence int64
	// Order bounds what ends. With FirstFence it is only that of the part Leaving.
	Order int64
	// Leaving names a part whose request with exactly this order is known to have stopped: it does not
	// drain. Nil names none.
	Leaving *string
	// Force, with FirstFence, leaves evidence with the reason, and Now, with Force, waits for no part.
	Force, Now bool
	Reason     string
}

// Withdraw takes one request out of the queue, if it still waits there and was granted nothing. A
// tombstone with the Reason, which is not empty, stays at its position: see Waiter.Verdict.
type Withdraw struct {
	Policy
	Resource, LockID, Part string
	Order                  int64
	Reason                 string
}

// Verify renews what a lock ID keeps under a run label, and releases nothing. The outcome is Granted
// if an order up to Used began the hold, else Lost; a hold of another run is answered as by Acquire.
type Verify struct {
	Policy
	Resource, LockID, Label, TakeOver string
	Used                              int64
	// HandOver marks the hold as one that its run leaves to the next run, until that takes it over.
	HandOver bool
}

// Raise bars a run's requests of a saga up to an order, and those of the runs that it has replaced: parts of them that run are
// cut off, claims and queued requests end, and later requests are refused. Requests within the lock
// ID are barred like its own. The outcome is Busy while a part that was cut off may still run.
type Raise struct {
	Policy
	Resource, LockID, Label, TakeOver, Saga string
	Order                                   int64
}

// Settle changes nothing by itself: it is a write that drops what is dead and grants claims.
type Settle struct {
	Policy
	Resource string
}

// On is the name of the resource.
func (op Acquire) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Renew) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Leave) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Release) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op UndoUpgrade) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Withdraw) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Verify) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Raise) ResourceName() string { return op.Resource }

// On is the name of the resource.
func (op Settle) ResourceName() string { return op.Resource }

// Query selects documents to list. A store may list more than was asked for.
type Query struct {
	// Resource is one name, and Prefix the beginning of names.
	Resource, Prefix string
	// LockID, the beginning LockIDPrefix, and Owner are those of a party that holds or waits.
	LockID, LockIDPrefix, Owner string
	// Waiting selects documents with a queue, Contended those with more than plain holds.
	Waiting, Contended bool
}
