// Package simulation plays whole Lockers against each other, in virtual time, and checks what their users were told.
//
// A seed draws 3 to 8 processes, each with a Locker, 2 to 4 resources, and a few actors that take locks in the ways that
// users do: one after the other, several at once, by trying, up and down, with kept holds, as sagas that park, with leases of
// all lengths, and by force. All Lockers work on one in-memory engine, whose rules are the specification. It draws what goes
// wrong too: lost answers, late copies of commands, refused and slow commands, outages, a document that cannot be written,
// processes that are frozen or killed, a server clock that jumps. A seed has a few of these, not all: what happens often
// hides what happens seldom.
//
// [RunWorkflows] plays workflows beside strangers: sagas that are reset in the middle of a step,
// whose old steps go on, that compensate, and that have steps with lock IDs of their own within
// what they keep. A process that hears of a turn of a closed run gives it back, while an old step may be
// taking it up.
//
// Time is that of a bubble of testing/synctest: an hour takes as long as its events do. Each process waits by a clock of its
// own (see lockcore's package clock), which holds timers and answers while the process is frozen. All latencies follow from
// the seed, the process, the operation and how often it was sent, and all else that is drawn from the seed, the process and
// the time. So a seed that fails fails again, except if goroutines that run in the same instant take turns otherwise, which
// matters seldom: MUTANTS.md says how often, for each seed that finds a defect.
//
// # What is checked
//
//	I1   at each write and several times a second: of all sessions that trust a lease, no two are incompatible, nor is one of
//	     another run of its workflow, or undone by the other
//	I2   a grant with a limit finds fewer others
//	I3   fences grow
//	I4   none still waits that came before one that was granted, and a place keeps its time
//	I5   what an operation ends it has named
//	I6   what comes late, or again, changes nothing; a commit says what it released
//	I8   a loss stays a loss
//	I9   who waits first for what is free has it within a bound, and all ends in the end
//	I11  nothing stands of a request that gave up; and when all have ended or died, everything can be had
//	I12  verdicts are true, and deadlocks end
//
// Beside these: a lease that is over is told to its session, and no other loss is; a patient request gives up for no passing
// error; an upgrade is never refused; and no process asks the database, or the clock, again and again.
//
// I7 and I10 are matters of the commands, which this engine does not have.
//
// The truth about deadlocks is found the other way round than lockcore does: each that can go on goes on and gives up what it
// has, until none is left that can.
//
// # The bound of I9
//
// It counts from when the resource is free for the first who waits, and nothing has troubled its process since: no freeze,
// no outage, no command that failed. It follows from the intervals in lockcore's package pace, as the bound for deadlocks
// does: see grantWithin, parkedWithin and breakWithin. How long all may take to end, and how long after that nothing is held
// any more, follows from the TTLs that the seed has drawn.
//
// # When a seed fails
//
// The history of a violation says what the parties did and were told in the 30 s before, and what stands then. "make
// simulate FROM=7 SEEDS=1" plays it again. First ask whether the check is right: one that is wrong costs more than one that
// is missing.
package simulation
