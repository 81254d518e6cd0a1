package engine

import "time"

// Modes, as they are stored.
const (
	Exclusive = "X"
	SharedBy  = "S"
)

// Bounds of the two lists that remember what ended. A request that arrives late is recognised as long
// as no more than this many other things ended on the resource in between.
const (
	MaxEvicted  = 64
	MaxReleased = 16
)

// SettleMost is how many shared waiters one write grants at most. Each of them writes when it confirms, so the
// next follow.
const SettleMost = 64

// Policy is what every operation needs to settle a document. All times are in milliseconds.
type Policy struct {
	// ClaimTTL is how long a claim stands unconfirmed, unless Waiter.ClaimTTL is longer.
	ClaimTTL int64
	// Retention is how long evidence is kept, and the document of an idle resource: no evidence of what
	// began later can have gone with a document. Defaults to a day.
	Retention int64
}

// Memory is Retention, or its default.
func (p Policy) Memory() int64 {
	if p.Retention == 0 {
		return (24 * time.Hour).Milliseconds()
	}
	return p.Retention
}

// Acquire asks for a place among the holders, or in the queue. All times are in milliseconds; a TTL of
// 0 has no end.
type Acquire struct {
	Policy
	Resource string
	// Issued is when the request was issued, in the server's time. It is refused if it comes later than [CommandTimeout]
	// after that. Zero is never late.
	Issued time.Time
	LockID string
	// Label says which run speaks for the party; see [OtherRun]. It does not go with Fresh.
	//
	// The rules of a labelled request stand before all others, but for Late. If another run's hold stands, or anything of it is
	// alive, or a run has replaced this one, the answer is [OtherRun]. Else the run takes over what stands of others: kept holds go on under its
	// label and a new fence, parts are cut off (see [CutOff]), places and claims go. What its party keeps admits it only beside
	// no incompatible entry of another lock ID.
	Label string
	// TakeOver is the label that Label may replace. A hold that has expired, and still stands, needs the permission too: a
	// step of a run that was replaced may come back at any time, and must not get the hold of the run that replaced it.
	TakeOver string
	// Undo, with Label, names the parts that this request, a compensation, undoes: they are over, and what runs or drains of them
	// is cut off, so that the request waits for it.
	Undo []string
	// Within, with Label, is a lock ID that has a kept hold around this one's: that hold neither blocks the request nor counts
	// under its limit, and as long as it stands the request goes ahead of the queue. It does not go with Keep.
	Within  string
	Part    string
	Order   int64
	Mode    string
	Limit   int64
	TTL     int64
	HoldTTL int64
	Keep    bool
	// Held: not holding already is a loss.
	Held bool
	// Reacquire: a loss is no obstacle.
	Reacquire bool
	// NewFence: joining gives a new fence.
	NewFence bool
	// Queue: take or refresh a place in the queue where it is busy.
	Queue bool
	// Converts is the order of the part's own running entry which this request strengthens: its caller uses it no longer
	// once the request is granted, so that it goes and does not drain. 0 is none.
	Converts int64
	// Fresh: the part is new with this request, and nothing of it can be there but what a copy of the same command,
	// sent again by the driver, finds. It goes with neither Keep nor Queue, and makes a shorter command.
	Fresh bool
	// Refresh: refresh a place in the queue, and with Keep the hold that stands, but grant and claim nothing for the
	// request. A claim that lapsed becomes a place at the head again; where there is neither, or
	// without Queue, the answer is Busy.
	Refresh bool
	// HandOver, with Keep, marks the hold that stands as one that its run leaves to the run that continues it, until another
	// run takes it over.
	HandOver  bool
	WaiterTTL int64
	// HeardIn is when the waiter will be heard of next. If that takes it twice as long, it is
	// passed over until it is heard of. Defaults to half of WaiterTTL: a waiter is not passed over
	// as long as its place stands.
	HeardIn    int64
	MaxWaiters int64
	Owner      string
	Host       string
	Comment    string
	Trace      string
	// Started and Safe stand in the queue, for deadlocks; Started may be zero.
	Started time.Time
	Safe    bool
}

// CommandTimeout is how long after it was issued a request may still take effect. No record of what has ended has to stand for
// longer than that, and nothing is held by a copy that a slow network brings later.
const CommandTimeout = 10 * time.Second

// EndlessTTL is the TTL that stands in for none: a lease without end is renewed and trusted like one of this TTL, since its
// holder has to hear of a release too. So its part drains for as long when it is cut off.
const EndlessTTL = 30 * time.Second

// Late reports whether the request comes too late at now.
func (a *Acquire) Late(now time.Time) bool {
	return !a.Issued.IsZero() && now.After(a.Issued.Add(CommandTimeout))
}

// Crowd is how many lock IDs may be on a resource before a grant ends the holds among them that have expired. Below it
// they stay until an incompatible grant needs their room.
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

// Patience is how long after this request its waiter is passed over: twice HeardIn, and no longer
// than its place stands.
func (a *Acquire) Patience() int64 {
	if a.HeardIn == 0 {
		return a.WaiterTTL
	}
	return min(2*a.HeardIn, a.WaiterTTL)
}

// LongestClaim bounds how long the claims of a request become that sleeps through shorter ones: no longer than a place stands
// that nobody refreshes.
func (a *Acquire) LongestClaim() int64 { return max(a.ClaimTTL, a.WaiterTTL) }

// Renew extends a part by its own TTL, and its hold with it.
type Renew struct {
	Policy
	Resource string
	LockID   string
	Part     string
	Order    int64
	// Downgrade: hold in shared mode from now on, unless the hold has other parts.
	Downgrade bool
	// TTL, unless 0, is the part's new TTL, and its end is that long from now, also if that is sooner.
	// It is for parts that nobody trusts by a lease. A part that has expired is not renewed: the
	// answer is Overtaken, and nothing changes.
	TTL int64
}

// Leave ends a part; and the hold, where it is not kept and this was the last.
type Leave struct {
	Policy
	Resource string
	LockID   string
	// Label is the request's. With it the leave also ends what drains of the part since it was cut off.
	Label string
	Part  string
	Order int64
	// Undo takes back a request: the hold that it began to keep ends with it, unless another request has entered the hold
	// since, or another part runs.
	Undo bool
	// Waiting ends places and claims alone, and no part that runs.
	Waiting bool
	// Reason is why, if somebody else than the waiter does it.
	Reason string
}

// Release ends a lock ID's hold: either the one that FirstFence names, or, if that is 0, everything up to an order, claims
// and places too.
type Release struct {
	Policy
	Resource string
	LockID   string
	// Label, unless it is empty, restricts the release to what stands under that run label. It does not go with Force, which
	// ends what was cut off of the hold, too.
	Label string
	// FirstFence is the fence with which the hold began. Its parts drain, and what drains already still matches.
	FirstFence int64
	// Order bounds what ends. With FirstFence it is only that of the part Leaving.
	Order int64
	// Leaving names a part whose request with exactly this order is known to have stopped: it does not drain. Nil
	// names none.
	Leaving *string
	// Force, with FirstFence, leaves an evicted record with the reason, for the holder to see. Reason is 1 to 512 bytes.
	Force  bool
	Reason string
	// Now, with Force, waits for no part: the holder is known to be dead. Parts that drain since an earlier release of the
	// hold go too.
	Now bool
}

// Withdraw takes one request out of the queue, if it still waits there and was granted nothing. A
// tombstone stays in its place: see Waiter.Verdict.
type Withdraw struct {
	Policy
	Resource string
	LockID   string
	Part     string
	Order    int64
	// Reason is the verdict that the part is told when it comes back, with whatever order: 1 byte
	// or more.
	Reason string
}

// Query says which documents to list. What is unset selects everything; an engine may list more than
// was asked for.
type Query struct {
	// Resource is one name, and Prefix the beginning of names.
	Resource, Prefix string
	// LockID and Owner are those of somebody who holds or waits.
	LockID, Owner string
	// Waiting selects documents with a queue.
	Waiting bool
	// Contended selects documents with a queue, a claim, a draining part or a kept hold.
	Contended bool
	// LockIDPrefix is the beginning of the lock ID of somebody who holds or waits.
	LockIDPrefix string
	// Live selects documents in which a promise may still stand.
	Live bool
}

// IdleGrain is what a document's idleAt is rounded up to, so that most writes leave the index on it
// untouched.
const IdleGrain = time.Hour
