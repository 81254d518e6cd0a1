// Package simulation plays whole Lockers against each other, in virtual time, and checks what they write and what their
// users are told.
//
// A seed draws 3 to 8 processes, each with a Locker, 2 to 4 resources, and a few actors that take locks in the ways that
// users do: one after the other, several at once, by trying, up and down, with kept holds, as sagas that park, with leases of
// all lengths, and by force. [RunWorkflows] plays workflows beside others: sagas that are reset in the middle of a step, whose
// old steps continue, that bar their steps and compensate, that verify and then release, and that have steps with lock IDs of
// their own.
//
// # Faults
//
// All Lockers work on one store in memory, each through a network of its own: see network.go. Commands are slow, refused, or
// lose their answers; a refused one may be applied later, and one without an answer a second time. A command for several
// documents may be applied in part, with other writes in between. Reads may return an old state, as a deposed primary does. A
// majority has a write only some time after the primary. There are outages, documents that cannot be written, processes that
// are frozen or killed, or that are twenty times slower than others, and a server clock that jitters and is set back. A seed
// has a few of these, not all: what happens often hides what happens seldom.
//
// Time is that of a bubble of testing/synctest: an hour takes as long as its events do. Each process waits by a clock of its
// own (see lockcore's package clock), which stops while the process is frozen. Latencies follow from the seed, the process,
// and the number of commands before; all else that is drawn follows from the seed, the process and the time. So a seed that
// fails fails again, unless goroutines that run in the same instant are scheduled in another order, which matters seldom:
// MUTANTS.md says how often, for each seed that finds a defect.
//
// # What is checked
//
// Every applied write is checked by the documents before and after it (writes.go), and every answer of a Locker by what was
// written and read before (told.go):
//
//	I1   at each write and several times a second: of all sessions that trust a lease, no two are incompatible, nor is one of
//	     another run of its workflow, or undone by the other; a grant finds no incompatible entry; no end is shortened
//	I2   a grant with a limit finds fewer others
//	I3   fences grow
//	I4   no waiter ahead of one that was granted still waits; the queue keeps its order
//	I5   what was in force and has ended was named by a call
//	I6   a part that was ended does not return; a commit reports what it released
//	bar  no step trusts a lease after a bar of its saga has been raised
//	I7   an answer follows an acknowledged write that was made since the question, and "busy" at least a read
//	I8   a hold that has ended does not return, and a loss stays a loss
//	I9   the first waiter for what is free is granted it within a bound, and all ends in the end
//	I11  nothing is left of a request that gave up; and when all have ended or died, everything can be acquired
//	I12  verdicts are true, and deadlocks end
//
// In addition: nothing ends because its time is over except by the time that was read with the document; a lease that is over
// is told to its session, and no other loss is; a patient request gives up for no passing error; an upgrade is never refused;
// and no process asks the database, or the clock, again and again.
//
// I10 is a matter of the commands, which this store does not have.
//
// The truth about deadlocks is found in the opposite way to lockcore's: each waiter that can continue does, and gives up
// what it has, until none is left that can.
//
// # The bound of I9
//
// It counts from the time at which the resource is free for the first waiter, and nothing has troubled its process since: no
// freeze, no outage, no command that failed. It follows from the intervals in lockcore's package pace, as the bound for
// deadlocks does: see grantWithin, parkedWithin and breakWithin. How long all may take to end, and how long after that
// nothing is held any longer, follows from the TTLs that the seed has drawn.
//
// # When a seed fails
//
// The history of a violation lists what the parties did and were told in the 30 s before, and what exists then. "make
// simulate FROM=7 SEEDS=1" plays it again. First ask whether the check is right: a wrong check costs more than one that is
// missing.
package simulation
