// Package lockcore is a lock library on MongoDB: exclusive and shared locks and semaphores, with
// leases, fencing tokens and a queue. It knows nothing of Temporal.
//
//	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
//	...
//	session, err := locker.Acquire(ctx, lockcore.Request{
//		LockID:    "nightly-report/" + rand.Text(),
//		Resources: []lockcore.Resource{lockcore.Exclusive("report")},
//	})
//	if err != nil {
//		return err // ctx's cause, or for example a *BusyError that says who holds it
//	}
//	defer session.Release(context.WithoutCancel(ctx))
//	return work(session.Context()) // cancelled, with the cause, when the lock is lost
//
// # The model
//
// A resource is a string, such as "account/42", and a document in the collection. A lock ID names
// one hold on it; requests of one lock ID never block each other. A hold has parts, its running
// users: an attempt of a step, or a [Session] in plain Go. Only a part trusts the lock at this
// moment.
//
//	           Enter, Acquire                  Renew
//	                 │                        ┌─────┐
//	          busy   ▼   free                 ▼     │
//	queued ◄──────── ? ──────────────► held, with parts ───► all their time is over: stays
//	   │                                  ▲        │          until another needs the room,
//	   │ its turn       asks again        │        │ Leave    and then is evicted
//	   └──► claimed ──────────────────────┘        ▼
//	                                       the last part left
//	                                           │         │
//	                                    kept   ▼         ▼   not kept
//	                              held, without parts   free
//
// A plain lock is one part, and ends with it. A saga asks with Persist: its hold stands between
// steps, for the longer HoldTTL, until Release. A part that a later attempt superseded, or whose
// hold another released, drains: it cannot be renewed, and keeps others out until it leaves or its
// TTL ends.
//
// A [Lease] is a value: what one part got on one resource. [Locker.Enter] gives leases; they can be
// stored, sent, and used by another process with [Locker.Renew], [Locker.Leave] and
// [Locker.Release].
//
// A [Session] is alive: leases that are renewed in the background, and a context that is cancelled
// when one is lost. [Locker.Acquire] waits for one in the queue, [Locker.TryAcquire] does not wait,
// and [Locker.Renewing] makes one of leases. [Session.Downgrade] lets readers in; [Session.Upgrade]
// makes a shared lock exclusive.
//
// # What it guarantees
//
// While any part trusts an exclusive lease, no part of another lock ID trusts a lease on the
// resource. A request with a limit of N is granted if fewer than N others hold. Waiters are served
// in the order in which they came; only upgrades go first. Each grant of a resource has a greater
// fence than all before. Every operation may be repeated, and ends as if it had run once. "You hold
// it" is said only after a write that a majority of the servers has.
//
// The database server's clock alone decides expiry. A part trusts its lease from before its command
// was sent for as long as the answer says is left, less a tenth of the TTL. It goes by its
// monotonic or its wall clock, whichever says that more time has passed; no two clocks need to
// agree. A process can still be paused between its look at the clock and the write that follows. If
// that matters, let the resource compare fences; [UpdateFenced] does so for a document of MongoDB.
//
// # Errors
//
// Conditions are matched with [errors.Is], and the types carry the facts, for [errors.As]:
//
//	ErrBusy, ErrQueueFull   *BusyError         others hold it or are ahead. Nothing was taken
//	ErrLost                 *LostError         it does not hold any more; to whom, or why
//	ErrSuperseded           *SupersededError   a later attempt or a release came first
//	ErrDeadlock             *DeadlockError     it gave up its place, to end a circle of waits
//	ErrFenced               *FencedError       a greater fence came first. Nothing was written
//	ErrInvalid              *InvalidError      the field, the value and the bound. Nothing was sent
//	ErrUnknownOutcome       *UnknownOutcomeError   it may have taken effect
//	ErrClosed                                  Locker.Close ended it, or came before it
//	                        *LayoutError       another layout. Nothing was written
//
// Other errors are the database's, and say that nothing was done.
//
// # Cancellation
//
// When its context ends, Acquire leaves the queue, gives back what it took, and answers with the
// context's cause. A request that gives up after an answer was lost is given back for 5 s at most
// before it answers, and then in the background until that is known to have been done.
//
// Leave and Release send nothing after their context has ended; what they cannot end ends with its
// TTL. So call them with a context that has not ended: context.WithoutCancel, with a bound. A
// session outlives its context: work that was cancelled still cleans up under its locks, and learns
// of a loss from [Session.Lost]. [Locker.Close] ends all of this: waits, sessions, and background
// cleanup.
//
// # Waiting
//
// Acquire waits in the queue of one resource after the other. It is woken by a release in the same
// Locker at once, and else by reads, which all that wait in the process share: four a second
// for each resource, or up to fifty shortly before a turn is expected. Enter can queue too, for callers who come again by themselves;
// [Locker.Recheck] says when.
//
// A request of several resources takes them in the order of their names, so such requests never
// wait for each other in a circle. Those who take one after the other can. A Locker with waiters
// searches the queues for circles of owners ([Request].Owner), and of each the owner that started
// last gets ErrDeadlock. It has to release what it holds before the others go on. Waits for room
// under a limit of more than 1 are in no circle.
//
// # Cost
//
// Taking, renewing, leaving and releasing are one findAndModify per resource each, with no read
// before, and now and then two if others hold or wait. TryAcquire and Enter of several resources
// that are free are one update and one read for all. The leases of all sessions of a Locker are
// renewed together, in one command for up to 500 resources.
//
// In the repository: docs/concepts.md for what is promised and what is not, docs/production.md for
// failures, clocks and how to run it, and docs/internals.md for the stored document and the
// reasons.
package lockcore
