package party

import (
	"fmt"
	"math"
	"time"
)

// Mode says who else may hold a resource at the same time.
type Mode string

const (
	// ModeExclusive admits no other lock ID. It is the zero value's meaning too.
	ModeExclusive Mode = "X"
	// ModeShared admits other shared holds; with a limit it is a semaphore.
	ModeShared Mode = "S"
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == ModeShared {
		return "shared"
	}
	return "exclusive"
}

// Resource is one thing to lock, and how. Make one with [Exclusive], [Shared] or [SharedLimit].
type Resource struct {
	// Name is what is locked, such as "account/42": 1 to 512 bytes of valid UTF-8 without NUL.
	Name string `json:"name"`
	// Mode defaults to ModeExclusive.
	Mode Mode `json:"mode,omitempty"`
	// Limit, for ModeShared only, is how many lock IDs may hold the resource when this request is
	// granted, itself included. The limit belongs to the request: others may ask with another one.
	// Defaults to 0, which is no limit.
	Limit int `json:"limit,omitempty"`
	// Held says that the lock ID is known to hold the resource already. If it does not, the answer is
	// ErrLost, and nothing is taken.
	Held bool `json:"held,omitempty"`
}

// Exclusive asks for name alone.
func Exclusive(name string) Resource { return Resource{Name: name, Mode: ModeExclusive} }

// Shared asks for name together with any number of other shared holders.
func Shared(name string) Resource { return Resource{Name: name, Mode: ModeShared} }

// SharedLimit asks for one of limit places on name: a semaphore. A limit of 0 is refused: [Shared]
// is the one without limit.
func SharedLimit(name string, limit int) Resource {
	if limit == 0 {
		limit = noPlaces
	}
	return Resource{Name: name, Mode: ModeShared, Limit: limit}
}

// noPlaces is the limit of a semaphore of no places, which is not the same as no limit.
const noPlaces = math.MinInt32

// Forever, as a TTL, makes a promise that never ends by itself: the lock stands until it is
// released. A process that dies with one leaves it standing.
const Forever time.Duration = math.MaxInt64

// Order numbers the requests of one part: the scheduling of a step, and its attempt, which starts
// again at 1 with every scheduling. The zero Order is none: then the Locker draws a part for the
// request, and numbers within it.
type Order struct {
	Schedule uint32 `json:"schedule"`
	Attempt  uint32 `json:"attempt"`
}

// String returns "schedule.attempt".
func (o Order) String() string { return fmt.Sprintf("%d.%d", o.Schedule, o.Attempt) }

// number is the order as it is stored: one integer that compares like the pair, and is not
// negative.
func (o Order) number() int64 { return int64(o.Schedule&math.MaxInt32)<<32 | int64(o.Attempt) }

func orderOf(n int64) Order { return Order{Schedule: uint32(n >> 32), Attempt: uint32(n)} } //nolint:gosec // both halves fit by construction

// LastAttempt is the order that no attempt of the same scheduling exceeds. A release up to it ends
// everything that the scheduling, and all before it, took or may still ask for. A release without a
// Run up to LastAttempt(0) also ends plain requests, all of which have the same order: so it refuses
// no later request, and a plain request that waits queues again.
func LastAttempt(schedule uint32) Order { return Order{Schedule: schedule, Attempt: math.MaxUint32} }

// Request asks for a hold on one or several resources in the name of one lock ID. The zero value of
// every field but LockID and Resources is the usual choice.
type Request struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string `json:"lockId"`
	// Run is the run label, if the party is a workflow: which of its runs speaks for it. At most 512
	// bytes. If another run's hold, part or place stands, or a run replaced this one, the answer is an
	// [OtherRunError], and nothing is taken. A lock ID is used either always with a run label or
	// never. Defaults to none.
	Run string `json:"run,omitempty"`
	// TakeOver, with Run, is the label that Run may replace, as the OtherRunError named it. What that
	// run keeps goes on under a new fence. Its running parts are cut off, and keep every party out
	// until they leave or their time is over. Its places in queues go. The label never returns.
	TakeOver string `json:"takeOver,omitempty"`
	// Undo, with Run, names the parts that the request, a compensation, undoes: at most 64, not its
	// own. They are over: a later request of theirs is refused, until 64 others were undone there.
	// And this one waits for those that run or drain, although its party holds. Writes by
	// [UpdateFenced] under its lease bar theirs, if the request asks for NewFence.
	Undo []string `json:"undo,omitempty"`
	// Within, with Run, is the lock ID of a workflow, if this one is of a step within it. What the
	// workflow keeps neither blocks the request nor counts under its limit, and while it is kept
	// the request goes ahead of the queue. With Persist, the hold stands for HoldTTL while the step
	// waits for other resources. When the step has all of them, a hold ends with its part.
	Within string `json:"within,omitempty"`
	// Resources are taken in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource `json:"resources"`
	// Part names the user of the hold that asks: a step of a saga. At most 512 bytes. A later request
	// of the same part supersedes the earlier one. Defaults, without an Order, to a new name: the
	// request is a user of its own, beside others of the same lock ID.
	Part string `json:"part,omitempty"`
	// Order is this request's place among the requests of the same part. A request that names its
	// Part, or that Enter queues, has to bring one: it is asked again by it. Defaults to the first of
	// a new part.
	Order Order `json:"order"`
	// Call identifies the request, if its caller may send it again: a request with the same Call, Part
	// and Order gets what the first was granted, and another one is superseded. At most 64 bytes.
	// Defaults to a random value: no request is the same as another.
	Call string `json:"call,omitempty"`
	// Queued is set in a request that has queued before. If it is neither queued nor granted any longer,
	// because another has ended it, the answer is a *SupersededError, and it does not queue again.
	// Defaults to false: it queues.
	Queued bool `json:"queued,omitempty"`
	// Saga names the saga of the step, if the party is a workflow: see Raise. At most 512
	// bytes. Defaults to none.
	Saga string `json:"saga,omitempty"`
	// TTL is how long the part may be silent: 100 ms or more, or Forever. Defaults to Config.TTL.
	TTL time.Duration `json:"ttl,omitempty"`
	// Persist lets the hold stand when its last part has left, until it is released or HoldTTL has
	// passed without a sign of life. Without it, the hold ends with its last part.
	Persist bool `json:"persist,omitempty"`
	// HoldTTL, with Persist, is how long the hold may stand with no part and no sign of life: 100
	// ms or more, or Forever. Defaults to Config.HoldTTL.
	HoldTTL time.Duration `json:"holdTtl,omitempty"`
	// HoldOnly, with Persist, asks for the hold and no part of it. The hold lasts for HoldTTL, and no
	// process renews it. A request that waits in the queue is granted the hold by the write that frees
	// the resource, even if its process is gone; made again, in a greater Order, it joins the hold. TTL
	// has no meaning then, except that it is not more than HoldTTL. It does not go with Queued, and only Enter and Recheck accept it. Defaults to
	// false: the request gets a part.
	HoldOnly bool `json:"holdOnly,omitempty"`
	// Reacquire takes a lock that was lost again, instead of answering ErrLost. Compensations set it:
	// they must run, and not beside others.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence gives a new fence even if the lock ID holds already, so that a resource that checks
	// fences refuses whatever an earlier step may still send. Compensations set it.
	NewFence bool `json:"newFence,omitempty"`
	// Owner is the party that waits and holds, for people and for deadlock detection: requests of one
	// owner are taken to wait for one another, so it names one thread of work, such as a saga. At most
	// 512 bytes, or LockID. Defaults to LockID.
	Owner string `json:"owner,omitempty"`
	// Started is when the owner began. Of those in a deadlock the one that started last gives up.
	// Defaults to when the request queued.
	Started time.Time `json:"started,omitzero"`
	// NeverVictim keeps the request from being the one that gives up in a deadlock, unless all in it
	// say so. Compensations set it.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Host is where the owner is, for people. At most 255 bytes. Defaults to Config.Host.
	Host string `json:"host,omitempty"`
	// Comment is for people. At most 1,024 bytes.
	Comment string `json:"comment,omitempty"`
	// MaxWait is how long to wait at most: for Acquire, which defaults to as long as its context
	// lives; and for an Enter that queues and whose turn is near, as Enter says, which defaults to not
	// at all.
	MaxWait time.Duration `json:"maxWait,omitempty"`
}

// leaseOn returns the lease that a request may have got on a resource, to leave it.
func (r *Request) leaseOn(resource string) Lease {
	return Lease{Resource: resource, LockID: r.LockID, Run: r.Run, Part: r.Part, Order: r.Order, id: r.entryID(resource), keeps: r.Persist}
}

// Lease is what one part got on one resource: a value that can be stored, sent, and used by another
// process to renew, leave or release. It is a snapshot; [Session] keeps leases alive.
//
// The lease of a request with HoldOnly describes the hold. It is never valid, Renew answers it with
// ErrLost, Leave changes nothing, and Release ends the hold.
type Lease struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Run      string `json:"run,omitempty"`
	Part     string `json:"part,omitempty"`
	Order    Order  `json:"order"`
	Mode     Mode   `json:"mode"`
	// Fence grows with every grant of the resource. A resource that remembers the highest fence it has
	// seen, and refuses lower ones, is safe from a holder that does not know yet that it has lost.
	Fence int64 `json:"fence"`
	// FirstFence is the fence with which the hold began, and names the hold. Later attempts of a step
	// and upgrades have greater fences.
	FirstFence int64 `json:"firstFence,omitempty"`
	// LeastFence is the smallest fence under which a part of the hold may still write to a fenced
	// document: FirstFence, until another run of the workflow takes the hold over.
	LeastFence int64 `json:"leastFence,omitempty"`
	// Bars says that the request asked for NewFence: writes under smaller fences are refused after one
	// under this lease, also those of other parts of the hold. Undone are the parts that the request
	// undid: they are barred instead.
	Bars   bool     `json:"bars,omitempty"`
	Undone []string `json:"undone,omitempty"`
	// Left is what was left of the part's promise when the database answered; Forever if it has no
	// end.
	Left time.Duration `json:"left"`
	// Joined says that the lock ID held the resource before this request.
	Joined bool `json:"joined,omitempty"`

	// What follows does not travel: another process has other clocks.

	// id is that of the entry, by which it is extended, and keptID that of what its lock ID keeps, which
	// lasts until keptUntil by the local clock, and for holdTTL after a renewal.
	id, keptID string
	keptUntil  time.Time
	holdTTL    time.Duration
	// validUntil is the local time until which the lease may be trusted: see leaseOf. It is zero in a
	// lease that came from another process.
	validUntil time.Time
	// ttl is how long a confirmation is trusted.
	ttl time.Duration
	// owner, host and comment are those of the request, for an upgrade.
	owner, host, comment string
	// keeps is set if the request may have begun what its lock ID keeps, so that taking it back ends
	// that, unless another request has entered it since.
	keeps bool
	// waitTTL, unless it is 0, is the time for which the kept hold lasts after the leave.
	waitTTL time.Duration
	// granted is the server's time of the grant, if known.
	granted time.Time
	// failing is set if the last renewal failed, and downgrading while a downgrade has no answer.
	failing, downgrading bool
}

// Valid reports whether the part may still trust this lease by this process's clocks. A lease that
// came from another process is not valid until it was renewed here. One without end is trusted for
// 27 s after it was last confirmed: it may have been released by force.
func (l Lease) Valid() bool { return !over(l.validUntil, time.Now()) }

// askedTTL is the TTL as a request names it.
func (l Lease) askedTTL() time.Duration {
	if l.Left == Forever {
		return Forever
	}
	return l.ttl
}

// State says how a party stands on a resource.
type State string

// What Status lists.
const (
	StateHolding  State = "holding"  // a hold, expired or not
	StateClaimed  State = "claimed"  // a waiter to whom the resource was granted, and who has not taken it up yet
	StateDraining State = "draining" // a part that was cut off, and may not know yet
	StateWaiting  State = "waiting"  // a request in the queue
)

// Holder is a party that holds a resource, or was granted it, as others see it. Its String is for
// people.
type Holder struct {
	LockID string `json:"lockId"`
	// Run is the run label; empty outside of Temporal.
	Run   string `json:"run,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	Mode  Mode   `json:"mode"`
	Fence int64  `json:"fence,omitempty"`
	// FirstFence is the one with which the hold began, by which [Release] names it.
	FirstFence int64 `json:"firstFence,omitempty"`
	State      State `json:"state"`
	// Part is that of a claim, of a part that drains, or of a waiter.
	Part string `json:"part,omitempty"`
	// Limit is the semaphore limit that it was granted with; 0 is none.
	Limit   int    `json:"limit,omitempty"`
	Comment string `json:"comment,omitempty"`
	// Since is when the hold was granted, by the database server's clock.
	Since time.Time `json:"since,omitzero"`
	// ExpiresIn is what is left until the holder can be displaced if nothing is heard of it; Forever
	// if it never ends by itself.
	ExpiresIn time.Duration `json:"expiresIn"`
	// Trace is the W3C traceparent of the step that holds; empty if none was known.
	Trace string `json:"trace,omitempty"`
	// Silent is for how long a holder has given no sign of life, by the database server's clock. For a
	// waiter it is how long it has waited.
	Silent time.Duration `json:"silent,omitempty"`
	// HoldTTL is for how long a hold that is kept stands without a sign of life, Forever if it has no
	// end, and 0 if it is not kept.
	HoldTTL time.Duration `json:"holdTtl,omitempty"`
}
