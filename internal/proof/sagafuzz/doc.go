// Command sagafuzz runs random sagas on real servers and checks their guarantees.
//
//	make fuzz-sagas SEED=7 RUNS=3 FUZZ_FLAGS="-parallel 3"
//	make fuzz-sagas-mixed SEED=7 RUNS=3
//
// # From the seed to the violations
//
//	plan.go, node.go,     what happens: pure, and the same for the same seed
//	directed.go
//	workflow.go           a workflow and activities that follow their part of the plan, and ask in the middle of sagas and Locks
//	updates.go            update handlers
//	processes.go          worker processes, which are killed, suspended and started again, and a process without Temporal that takes
//	                      plain locks on the same resources
//	faults.go             operator actions; signals, cancellations and losses at the completion of workflow tasks; a database that is
//	                      slow, while all workflows receive signals
//	limits.go             an operator raises, lowers and removes the limits of semaphores
//	pools.go, members.go  workflows and programs that use pools; an operator who changes members and promotes waiters
//	accounts.go           the account of each member, which only its holder writes, under the fence
//	codec.go              a data converter that fails at random
//	play.go               starts workflows, applies faults, waits for the ends, and asks which tasks were recorded
//	log.go                the log that all processes write
//	replay.go             replays the histories, with and without the codec
//	story.go, claims.go   the content of the log: attempts, scopes, and claims to resources
//	check*.go             pure functions over the log, which return violations
//	main.go               plays seeds, and prints violations
//
// The timing of a run depends on the machine, so a seed that failed may pass the next time.
//
// # Two builds
//
// With -previous, about half of the processes run another build of this program, whose library is that of an earlier commit
// (.ci/previous). Both builds share the database and the task queue, as during an update of the workers. The seed selects the
// processes; half of the workers are of each build at any time. The previous build creates the collection. Workers keep one workflow
// in memory, so that each build often replays what the other has begun.
//
// # The log
//
// Each process appends to its own file, and all use the clock of one machine. A step writes "begin" before its work, so a
// process that is killed leaves a begin without an end. An interceptor around it writes "enter" and "exit": Lockstep acts
// between enter and begin, and exit is the result for Temporal. Workflow code writes "leaving" when a scope is about to end,
// and "returned" with its result. Each record names its process; the name of one of the previous build ends with "-previous".
//
// # Decisions
//
// Workflow code may decide more than once. The server refuses a completion that closes a run if a signal or a cancellation has
// arrived since its workflow task began, and a completion can be lost with its worker. The code then runs again in another
// workflow task with more knowledge, and may decide differently: a saga that had committed is undone. So each record of workflow
// code names its workflow task, and only records of tasks that the server has recorded count. The claim of a saga lasts until the
// decision that counts: if an earlier one has released its locks, the claim of another party overlaps with it.
//
// # Signals
//
// Each signal has an ID. A workflow receives all signals that have arrived before a run ends. A signal that the server accepted
// and that no run received is a violation, unless the workflow was terminated, reset or restarted.
//
// # Failed workflow tasks
//
// The SDK repeats a workflow task that fails, for example because its code panics, so results do not show it. At the end of a run the
// histories are searched: each failure is a violation, except failures that the server causes itself, and failures that name a
// conversion that the plan lets fail.
//
// # Conversions
//
// In some plans the workers have a data converter with a codec, some of whose conversions fail. At the end all histories are replayed. With
// the codec they must match. Without it they match, or fail by the panic that names what cannot be read: code that decides without what it
// cannot read issues other commands, and is not deterministic. Arguments of workflows, signals and updates stay plain, because the SDK
// itself makes a result of one that it cannot read.
//
// # Updates
//
// Some workflows receive updates, whose handlers run sagas and Locks alongside the main function. The end of a run that does not await its
// handlers ends them.
//
// # Claims
//
// The checks derive claims from the log: a party held a resource during a time. A claim begins no earlier than its grant and ends
// no later than its release. Two overlapping claims that must exclude each other therefore prove a violation, whatever the load of
// the machine.
//
//   - A running claim belongs to one attempt of a step or a compensation, from begin to end.
//   - A verified claim belongs to a saga or a Lock, from the first step that has completed, or from the grant, to the latest question of
//     Verify that was answered with nil. A later loss does not affect it.
//   - A kept claim belongs to a saga or a Lock, from the first begin to "leaving", or to the begin of the last compensation.
//
// # Limits
//
// A semaphore is in use by more parties than its limit if that was lowered since. So a claim is compared with the greatest limit that a
// process may have followed from ten seconds before its party asked until its claim began.
//
// # Pools
//
// A claim to a pool is one to the member that the party got, as if the member was an exclusive resource. All steps and compensations of a
// scope must have the same member. An attempt keeps writing the account of its member, also after it has lost it: if the account refuses a
// write, another party has written, and the attempt must not trust its lease any longer. A member that is out of service may be granted for
// ten seconds, since a process may not know it, and to a party that had it. Seeds without pools may have priorities, too; nothing but the
// other checks looks at the order in which waiters get their turn.
//
// # Trust
//
// A suspended process cannot know what it has lost, and may continue for a moment after it resumes. Fences refuse its writes then;
// time does not prevent them. So a running claim ends at the last time at which the attempt found all its leases valid, which it
// checks every few milliseconds. If the attempt has no end, its claim ends with the first suspension or kill of its process.
//
// The kept claims of a scope to which a loss was reported are dropped. Whether faults explain the loss is a separate check: seeds
// without faults of processes are strict.
package main
