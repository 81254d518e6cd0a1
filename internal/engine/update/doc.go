// Package update applies operations of package rules to the documents of a store, by compare-and-set.
//
// # Model
//
// The operations of one process on one resource wait in a [Line], in order of arrival. One goroutine
// per busy line applies all that wait to one document, and writes one swap for all of them:
//
//	callers ──Submit──▶ Line ──Next──▶ load ─▶ apply all calls ─▶ swap ──▶ replies
//	                     ▲              ▲                          │
//	                     │              └────── conflict ──────────┤
//	                     └── debt ◀──────────── unknown outcome ───┘
//
// Line is a state machine without I/O, so that a test can drive it through every interleaving. Handle changes it
// by an [Event], such as a new call or the result of a swap, and returns the answers that the event causes: see
// event.go. Next returns what to do next: see line.go. [Lines] drives the lines with goroutines: see loop.go,
// which begins with start and run, and also estimates the server's time. ticket.go is the callers' side, and keeps
// the documents of idle lines; several.go writes the documents of several resources with one command.
//
// # The update loop
//
//  1. The document comes from the cache, or is loaded. The cache may be stale: the swap compares
//     versions.
//  2. If an entry or a waiter of a cached document ends by the server's time, the document is loaded.
//     Nothing expires except by a time that was read together with the document.
//  3. All waiting calls are applied to the document, one after the other.
//  4. Answers that are [rules.Result.ReadOnly], such as busy, need no swap if the document was read
//     after the call arrived. Every other answer is given after an acknowledged swap, because a deposed
//     primary could have caused it otherwise.
//  5. The swap has four outcomes:
//     - Acknowledged: the callers get their answers.
//     - Conflict: the line loads the document and applies its calls again, after a short pause from
//     the second time on. After several conflicts in a row it reserves the document for a second.
//     - Not sent: the line retries.
//     - Unknown: the line owes an acknowledged swap, even if no caller waits for it any longer. That
//     swap settles all lost ones, because it replaces the version on which they depend, and it undoes
//     what abandoned calls may have been granted.
//
// An Acquire that queues can stay in the line, asleep. The swap that makes a claim for it applies the
// Acquire again, so a hand-over within a process is one write.
//
// # Guarantees
//
//   - An answer other than busy, full or another run follows a majority write made after the call arrived.
//   - A call whose context ends is either not applied, or taken back by a later swap.
//   - When no line owes a swap, no late copy of a swap of this process can be applied.
//   - Operations of one process on one resource are applied in the order of their arrival.
//
// # Not guaranteed
//
// Operations of different processes, or on different resources, are not ordered. A debt that cannot be paid before
// Close is lost; the entries that it would have removed end with their TTLs.
package update
