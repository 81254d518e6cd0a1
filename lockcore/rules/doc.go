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
//	│   ├── kept       the hold itself, which outlives its parts
//	│   ├── claimed    a grant to a waiter that is not yet confirmed
//	│   └── draining   a part that was cut off; it blocks others while its lease may be trusted
//	├── Waiters   the queue, first come, first served
//	├── Evidence  records of evictions, forced releases and take-overs
//	├── Forced    the last forced releases, for people
//	├── Releases  the order up to which each run has released everything
//	└── Bars      requests that a compensation has overtaken
//
// A hold is all running and kept entries of a lock ID. They have the same mode. A hold has a fence,
// and a part may have a later one.
//
// # Acquire
//
// Acquire applies the first of these rules that matches:
//
//  1. Another run represents the lock ID: [OtherRun].
//  2. The order was released or barred, or a later request of the same part or another call with the
//     order of a living part came first: [Superseded].
//  3. The part was withdrawn as the victim of a deadlock, and has not left since: [Deadlock].
//  4. The lock ID is known to have held, and does not hold any longer: [Lost].
//  5. The same call was granted before: [Again].
//  6. The lock ID holds in the same or a stronger mode: the request joins that hold, [Joined]. An
//     earlier request of the same part is superseded: it drains, and the new one gets a new fence.
//  7. The lock ID holds in a weaker mode: the request upgrades the whole hold, ahead of the queue, with
//     a new fence: [Granted].
//  8. There is room, and either the request has a claim or no living waiter is ahead: [Granted], with
//     a new fence.
//  9. Otherwise the request queues if Queue is set, or keeps its position: [Queued]. Without Queue it
//     is [Busy]; if the queue has no room it is [Full]. Requests of lock IDs that hold, and requests
//     whose claim has lapsed, queue ahead of all others, even if the queue is full.
//
// A refused request takes nothing. What rule 1 lets it take over, and what its Undo bars, stands. A
// request with Persist renews its kept hold whatever the answer, unless it was refused by rule 1 or 2.
//
// # Settling
//
// Every operation also settles the document:
//
//   - Waiters that were not refreshed in time leave the queue.
//   - The head of the queue is granted a claim if it fits, and so are the waiters directly behind it
//     that have the same limit, as many as there is room for. A waiter that needs no part is granted
//     its hold at once.
//   - Expired holds whose room is given away are evicted and leave evidence.
//
// # Guarantees
//
//   - Incompatible leases are never in force at the same time, by the times that the caller passes.
//   - Fences of a resource strictly increase.
//   - An operation changes only what it names, apart from settling.
//   - An operation that is repeated with the same call ID ends as if it had run once.
//   - No operation panics or changes its argument, whatever the document contains.
//
// # Not guaranteed
//
// The rules trust their caller for the time: nothing may expire by a time that was not read together
// with the document. They do not detect deadlocks; package party does, and withdraws the victim. A
// lock ID that is used with run labels must never be used without.
package rules
