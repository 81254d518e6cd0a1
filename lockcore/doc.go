// Package lockcore is a lock library on MongoDB: exclusive and shared locks and semaphores, with leases,
// fencing tokens and a queue. It knows nothing of Temporal.
//
// # The model
//
// A resource is a string, such as "account/42", and a document in the collection. A lock ID names one hold
// on it; requests of one lock ID never block each other. A hold has parts, its running users: an
// attempt of a step, or a [Session] in plain Go. Only a part trusts the lock at this moment.
//
//	           Enter, Acquire                    Renew
//	                 │                          ┌─────┐
//	          busy   ▼   free                   ▼     │
//	queued ◄──────── ? ────────────────► held, with parts ──────┐ a part's TTL ends: the
//	   │                                   ▲         │ Leave    │ next request of the part supersedes it
//	   │ its turn         Enter of the     │         ▼          │
//	   └──► claimed ───────────────────────┘   the last part left
//	                                             │           │
//	                                     kept    ▼           ▼  not kept
//	                                held, without parts     free
//	                                  │             │
//	                          Release │             │ HoldTTL ends: stays until
//	                                  ▼             ▼ somebody else needs the room
//	                                free         evicted
//
// A plain lock is one part, and ends with it. A saga asks with Keep: its hold stands between steps, for the
// longer HoldTTL, and a process that dies does not end it.
//
// # How long a lease may be trusted
//
// Expiry is decided by the database server's clock alone. An answer carries what is left of the promise; a
// part trusts it for that long, on its own monotonic clock, counted from before the command was sent, less a
// tenth of the TTL. So the clocks of processes need not agree with anybody's. What a lease cannot do is stop
// a process that sleeps through it: between the look at the clock and the write that follows, a process can be
// paused for longer than its TTL. Where that matters, let the resource compare fences: each grant of
// a resource gets a greater one, for ever, and whoever remembers the greatest it has seen can refuse the rest.
//
// # Failures
//
//	what happens                        what follows
//	a holder's process dies             its part ends with its TTL; others get in then, or when the hold's TTL has ended
//	the database does not answer        a Session goes on as long as its lease can be trusted, then its context is cancelled
//	an answer is lost                   the operation is repeated: every one ends as if it had run once
//	a command arrives late              it changes nothing: an order that was released or superseded is refused
//	an owner comes back after its TTL   nobody was in between: it goes on; somebody was: ErrLost
//	a waiter dies                       its place ends with Config.WaiterTTL, a grant to it with Config.ClaimTTL
//	an operator releases somebody's     its parts are cut off, and keep others out until they leave or their TTL has ended
//
// # What one operation costs
//
// Taking, renewing, leaving and releasing are one findAndModify per resource each, with no read before. They
// are written with majority and journal, so what was answered survives a failover.
//
// # What is not promised
//
// On a sharded cluster the server's clock is the router's; several routers are several clocks, and the
// margin has to cover what they differ by. Two requests that take resources one after the other in opposite order
// wait for each other: take them in one request, which sorts them. Forever is for ever: a process that dies
// with such a lease leaves it standing until somebody releases it.
package lockcore
