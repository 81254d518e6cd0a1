// Package engine is the contract between the lock library and what keeps its state: the stored
// document, the operations on it, and what a document means for a request. An engine applies each
// operation to one document atomically. The rules stand twice, as functions in lockcoretest and as
// pipelines in internal/mongoengine, and a model test compares the documents that they leave. The
// reasons are in docs/internals.md.
//
// # The rules of Acquire
//
//  0. A request that comes later than [CommandTimeout] after it was issued is refused.
//  1. The same part and order again gets the same answer.
//  2. An order that was released, or overtaken by a later request of the same part, is refused. This
//     is tried before rule 1. A lock ID that is known to have held, and holds no more, is told next.
//  3. A lock ID that holds in the same or a stronger mode joins its own hold. A part that is still
//     there under a smaller order is superseded: a new fence, and it drains.
//  4. A lock ID that holds in a weaker mode upgrades all of its hold, ahead of the queue, with a new
//     fence.
//  5. Room, and no live waiter ahead: granted, with a new fence. A claim has no waiter ahead.
//  6. Else it queues, if asked, or keeps its place; else it is busy. A lock ID that holds, and a
//     request that let its claim lapse, queue ahead of all others, also if the queue is full.
//
// A refusal changes nothing. A request with Persist is a sign of life of its kept hold, whatever
// the answer, unless it was refused.
//
// # What every write does
//
// Every operation settles the document in the same write. Places that were not refreshed go. The
// first in the queue is granted a claim if it fits, and so are those right behind it with the same
// limit, as many as there is room for. Holds whose room is given away so leave evidence.
package rules
