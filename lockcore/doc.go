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
//		return err // ctx's cause, or an error such as *BusyError, if the queue is full
//	}
//	defer session.Release(context.WithoutCancel(ctx))
//	return work(session.Context()) // cancelled, with the cause, when the lock is lost
//
// # The model
//
// A resource is a string, such as "account/42". The collection has one document for it. A lock ID names
// a party that locks: its requests for one resource share a hold and do not block each other. A
// [Session] is what Acquire returns: it renews its leases in the background, and its context is
// cancelled when one is lost. Leave ends the use of the locks by this session only, and Release ends
// the holds of the lock ID.
//
//	                  Acquire                         renewed
//	                     │                            ┌─────┐
//	           busy      ▼      free                  ▼     │
//	queued ◄──────────── ? ─────────────────────────► held ─┴─► TTL expired: stays until another
//	   │                                               ▲  │     request needs the resource, then
//	   │ granted by the write that frees the resource  │  │     is evicted
//	   └───────────────────────────────────────────────┘  ▼ Release
//	                                                     free
//
// A [Lease] is a plain struct that describes a session's lock on one resource. It can be stored or
// sent to another process, which takes it over with [Locker.Resume] or ends it with [Locker.Leave].
//
// # What it guarantees
//
// While a session considers an exclusive lease valid, no session of another lock ID considers a lease
// on the same resource valid. A request with a limit of N is granted only while fewer than N others
// hold the resource. Waiters are granted the resource in the order in which they queued. Upgrades, and
// requests of a lock ID that holds the resource already, skip the queue; a waiter whose process has died
// is passed. Each grant of a resource has a greater fence than every earlier one. Every operation may be
// repeated, with the same result as if it had run once. A grant is reported only after a
// majority-acknowledged write.
//
// The database server's clock alone, which each read returns, decides whether others may evict a lock.
// A session stops trusting its lease earlier, by its own clock: when 90 % of the TTL have passed since
// just before it sent the command. On Linux it measures by a clock that is never set and that includes the
// time in which the machine was suspended; elsewhere by its monotonic or its wall clock, whichever has
// advanced more. Clocks of different machines need not agree. A process can still be paused between
// checking the clock and the write that follows. If that matters, let the resource compare fences;
// [UpdateFenced] does so for a MongoDB document.
//
// # Errors
//
// Match conditions with [errors.Is], and get the details from the types with [errors.As]:
//
//	ErrBusy, ErrQueueFull   *BusyError            others hold it or are ahead in the queue. Nothing was acquired
//	ErrLost                 *LostError            the lock is no longer held; names the reason or the next holder
//	ErrDeadlock             *DeadlockError        the request was removed from the queue to end a cycle of waits
//	ErrSuperseded           *SupersededError      a newer request, or a release, was applied before this one. Nothing changed
//	ErrFenced               *FencedError          the document has a greater fence. Nothing was written
//	ErrInvalid              *InvalidError         an argument is invalid. Nothing was sent
//	ErrUnknownOutcome       *UnknownOutcomeError  the operation may have been applied
//	ErrClosed                                     the Locker was closed, before or during the call
//	ErrEnded                                      the cause of a session's context after Leave or Release
//	                        *LayoutError          the documents were written by an incompatible version. Nothing was written
//
// Other errors of a Locker are the cause of the caller's context, or come from the database. In the
// latter case the operation was not applied.
//
// # Cancellation
//
// When its context ends, Acquire leaves the queue, releases what it has acquired, and returns the
// context's cause. If an answer was lost, this process releases what the request may have acquired
// together with its next write to that document.
//
// Leave and Release send nothing after their context has ended; locks that they could not end expire
// with their TTL. One that never expires, and for which a command was sent, is ended in the background. So
// call them with context.WithoutCancel, and a timeout if the program must not wait for the database. A session outlives the context that was passed to Acquire: cancelled work can still
// clean up under its locks, and learns of a loss from [Session.Lost]. [Locker.Close] ends waits and
// sessions, and waits up to 20 s for their cleanup.
//
// # Waiting
//
// Acquire takes one resource at a time, and waits in its queue. The write that releases a resource also
// grants it to the next waiter. Grants by other processes are found by reads, which all waiters in the
// process share: four a second for each resource, or up to fifty shortly before a grant is expected.
//
// A request for several resources acquires them in the order of their names, so two such requests never
// deadlock. Owners that make several requests each can. A Locker with waiters searches the queues for
// cycles of owners ([Request].Owner). In each cycle, the owner that started last gets ErrDeadlock, and
// must release what it holds before the others can continue. Waits for a semaphore with a limit above 1
// are not considered.
//
// # Cost
//
// The lock rules are Go functions; the database stores documents and compares versions. An acquire and
// a release each replace the document once. A read precedes that if the process has not cached the
// document, or if others hold the resource or wait for it. Operations of one process on one resource that
// arrive at the same time share one replacement. A request for several free resources takes one read and
// one command. The leases of all sessions are renewed together, in one command for up to 500 resources.
//
// In the repository: docs/guarantees.md lists what is guaranteed and what is not, docs/production.md
// covers failures, clocks and operation, and docs/internals.md the document format and design
// decisions.
package lockcore
