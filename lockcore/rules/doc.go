// Package rules contains the lock rules as pure functions: the stored document of one resource, and
// what every operation does to it. It does no I/O, starts no goroutine and reads no clock. Package
// store keeps the documents, package update applies operations to them, and everything that asks who
// is in whose way asks here. docs/internals.md in the repository gives the reasons.
//
// # The rules of Acquire
//
//  1. If another run represents the lock ID, nothing happens: [OtherRun].
//  2. An order that was released or barred, or that a later request of the same part has overtaken, is
//     refused, and so is another call with the order of a living part: [Superseded].
//  3. The victim of a deadlock is told so until its part leaves: [Deadlock].
//  4. A lock ID that is known to have held, and does not hold any longer: [Lost].
//  5. The same call again gets the same answer: [Again].
//  6. A lock ID that holds in the same or a stronger mode joins its own hold: [Joined]. A part that
//     exists with a smaller order is superseded: the new one has a new fence, and the old one drains.
//  7. A lock ID that holds in a weaker mode upgrades its whole hold, ahead of the queue, with a new
//     fence: [Granted].
//  8. If there is room, and no living waiter is ahead, it is granted with a new fence: [Granted]. A
//     claim has no waiter ahead.
//  9. Otherwise it queues, if asked, or keeps its position: [Queued]; or it is [Busy] or [Full]. A lock
//     ID that holds, and a request that let its claim lapse, queue ahead of all others, even if the
//     queue is full.
//
// A refusal changes nothing. A request with Persist renews its kept hold, whatever the answer, unless
// it was refused.
//
// # What every operation settles
//
// Waiters that were not refreshed in time leave the queue. The head of the queue is granted a claim if
// it fits, and so are the waiters right behind it with the same limit, as many as there is room for.
// A waiter that needs no part is granted its hold at once. Expired holds whose room is given away
// leave evidence.
package rules
