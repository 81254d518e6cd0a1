package lockcore

import (
	"context"
	"time"
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
	// Priority is 1, which is first, to 5: see [Request]. A request that is repeated keeps the one it queued with. Defaults to
	// 0, which is 3.
	Priority int
	// Host is the owner's process or machine, for people. At most 255 bytes. Defaults to Config.Host.
	Host string
	// Comment is for people. At most 1,024 bytes.
	Comment string
	// MaxWait is the longest wait: of Acquire, which defaults to no limit, and of an Enter for which a
	// grant is near, which defaults to no wait.
	MaxWait time.Duration
}
