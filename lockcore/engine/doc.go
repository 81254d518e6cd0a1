// Package engine is the contract between the lock library and what keeps its state: the stored document, the
// operations on it, and how to read an operation's outcome from the document that it left.
//
// Engines apply an operation to one document atomically. The rules are written down twice: for people and for tests
// as plain functions in package lockcoretest, and as MongoDB pipelines in lockcore/internal/mongoengine. A model
// test holds the one to the other, document by document. Why a rule is as it is, is told in docs/internals.md.
//
// # The rules
//
// Everything that stands in somebody's way is an entry of one list, Held: parts that run, holds that are kept
// without them, parts that were cut off and may still trust (they drain), and claims, which are grants to waiters
// who have not confirmed them. Two entries go together if they have the same lock ID or compatible modes. An entry
// that has expired is in nobody's way. An exclusive request counts as one with a limit of 1.
//
//  0. A request that comes later than CommandTimeout after it was issued is refused, and changes nothing.
//  1. The same part and order again gets the same answer.
//  2. An order that was released, or that a later request of the same part has overtaken, is refused and changes
//     nothing.
//  3. A lock ID that holds in the same or a stronger mode joins its own hold. A part that is still there under a
//     smaller order is superseded: a new fence, and it drains.
//  4. A lock ID that holds in a weaker mode upgrades, ahead of the queue, with a new fence. All of its hold is
//     upgraded.
//  5. Room, and nobody ahead in the queue: granted, with a new fence. A request that has a claim has nobody ahead.
//  6. Else it queues, if asked, or keeps its place; else it is busy. A lock ID that holds queues ahead
//     of all others, and also if the queue is full; so does a request that let its claim lapse and
//     comes back before its place is over. Among themselves they are served in the order in which
//     they came.
//
// Rule 2 is tried before rule 1. Between the two, a lock ID that is known to have held, and does not any more, is
// told that it has lost.
//
// Whoever asks with Keep gives a sign of life for its kept hold, whatever the answer, unless rule 2 refused it.
//
// Renew extends one part and its kept hold. Leave ends one part, Release a lock ID's entries up to an order: its
// parts drain, but for the one that is known to have stopped. Both leave a record.
//
// Withdraw takes a waiter out of the queue, to end a deadlock. A tombstone stays in its place until
// its part has left, or until the place would have been given up. Every request of that part reads
// the verdict meanwhile, whatever its order. A tombstone is in no other's way.
//
// Whatever an operation does, the document is settled in the same write. Places that nobody refreshed
// go. The first in the queue is granted a claim if it fits, and so are those right behind it that ask
// for no smaller limit, as many as there is room for. Waiters that are overdue are passed over.
// A claim tells of the hold that ended in that write, and the part that confirms it keeps that.
//
// Expired holds stay until their room is given away. Then they leave a record, so that their owner learns of it
// when it comes back. Beside a crowd, of [Crowd] or more other lock IDs, a grant ends those that have expired though it
// does not need their room, so that a document stays small.
package engine
