package lockcore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Steps is the handle for layers that lock for the steps of workflows. It offers what Locker offers and, in
// addition, requests with their own part and order, holds that are kept between steps, all runs of a
// workflow as one party, and waiting without a process.
//
// # The model
//
// A lock ID names one hold on a resource. A hold has parts, its running users: an attempt of a step, or
// a [Session]. Only parts trust a lock; the hold between them is only a reservation.
//
//	           Enter, Acquire                  Renew
//	                 │                        ┌─────┐
//	          busy   ▼   free                 ▼     │
//	queued ◄──────── ? ──────────────► held, with parts ───► all parts expired: stays until
//	   │                                  ▲        │          another request needs the
//	   │ granted      confirms            │        │ Leave    resource, then is evicted
//	   └──► claimed ──────────────────────┘        ▼
//	                                       the last part has left
//	                                           │         │
//	                                    kept   ▼         ▼   not kept
//	                              held, without parts   free
//
// A saga sets Keep: its hold is kept between steps, for the longer HoldTTL, until Release. A part
// that a later attempt has superseded, or whose hold another party has released, drains: it cannot be
// renewed, and excludes others until it leaves or expires.
//
// The party is the workflow, and Run names the run that acts for it. A request of another run
// gets an *OtherRunError. If it then sets TakeOver, the kept holds of that run continue under a new
// fence.
type Steps struct{ *Locker }

// Steps returns the handle for layers that lock for the steps of workflows.
func (l *Locker) Steps() *Steps { return &Steps{l} }

// Acquire is [Locker.Acquire] for the request of a step.
func (l *Steps) Acquire(ctx context.Context, req StepRequest) (*Session, error) {
	return l.acquire(ctx, req)
}

// TryAcquire is [Steps.TryEnter] with a Session that renews the leases.
func (l *Steps) TryAcquire(ctx context.Context, req StepRequest) (*Session, error) {
	return l.tryAcquire(ctx, req)
}

// HoldTTL returns Config.HoldTTL, or its default.
func (l *Steps) HoldTTL() time.Duration { return l.cfg.HoldTTL }

// Order numbers the requests of one part: a schedule number, and an attempt, which begins at 1 for each
// schedule.
type Order struct {
	Schedule uint32 `json:"schedule"`
	Attempt  uint32 `json:"attempt"`
}

// String returns "schedule.attempt".
func (o Order) String() string { return fmt.Sprintf("%d.%d", o.Schedule, o.Attempt) }

// number returns the order as it is stored: one nonnegative integer that compares like the pair.
func (o Order) number() int64 { return int64(o.Schedule&math.MaxInt32)<<32 | int64(o.Attempt) }

func orderOf(n int64) Order { return Order{Schedule: uint32(n >> 32), Attempt: uint32(n)} } //nolint:gosec // both halves fit by construction

// LastAttempt returns the greatest order of a schedule. A release up to it ends everything that this
// schedule and earlier ones took or may still request. Without a Run, a release up to LastAttempt(0)
// also ends plain requests. These all have the same order, so it refuses no later request, and a plain
// request that waits queues again.
func LastAttempt(schedule uint32) Order { return Order{Schedule: schedule, Attempt: math.MaxUint32} }

// Caller identifies a request: who asks, in the name of whom.
type Caller struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string
	// Run is the workflow run that makes the request, if the party is a workflow. At most
	// 512 bytes. If another run of the party holds or waits, or has replaced this run, the error is an
	// *[OtherRunError], and nothing is taken. A lock ID is used either always with a run or never.
	// Defaults to none.
	Run string
	// Part names the user of the hold that makes the request, such as a step of a saga. At most 512
	// bytes. A later request of the same part supersedes the earlier one. Defaults, without an Order, to
	// a random name: the request is independent of others of the same lock ID.
	Part string
	// Order is the number of this request among the requests of the same part. It is required with Part
	// and for Enter, since such a request can be repeated. Defaults to the first order of a new part.
	Order Order
	// Saga is the path of the step's saga, for [Steps.Raise], such as "2/5" for saga 5 inside saga 2. At most
	// 512 bytes. Defaults to none.
	Saga string
	// Within, with Run, is the lock ID of the workflow to which a step with a lock ID of its own belongs.
	// Kept holds of the workflow neither block the request nor count under its limit, and while the
	// workflow keeps the resource, the request skips the queue. With Keep, a hold lasts for HoldTTL
	// while the step waits for other resources; once the step has all of them, a hold ends with its part.
	Within string
}

// callerOf returns a caller as it is stored.
func callerOf(c Caller) rules.Caller {
	return rules.Caller{LockID: c.LockID, Run: c.Run, Part: c.Part, Order: c.Order.number(), Saga: c.Saga, Within: c.Within}
}

// StepRequest asks for one or several resources in the name of one lock ID.
type StepRequest struct {
	Caller
	// TakeOver, with Run, is the run that Run replaces, from OtherRunError.Other. Kept holds
	// continue under a new fence. Running parts of the replaced run are cut off: they exclude every
	// party until they leave or expire. Its queued requests end. A replaced run is refused from then on.
	TakeOver string
	// Resources are taken in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource
	// Call identifies the request if the caller may repeat it: a request with the same Call, Part and
	// Order gets what the first was granted, and one with another Call is superseded. At most 64 bytes.
	// Defaults to a random value.
	Call string
	// Queued states that the request has queued before. If it is neither queued nor granted now, because
	// something has ended it, the error is a *SupersededError, and it does not queue again. Defaults to
	// false: it queues.
	Queued bool
	// TTL is the time without a renewal after which the part expires: 100 ms to ten years, or Forever.
	// Defaults to Config.TTL.
	TTL time.Duration
	// Keep keeps the hold after its last part has left, until it is released or HoldTTL has passed
	// without a renewal. Defaults to false: the hold ends with its last part.
	Keep bool
	// HoldTTL, with Keep, is the time without a renewal after which a kept hold without parts expires:
	// TTL or more, or Forever. Defaults to Config.HoldTTL.
	HoldTTL time.Duration
	// HoldOnly, with Keep, asks for a hold without a part. The hold lasts for HoldTTL, and no process
	// renews it. If the request queues, the write that frees the resource grants it the hold, even if its
	// process is gone; repeated with a greater Order, it joins the hold. TTL has no effect, but must not
	// exceed HoldTTL. It excludes Queued, and only Enter, TryEnter and Recheck accept it. The lease describes
	// the hold: it is never valid, Renew returns ErrLost for it, Leave does nothing, and Release ends the
	// hold. Defaults to false.
	HoldOnly bool
	// Reacquire takes a lost lock again, instead of returning ErrLost. Compensations set it: they must run,
	// and never without the lock.
	Reacquire bool
	// HeldSince maps the names of resources that an earlier request of the lock ID and the run has used to the
	// schedule number of that request. The hold must have been kept since then: if it is missing, or began with
	// a later schedule number, the error is a *LostError, and nothing is taken. Other names have no effect.
	// Defaults to nil: no condition.
	HeldSince map[string]uint32
	// LostSince, with Keep and without Reacquire, is for a run that a reset has made, whose history contains
	// requests of runs before. HeldSince then names the resources that the history has used. Of these any loss
	// from that time on counts, of any run, as in [Verify]; their orders are not compared, and one that is
	// missing without evidence is not lost. Defaults to zero: only losses of Run count.
	LostSince time.Time
	// NewFence draws a new fence even if the lock ID holds already, so that a resource that checks
	// fences refuses late writes of earlier steps. Compensations after [Steps.Raise] need not set it.
	NewFence bool
	// Owner is the party that waits and holds, for people and for deadlock detection, which assumes that
	// requests of one owner wait for one another. So it names one thread of work, such as a saga. At most
	// 512 bytes, or LockID. Defaults to LockID.
	Owner string
	// Started is the time at which the owner began. In a deadlock, the owner that started last gives up.
	// Defaults to the time at which the request queued.
	Started time.Time
	// NeverVictim keeps the request from being chosen as the victim of a deadlock, unless all requests
	// in the deadlock have set it. Compensations set it.
	NeverVictim bool
	// Host is the owner's process or machine, for people. At most 255 bytes. Defaults to Config.Host.
	Host string
	// Comment is for people. At most 1,024 bytes.
	Comment string
	// MaxWait is the longest wait: of Acquire, which defaults to no limit, and of an Enter for which a
	// grant is near, which defaults to no wait.
	MaxWait time.Duration
}
