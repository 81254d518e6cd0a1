// Package lockcore is a lock library on MongoDB: exclusive and shared locks, semaphores and pools, with leases,
// fencing tokens and a queue.
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
// A resource is a string, such as "account/42". A lock ID names who locks. Requests of one lock ID for a
// resource share a hold, and never block each other, so independent users need lock IDs of their own.
// Acquire waits, at most for MaxWait, and [Locker.TryAcquire] does not. Both return a [Session], which renews
// its leases in the background, and whose context is cancelled when one is lost. [Session.Leave] ends the use
// of the locks by this session, and [Session.Release] ends the holds of its lock ID.
//
//	                  Acquire                         renewed
//	                     │                            ┌─────┐
//	           busy      ▼      free                  ▼     │
//	queued ◄──────────── ? ─────────────────────────► held ─┴─► TTL expired: stays until another
//	   │                                               ▲  │     request needs the resource, then
//	   │ granted by the write that frees the resource  │  │     is evicted
//	   └───────────────────────────────────────────────┘  ▼ Leave or Release
//	                                                     free
//
// A [Lease] is a plain struct that can be sent to another process: see [Locker.Resume] and [Locker.Leave].
//
// # Guarantees
//
// While a session considers an exclusive lease valid, no session of another lock ID considers a lease on
// the same resource valid. A request with a limit of N is granted only while fewer than N others hold the
// resource. Waiters of one priority are granted the resource in the order in which they queued, except those whose
// process has died. Upgrades, and requests of a lock ID that holds the resource, skip the queue. Each grant has
// a greater fence than every earlier one. It is reported only after a majority-acknowledged write. Every
// operation of a Locker may be repeated, as if it was carried out once.
//
// The database server's clock alone decides whether others may evict a lock. A session stops trusting its
// lease earlier, by its own clock: when 90 % of the TTL have passed since just before it sent the command.
// Clocks of different machines need not agree. A process can still be paused between checking the clock and the
// write that follows. If that matters, let the resource compare fences; [UpdateFenced] does so in MongoDB.
//
// # Errors
//
// Match conditions with [errors.Is], and types with [errors.As]:
//
//	ErrBusy, ErrQueueFull   *BusyError            others hold it or are ahead in the queue
//	ErrLost                 *LostError            the lock is no longer held
//	ErrDeadlock             *DeadlockError        the request left the queue to end a cycle of waits
//	ErrSuperseded           *SupersededError      a newer request, or a release, came first
//	ErrFenced               *FencedError          the document has a greater fence
//	ErrInvalid              *InvalidError         an argument is invalid
//	ErrUnknownOutcome       *UnknownOutcomeError  the operation may have been applied
//	ErrDamaged              *DamagedError         the resource's document cannot be decoded
//	ErrNoPool                                     no operator has made the pool
//	                        *LayoutError          the collection has documents of another kind
//	ErrClosed                                     the Locker was closed, before or during the call
//	ErrNoPolicy                                   there is no policy to remove
//	ErrEnded                                      the cause of a session's context after its end
//
// Other errors are the context's cause, or the database's. After these the operation was not applied.
//
// # Cancellation
//
// When its context ends, Acquire leaves the queue, releases what it has acquired, and returns the context's
// cause. A session outlives that context, so that cancelled work can clean up under its locks. Leave and Release
// send nothing after theirs has ended: call them with context.WithoutCancel.
//
// # Waiting
//
// The write that releases a resource also grants it to the next waiter. A waiter in another process finds
// the grant by a read. All waiters of a process share these reads: four a second for each resource, up to fifty
// before a grant.
//
// A request acquires its resources in the order of their names, so two requests never deadlock. Owners
// that make several requests can: see [Request].Owner. A Locker with waiters searches the queues for cycles
// of owners. In each, the owner that started last gets ErrDeadlock, and must release what it holds.
//
// In the repository: docs/guarantees.md, docs/production.md, docs/internals.md.
package lockcore
