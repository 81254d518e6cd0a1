// Package simulation runs whole Lockers against each other in virtual time, and checks their writes and their answers.
//
// A seed draws 3 to 8 processes, each with a Locker, 2 to 4 resources, and a few actors that use locks in the ways of real
// users: one lock after the other, several at once, by trying, with upgrades and downgrades, with kept holds, as sagas that
// park, with leases of all lengths, and by force. [RunWorkflows] also runs workflows: sagas that are reset during a step while
// the step continues in the old run, that bar their steps and compensate, that verify and then release, and that have steps
// with their own lock IDs.
//
//	plan.go        what a seed draws
//	world.go       one play from beginning to end, its history and its violation
//	process.go     a process with a Locker, and its clock
//	network.go     the commands of a process, with faults
//	database.go    the server: documents, earlier states, clock, outages
//	actors.go      users of locks; sagas.go and workflows.go: the users that park or have runs
//	writes.go      checks of each write
//	answers.go     checks of each answer
//	waiting.go     checks of waiting requests and deadlocks
//	ending.go      the end of a play, and checks of leftovers
//
// # Faults
//
// All Lockers share one store in memory, and each has its own network. Commands are slow, refused, or lose their answers; a
// refused command may be applied later, and a command without an answer a second time. A command for several documents may be
// applied in part, with other writes in between. Reads may return an old state, as a deposed primary does. A majority has a
// write only some time after the primary. There are outages, documents that cannot be written, processes that are frozen or
// killed or twenty times slower than others, and a server clock that jitters and is set back. A seed has a few of these, not
// all, because frequent faults hide rare ones.
//
// Time is that of a bubble of testing/synctest: an hour takes as long as its events do. Each process waits by its own clock
// (see package clock), which stops while the process is frozen. Latencies follow from the seed, the process, and the number of
// earlier commands; all other draws follow from the seed, the process and the time. A seed that fails therefore fails again,
// unless goroutines of the same instant are scheduled in another order, which rarely matters: MUTANTS.md reports how often, for
// each seed that finds a defect.
//
// # Checks
//
// Every applied write is checked by the documents before and after it, and every answer of a Locker by the writes and reads
// before it:
//
//	I1   no two sessions with incompatible leases trust them at the same time, nor sessions of different runs of a workflow,
//	     nor a step and its compensation; a grant finds no incompatible entry; no lease is shortened
//	I2   a grant with a limit finds fewer others
//	I3   fences grow
//	I4   no waiter ahead of a granted one still waits; the queue keeps its order
//	I5   an entry in force ends only if a call named it
//	I6   a part that was ended does not return; a commit reports its holds
//	bar  no step trusts a lease after a bar of its saga was raised
//	I7   an answer follows an acknowledged write that was made after the question, and "busy" at least such a read
//	I8   a hold that has ended does not return, and a loss remains a loss
//	I9   the first waiter for a free resource is granted it within a bound, and everything ends
//	I11  a request that gave up leaves nothing; when all actors have ended or died, every resource can be acquired
//	I12  only requests in a deadlock are withdrawn, deadlocks end, and a victim that waits without a process is woken
//
// In addition: nothing expires except by a time that was read with the document; a session reports the end of its lease, and no
// other loss; a patient request does not fail because of a passing error; an upgrade is never refused; and no process repeats
// commands, or uses its clock, without a pause. I10 concerns commands, which this store does not have.
//
// The bound of I9 begins when the resource is free for the first waiter and its process has had no trouble since: no freeze, no
// outage, no failed command. It follows from the intervals in package pace, and so does the bound for deadlocks: see grantWithin,
// parkedWithin, breakWithin and toldWithin. The bounds of the end follow from the TTLs that the seed has drawn.
//
// # When a seed fails
//
// The history of a violation lists the calls, answers and writes of the 30 s before it, and the documents.
// "make simulate FROM=7 SEEDS=1" repeats it. First verify the check itself: a wrong check costs more than a missing one.
package simulation
