package engine

import "time"

// Modes, as they are stored.
const (
	Exclusive = "X"
	Shared    = "S"
)

// Bounds of the two lists that remember what ended, and how many waiters one write grants at most.
// MaxEvicted is how much evidence a write leaves of what it finds; its own comes on top.
const (
	MaxEvicted  = 64
	MaxReleased = 16
	SettleMost  = 64
)

// Policy is what every operation needs to settle a document. All times are in milliseconds.
type Policy struct {
	// ClaimTTL is how long a claim stands unconfirmed, unless Waiter.ClaimTTL is longer.
	ClaimTTL int64
	// Retention is how long the document of an idle resource is kept: the evidence of a new one is
	// complete since that long ago. Defaults to a day.
	Retention int64
}

// Memory is Retention, or its default.
func (p Policy) Memory() int64 {
	if p.Retention == 0 {
		return (24 * time.Hour).Milliseconds()
	}
	return p.Retention
}

// Acquire asks for the resource. All times are in milliseconds; a TTL of 0 has no end.
type Acquire struct {
	Policy
	Resource string
	// Issued is when the request was issued, in the server's time; zero is never late.
	Issued time.Time
	LockID string
	// Label says which run speaks for the party, TakeOver which label it may replace, also if that
	// one's hold has expired, Undo which parts the request undoes, and Within which lock ID it lives
	// within. Their rules stand before all others but Late: see [OtherRun].
	Label, TakeOver string
	Undo            []string
	Within          string
	Part            string
	Order           int64
	Mode            string
	Limit           int64
	TTL, HoldTTL    int64
	Persist         bool
	// Held: not holding already is a loss. Reacquire: a loss is no obstacle. NewFence: joining gives a
	// new fence. Queue: take or refresh a place in the queue if it is busy.
	Held, Reacquire, NewFence, Queue bool
	// Converts is the order of the part's own running entry which this request strengthens. It goes
	// when the request is granted, and does not drain. 0 is none.
	Converts int64
	// Refresh: refresh a place in the queue, and with Persist the hold that stands, but grant and
	// claim nothing for the request. A claim that lapsed becomes a place at the head again. If
	// there is neither, or without Queue, the answer is Busy.
	Refresh bool
	// HandOver, with Persist, marks the hold that stands as one that its run leaves to the run that
	// continues it, until another run takes it over.
	HandOver  bool
	WaiterTTL int64
	// HeardIn is when the waiter will be heard of next. If that takes it twice as long, it is passed
	// over until it is heard of. Defaults to half of WaiterTTL.
	HeardIn                     int64
	MaxWaiters                  int64
	Owner, Host, Comment, Trace string
	// Started and NeverVictim stand in the queue, for deadlocks; Started may be zero.
	Started     time.Time
	NeverVictim bool
}

// CommandTimeout is how long after it was issued a request may still take effect.
const CommandTimeout = 10 * time.Second

// EndlessTTL is the TTL by which a lease without end is renewed, trusted and drained.
const EndlessTTL = 30 * time.Second

// Crowd is how many lock IDs may be on a resource before a grant ends the holds among them that
// have expired, needed or not, so that a document stays small.
const Crowd = 256

// Unlimited is the room of a shared request without a limit.
const Unlimited = 1 << 20

// Room is how many lock IDs may hold at once with this request, itself included.
func (a *Acquire) Room() int64 {
	switch {
	case a.Mode == Exclusive:
		return 1
	case a.Limit > 0:
		return a.Limit
	}
	return Unlimited
}

// Patience is how long after this request its waiter is passed over.
func (a *Acquire) Patience() int64 {
	if a.HeardIn == 0 {
		return a.WaiterTTL
	}
	return min(2*a.HeardIn, a.WaiterTTL)
}

// LongestClaim bounds the claims of a request that sleeps through shorter ones.
func (a *Acquire) LongestClaim() int64 { return 4 * a.ClaimTTL }

// Renew extends a part by its own TTL, and its hold with it.
type Renew struct {
	Policy
	Resource, LockID, Part string
	Order                  int64
	// Downgrade: hold in shared mode from now on, unless the hold has other parts.
	Downgrade bool
	// TTL, unless 0, is the part's new TTL, from now, also if that ends sooner: for parts that are not
	// trusted by a lease. A part that has expired is not renewed: the answer is Superseded.
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
	// Undo takes back a request: the hold that it began to keep ends too, unless another request has
	// entered it since, or another part runs.
	Undo bool
	// Waiting ends places and claims alone, and no part that runs.
	Waiting bool
	// Reason is why, if another than the waiter does it.
	Reason string
}

// Release ends a lock ID's hold: the one that FirstFence names, or, if that is 0, everything up to
// an order, claims and places too.
type Release struct {
	Policy
	Resource, LockID string
	// Label, unless it is empty, restricts the release to what stands under that run label. It does
	// not go with Force, which ends what was cut off of the hold, too.
	Label string
	// FirstFence is the fence with which the hold began. What drains already still matches.
	FirstFence int64
	// Used, with Label and without FirstFence, is the order of a request that has used what the lock ID
	// keeps: unless a hold is kept under the label that an order up to this began, the release ends
	// nothing, and the answer is Lost. 0 asks nothing.
	Used int64
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
// tombstone with the Reason, which is not empty, stays in its place: see Waiter.Verdict.
type Withdraw struct {
	Policy
	Resource, LockID, Part string
	Order                  int64
	Reason                 string
}

// Query says which documents to list. An engine may list more than was asked for.
type Query struct {
	// Resource is one name, and Prefix the beginning of names.
	Resource, Prefix string
	// LockID, the beginning LockIDPrefix, and Owner are those of a party that holds or waits.
	LockID, LockIDPrefix, Owner string
	// Waiting selects documents with a queue, Contended those with more than plain holds.
	Waiting, Contended bool
}

// IdleGrain is what idleAt is rounded up to, so that most writes leave its index alone.
const IdleGrain = time.Hour
