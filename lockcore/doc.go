// Package lockcore is a lock library on MongoDB: exclusive and shared locks and semaphores, with leases, fencing
// tokens and a queue. It knows nothing of Temporal.
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
// A resource is a string, such as "account/42", and a document in the collection. A lock ID names one hold on it;
// requests of one lock ID never block each other. A hold has parts, its running users: an attempt of a step, or a
// [Session] in plain Go. Only a part trusts the lock at this moment.
//
//	           Enter, Acquire                  Renew
//	                 │                        ┌─────┐
//	          busy   ▼   free                 ▼     │
//	queued ◄──────── ? ──────────────► held, with parts ───► all their time is over: stays
//	   │                                  ▲        │          until somebody else needs the
//	   │ its turn       asks again        │        │ Leave    room, and then is evicted
//	   └──► claimed ──────────────────────┘        ▼
//	                                       the last part left
//	                                           │         │
//	                                    kept   ▼         ▼   not kept
//	                              held, without parts   free
//	                                 │           │
//	                         Release │           │ HoldTTL ends: stays until
//	                                 ▼           ▼ somebody else needs the room
//	                               free       evicted
//
// A plain lock is one part, and ends with it. A saga asks with Keep: its hold stands between steps, for the
// longer HoldTTL, and a process that dies does not end it. Where 256 or more lock IDs are on a resource, a
// grant ends all expired holds among them, also where it does not need their room, so that dead ones do not pile up. A part that
// was superseded by a later attempt, or whose hold somebody else released, drains: it can no longer be renewed,
// and keeps others out until it leaves or its TTL ends.
//
// # Two types
//
// A [Lease] is a value: what one part got on one resource. [Locker.Enter] gives leases; they can be stored, sent,
// and used by another process, and nothing renews them but [Locker.Renew]. [Locker.Leave] ends the part, and
// [Locker.Release] the hold.
//
// A [Session] is alive: leases that are renewed in the background, and a context that is cancelled when one is
// lost. [Locker.Acquire] waits for one in the queue, [Locker.TryAcquire] does not wait, and [Locker.Keep] makes one
// of leases that Enter gave, here or in another process. Sessions end with [Session.Leave] or [Session.Release],
// and not with their context: work that was cancelled still cleans up under its locks. [Session.Downgrade] lets
// readers in; [Session.Upgrade] makes a shared lock exclusive.
//
// # What it guarantees
//
// While any part trusts an exclusive lease, no part of another lock ID trusts a lease on the resource. When a
// request with a limit of N is granted, fewer than N others hold. Waiters are served in the order in which they
// came, readers and writers alike; only upgrades go first. Each grant of a resource has a greater fence than all
// before. Every operation may be repeated, and ends as if it had run once. "You hold it" is said only after a write
// that a majority of the servers has.
//
// # How long a lease may be trusted
//
// Expiry is decided by the database server's clock alone. An answer carries what is left of the promise; a part
// trusts it for that long, by its own clocks, counted from before the command was sent, less a tenth of
// the TTL: by the monotonic clock, or by the wall clock if that says that more time has passed, since the former stands still
// while a machine is suspended. A lease without end is trusted for 27 s after it was last confirmed. So no two clocks need to agree on what time it is. What a lease cannot do is stop a process that
// sleeps through it: between the look at the clock and the write that follows, a process can be paused for longer
// than its TTL. Where that matters, let the resource compare fences: each grant of a resource gets a greater one,
// for ever, and whoever remembers the greatest it has seen can refuse the rest. [UpdateFenced] does so for a
// document of MongoDB.
//
// # Errors
//
// Conditions are matched with [errors.Is], and the types carry the facts, for [errors.As]:
//
//	ErrBusy, ErrQueueFull   *BusyError        others hold it or are ahead; who, and for how long at most. Nothing was taken
//	ErrLost                 *LostError        it does not hold any more; to whom, or why
//	ErrSuperseded           *SupersededError  a later attempt or a release came first. Nothing changed
//	ErrDeadlock             *DeadlockError    it gave up its place, to end a circle of waits. What it holds stands
//	ErrFenced               *FencedError      a write with a greater fence came first. Nothing was written
//	ErrInvalid              *InvalidError     the field, the value and the bound. Nothing was sent
//	ErrUnknownOutcome       *UnknownOutcomeError
//	                                          it may have taken effect: see Cancellation
//	ErrClosed               none              Locker.Close ended it, or came before it
//	                        *LayoutError      the collection is in another layout. Nothing was written
//
// Other errors are the database's, and say that nothing was done. Busy, lost and "the database failed" are never
// mixed.
//
// # Cancellation
//
// When its context ends, Acquire leaves the queue, gives back what it took, and answers with the context's cause. So do
// TryAcquire and an Enter that does not queue, also after an answer that was lost: what a request may have got that failed is
// given back, for 5 s at most before it answers, and then in the background until that is known to have been done. An Enter
// that queues leaves what stands to its caller, who asks again, leaves or releases.
//
// Leave and Release wait for the database as long as their context allows, and send nothing after it has ended; what they
// cannot end ends with its TTL, or may be ended by calling them again. So call them with a context that has not ended:
// context.WithoutCancel, with a bound.
//
// A session outlives its context: work that was cancelled still cleans up under its locks. Such work learns of a loss from
// [Session.Lost]. [Locker.Close] ends all of this: waits, sessions, and the cleanup in the background.
//
// # Waiting
//
// Acquire waits in the queue of one resource after the other. It is woken by a release in the same Locker at once,
// by a change stream if the server has them, and else by reads, which all that wait in the process share: at
// most four a second for each resource. It does not poll with writes. Enter can queue too, for callers who come
// again by themselves; [Locker.Recheck] says when.
//
// If the holder and k waiters ahead die, a live waiter gets the resource when the holder's TTL and k claims have ended,
// however long places stand. A waiter that is not heard of for twice as long as it said is passed over, and keeps its place.
// A passing error of the database ends no wait: a waiter whose place ended in an outage queues again.
//
// # Deadlocks
//
// A request of several resources takes them in the order of their names, so such requests never wait for each other
// in a circle. Those who take one after the other can. A Locker with waiters searches the queues for circles of
// owners ([Request].Owner), and of each the owner that started last gives up, with ErrDeadlock. It has to release
// what it holds before the others go on. [Locker.Deadlocks] lists them, and [Locker.BreakDeadlocks] ends them for
// those who wait elsewhere.
//
// # Failures
//
//	what happens                        what follows
//	a holder's process dies             its part ends with its TTL; others get in then, or when the hold's TTL has ended
//	the database does not answer        a Session goes on as long as its lease can be trusted, then its context is cancelled
//	an answer is lost                   the operation is repeated: every one ends as if it had run once
//	one document cannot be written      its holders lose their locks in time; the sessions renewed with it do not
//	a command arrives late              it changes nothing: what can grant is refused when it is 10 s old, and before
//	                                    that an order that was released or superseded is
//	an owner comes back after its TTL   nobody was in between: it goes on; somebody was: ErrLost
//	a waiter dies                       it is passed over when it is overdue; a grant to it ends with Config.ClaimTTL
//	an operator releases somebody's     its parts are cut off, and keep others out until they leave or their TTL has ended
//	two wait for each other             the one that started last gets ErrDeadlock
//
// # Looking in
//
// [Locker.Status] lists who holds and who waits; the text of a [Status] says until when, and names
// what ends it. [Locker.ForceRelease] ends what does not end itself, with a reason that its holder
// gets to see. [Locker.Purge] drops what has expired. Spans of each acquire, wait, hold, renewal
// and release go to Config.TracerProvider.
//
// # What one operation costs
//
// Taking, renewing, leaving and releasing are one findAndModify per resource each, with no read before. They are
// written with majority and journal, so what was answered survives a failover. The leases of all sessions of a
// Locker are renewed together, in one command for up to 500 resources.
//
// # What is not promised
//
// On a sharded cluster the server's clock is that of the router that was asked, and after a failover it is another
// machine's: the margin has to cover what these clocks differ by. Forever is for ever: a process that dies with such
// a lease leaves it standing until it is released, and a part that is cut off with one does not drain. Deadlocks
// are found between owners. Waits for room under a limit of more than 1 are not looked at, since any of several
// holders may make that room.
//
// At length, in the repository: docs/concepts.md for what is promised, docs/operations.md for how to run
// it, and docs/internals.md for the stored document and the reasons.
package lockcore
