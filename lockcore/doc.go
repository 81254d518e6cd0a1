// Package lockcore is a lock library on MongoDB: exclusive and shared locks and semaphores, with
// leases, fencing tokens and a queue.
//
//	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
//	...
//	session, err := locker.Acquire(ctx, lockcore.Request{
//		LockID:    "nightly-report/" + rand.Text(),
//		Resources: []lockcore.Resource{lockcore.Exclusive("report")},
//	})
//	if err != nil {
//		return err // ctx's cause, or for example a *BusyError that names the holder
//	}
//	defer session.Release(context.WithoutCancel(ctx))
//	return work(session.Context()) // cancelled, with the cause, when the lock is lost
//
// # The model
//
// A resource is a string, such as "account/42", and a document in the collection. A lock ID names
// one hold on it; requests of one lock ID never block each other. A [Session] is one user of the hold:
// its leases are renewed in the background, and its context is cancelled when one is lost.
//
//	                  Acquire                         renewed
//	                     │                            ┌─────┐
//	           busy      ▼      free                  ▼     │
//	queued ◄──────────── ? ─────────────────────────► held ─┴─► TTL over: stays until another
//	   │                                               ▲  │     request needs the room, and is
//	   │ granted by the write that frees the resource  │  │     evicted then
//	   └───────────────────────────────────────────────┘  ▼ Release
//	                                                     free
//
// A [Lease] is a value: what a session has on one resource. It can be stored or sent, and another
// process continues with it by [Locker.Resume], or ends it by [Locker.Leave].
//
// # What it guarantees
//
// While any session trusts an exclusive lease, no session of another lock ID trusts a lease on the
// resource. A request with a limit of N is granted if fewer than N others hold. Waiters are served
// in the order in which they queued; only upgrades go first. Each grant of a resource has a greater
// fence than all before. Every operation may be repeated, and ends as if it had run once. "You hold
// it" is answered only after a write that a majority of the servers has.
//
// The database server's clock alone decides expiry. A session trusts a lease from before its command
// was sent for as long as the answer allows, less a tenth of the TTL. It uses its monotonic or its
// wall clock, whichever has advanced more; no two clocks must agree. A process can still be paused
// between its look at the clock and the write that follows. If that matters, let the resource compare
// fences; [UpdateFenced] does so for a document of MongoDB.
//
// # Errors
//
// Conditions are matched with [errors.Is], and the types carry the facts, for [errors.As]:
//
//	ErrBusy, ErrQueueFull   *BusyError            others hold it or are ahead. Nothing was taken
//	ErrLost                 *LostError            it is not held any longer; to whom it went, or why
//	ErrDeadlock             *DeadlockError        it left the queue, to end a circle of waits
//	ErrFenced               *FencedError          a greater fence came first. Nothing was written
//	ErrInvalid              *InvalidError         the field, the value and the bound. Nothing was sent
//	ErrUnknownOutcome       *UnknownOutcomeError  it may have been applied
//	ErrClosed                                     Locker.Close ended it, or came before it
//	                        *LayoutError          another layout. Nothing was written
//
// Other errors are the database's, and nothing was done.
//
// # Cancellation
//
// When its context ends, Acquire leaves the queue, gives back what it took, and returns the context's
// cause. If an answer was lost, what the request may have taken is given back in the background, with
// the next write of the document that is acknowledged.
//
// Leave and Release send nothing after their context has ended; what they cannot end ends with its
// TTL. So call them with a context that has not ended: context.WithoutCancel, with a bound. A
// session outlives its context: work that was cancelled still cleans up under its locks, and learns
// of a loss from [Session.Lost]. [Locker.Close] ends all of this: waits, sessions, and background
// work.
//
// # Waiting
//
// Acquire waits in the queue of one resource after the other. A release in the same Locker grants a
// waiter the resource in the same write. Grants by other processes are found by reads, which all
// waiters in the process share: four a second for each resource, or up to fifty shortly before a
// grant is expected.
//
// A request of several resources takes them in the order of their names, so such requests never
// wait for each other in a circle. Requests that are made one after the other can. A Locker with
// waiters searches the queues for circles of owners ([Request].Owner), and of each the owner that
// started last gets ErrDeadlock. It must release what it holds before the others go on. Waits for
// room under a limit of more than 1 are not part of a circle.
//
// # Cost
//
// The rules are Go functions; the database stores documents and compares versions. Acquiring and
// releasing are one replacement of a document each, and a read before if the process does not know
// the document, or if others hold it or wait. Operations of one process on one resource that come
// together share one replacement. Requests of several resources that are free are one read and one
// command for all. Leases of all sessions are renewed together, in one command for up to 500
// resources.
//
// In the repository: docs/concepts.md for what is promised and what is not, docs/production.md for
// failures, clocks and operation, and docs/internals.md for the stored document and the
// reasons.
package lockcore
