// Command sagafuzz plays random sagas on real servers and checks what they promise.
//
//	make fuzz-sagas SEED=7 RUNS=3 FUZZ_FLAGS="-parallel 3"
//
// A seed is played in five stages:
//
//	plan.go       what is to happen: pure, the same for the same seed
//	workflow.go   a workflow that does what its part of the plan says
//	processes.go  worker processes, which are killed, stopped and started again
//	interrupt.go  lets signals and cancellations arrive with the completion of a workflow task, or loses the completion
//	neighbour.go  a process without Temporal, which takes plain locks on the same resources
//	play.go       starts workflows, meddles with them, and waits for their ends
//	histories.go  asks the server which workflow tasks it has recorded
//	check*.go     pure functions over the log, which find violations
//
// The timing of a run is the machine's, so a seed that failed may pass the next time.
//
// # The log
//
// Each process appends to a file of its own. All read one clock, since all run on one machine. A step
// writes "begin" before its work, so a process that is killed leaves a begin without an end. Around it
// an interceptor writes "enter" and "exit": what is between enter and begin is Lockstep's, and exit says
// what Temporal was told. Workflow code writes when a scope is about to end ("leaving") and what came of
// it ("returned").
//
// # Decisions
//
// Code may decide more than once. The server refuses a completion that closes a run if a signal or a
// cancellation has arrived since its workflow task began, and a completion can be lost with its worker.
// The code runs again in another workflow task, knows more, and may decide otherwise: a saga that had
// committed is undone. So each record of workflow code names its workflow task, and only those of tasks
// that the server has recorded count. A saga's claim lasts until the decision that counts: if its locks
// were released by an earlier one, the claim of another party overlaps with it.
//
// # Signals
//
// Each signal has an ID. A workflow receives all that have come before a run ends. A signal that the
// server accepted and that no run received is a violation, unless the workflow was terminated, reset or
// restarted.
//
// # Claims
//
// From the log the checks make claims: this party had this resource from then until then. A claim
// begins no earlier than its lock was granted, and ends no later than it was given back. So two claims
// that must exclude each other and overlap prove a violation, and noise of the machine cannot make one.
//
//   - A running claim is that of one attempt of a step or a compensation, from begin to end.
//   - A kept claim is that of a saga or a Lock, from the first begin to "leaving", or to the last
//     compensation's begin.
//
// # Trust
//
// A process that is stopped cannot know what it has lost, and may go on for a moment when it continues.
// What it does then is refused by fences, not prevented by time. So a running claim ends when the
// attempt last saw that all its leases are valid, which it looks at every few milliseconds; that of an
// attempt that left no end, with the first stop or kill of its process.
//
// The kept claims of a scope that was told of a loss are dropped. Whether faults explain the loss is a
// check of its own: seeds without faults of processes are strict.
package main
