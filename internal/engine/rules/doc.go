// Package rules contains the lock rules as pure functions: the stored document of one resource, and
// the effect of every operation on it. It does no I/O, starts no goroutine and reads no clock.
//
//	document, operation, server time  --Apply-->  new document, Result
//
// Package store keeps the documents, and package update applies operations to them. Waiting, status,
// deadlock search and the contention report read documents through the functions of this package;
// none of them implements a rule again. docs/internals.md explains the reasons.
//
// # Model
//
//	Document
//	├── Entries   each belongs to a lock ID
//	│   ├── running    a part: one request under a lease
//	│   ├── kept       the hold itself, which outlives its parts, and its bars
//	│   ├── claimed    a grant to a waiter that is not yet confirmed
//	│   └── draining   a part that was cut off; it blocks others while its lease may be trusted
//	├── Waiters   the queue, first come, first served within a priority
//	├── Evidence  records of evictions, forced releases and take-overs
//	├── Forced    the last forced releases, for people
//	├── Missed    losses that were found out after a commit, for people
//	├── Releases  the order up to which each run has released everything
//	└── Bars      requests that a compensation has overtaken, of lock IDs that keep nothing
//
// A hold is all running and kept entries of a lock ID. It has a fence, and a part may have a later one.
//
// What the parts of a hold share is derived from its entries. Each request adds entries of its own, which
// have the mode, the limit and the TTL of that request, and no request changes those of another. So a
// request is taken back by removing what it added. With Keep a request adds a kept entry as well as its
// part. When the part has ended, that entry merges into the one settled kept entry of the lock ID: the
// stronger mode, the longer TTL, the later end, and all orders and fences. See hold.go.
//
// # Acquire
//
// Acquire applies the first of these rules that matches:
//
//  1. Another run represents the lock ID: [OtherRun].
//  2. The order was released or barred, or a later request of the same part or another call with the
//     order of a living part came first: [Superseded].
//  3. The part was withdrawn as the victim of a deadlock, and has not left since: [Deadlock].
//  4. There is evidence of a loss that its hold has not outlived, of its run or, since LostSince, of any run; or
//     HeldSince names a request before the hold began: [Lost].
//  5. The same call was granted before: [Again].
//  6. The lock ID holds in the same or a stronger mode: the request joins that hold, [Joined]. An
//     earlier request of the same part is superseded: it drains, and the new one gets a new fence.
//  7. The request has a claim that suffices, see confirms; or it is admitted in addition to all
//     living entries of others, and either its lock ID holds already, in a weaker mode, or no living
//     waiter is ahead, apart from waiters for a certain member of a pool: [Granted], with a new fence.
//  8. Otherwise the request queues if Queue is set, or keeps its position: [Queued]. Without Queue it
//     is [Busy]; if the queue has no room it is [Full], and if the policy does not permit it, [Unreadable],
//     [NoPool] or [OnlyPool]. Requests of lock IDs that hold, requests whose claim has lapsed, and those for a
//     lost member of a pool queue ahead of all others, even if the queue is full. Other requests pass waiters of
//     lower priority: see priority.go.
//
// A refused request takes nothing. What rule 1 lets it take over remains. A
// request with Keep that queues extends what its lock ID keeps, and so does every grant.
//
// # Settling
//
// Every operation also settles the document:
//
//   - Waiters that were not refreshed in time leave the queue.
//   - From the head of the queue on, waiters are granted claims as long as the next one is admitted in
//     addition to all entries, claims of the same write included. Waiters behind the first one that is
//     not admitted are not considered, unless it waits for a certain member of a pool. A waiter that needs no
//     part is granted its hold at once.
//   - A limit is that of the request, unless a policy of an operator replaces it: see [Policies]. It counts
//     at the grant alone: not when a claim is confirmed, or a hold is joined.
//   - A grant or a claim of a pool chooses a member, which the entry keeps: see pool.go.
//   - Expired holds whose room a grant or a claim needs are evicted and leave evidence.
//   - A write that grants anything marks the claims that have lapsed: they are not confirmed later.
//
// # Files
//
//	document.go    what is stored, and whose it is
//	ops.go         what all operations have in common, their bounds and their answers
//	acquire.go     the rules above, in their order
//	superseded.go  rules 1 and 2: requests of replaced runs, and requests that a release or a bar overtook
//	hold.go        what a lock ID holds, keeps between its parts, and has lost: rule 4
//	compat.go      who may hold at the same time, and the limits that operators set
//	pool.go        pools, and which member a grant chooses
//	priority.go    the order of the queue
//	settle.go      how every operation begins and ends: grants to the queue, and evictions
//	renew.go       what prolongs an entry; end.go: what ends it
//	queue.go       the meaning of a document for its waiters
//
// # Guarantees
//
//   - Incompatible leases are never in force at the same time, by the times that the caller passes.
//   - No two lock IDs have living entries with the same member of a pool, apart from a lock ID and what its steps hold
//     within it.
//   - Fences of a resource strictly increase.
//   - An operation changes only what it names, apart from settling.
//   - An operation that is repeated with the same call ID ends as if it had run once.
//   - A request that is taken back leaves the document as settling alone would have left it, apart from
//     fences, times, evictions, take-overs, and its part's own earlier request.
//   - No operation panics or changes its argument, whatever the document contains.
//
// # Not guaranteed
//
// The rules trust their caller for the time: nothing may expire by a time that was not read together
// with the document. They do not detect deadlocks; package lockcore does, and withdraws the victim. A
// lock ID that is used with runs must never be used without.
package rules
