// Package update applies operations of package rules to documents of a store, by compare-and-set.
//
// # The update loop
//
// The operations of one process on one resource stand in a [Line], in the order of arrival. One
// goroutine per busy line applies all that wait, one after the other, to one document, and writes one
// swap for all of them. Each caller gets its own answer when a majority has the swap.
//
//  1. The document comes from the cache, or is loaded. The cache is a guess: the swap compares versions.
//  2. If anything in a cached document ends by the server's time, it is loaded: nothing ends because its
//     time is over except by the time that was read together with the document.
//  3. "Busy" needs no swap if the document was read after the call arrived. Every other answer follows
//     an acknowledged swap, since a deposed primary could give it otherwise.
//  4. On a conflict the line loads and applies its calls again, after a short pause from the second time
//     on. A line that loses several swaps in a row reserves the document for a second.
//  5. If the outcome of a swap is unknown, the line owes an acknowledged swap, whoever waits. It settles
//     all lost swaps, because it replaces the version on which they depend, and it ends what calls that
//     have given up may have been granted.
//
// A waiter of this process stays in the line, asleep. The swap that makes a claim for it applies its
// request again, so a hand-over within a process is one write.
//
// [Line] is a step function without I/O, so that a test can drive it through every interleaving.
// [Lines] drives lines with goroutines, caches documents, and pays debts that no caller waits for.
package update
