// Package engine is the contract between the lock library and what keeps its state: the stored document, the
// operations on it, and how to read an operation's outcome from the document that it left.
//
// Engines apply an operation to one document atomically. The rules are written down twice: for people and for
// tests as plain functions in package lockcoretest, and as MongoDB pipelines in lockcore/internal/mongoengine. A
// model test holds the one to the other, document by document.
//
// # The rules
//
// Two entries are compatible if they have the same lock ID or compatible modes. What stands in others'
// way is the live holds, the parts that were cut off and may still trust (they drain), and the claims: grants
// to waiters who have not confirmed them.
//
//  1. The same part and order again gets the same answer.
//  2. An order that was released or superseded is refused, and changes nothing.
//  3. A lock ID that holds in the same or a stronger mode joins its own hold. A greater order of a part that is
//     still there supersedes it: a new fence, and the older part is cut off.
//  4. One that holds in a weaker mode upgrades, ahead of the queue.
//  5. Compatible with what is live, and nobody ahead in the queue: granted, with a new fence.
//  6. Else it queues, if asked, or keeps its place; else it is busy.
//
// Whatever an operation does, the document is settled in the same write: what is dead goes, and the head of the queue
// is granted while it fits.
//
// Expired holds stay until an incompatible grant needs their room. Then they leave a record, so that their owner
// learns of it when it comes back.
package engine
