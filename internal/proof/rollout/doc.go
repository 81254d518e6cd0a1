// Command rollout shows what happens when the first policy is set while workers of an earlier build run.
//
//	make rollout
//
// Two worker processes run the same sagas on one task queue and one collection. One is of the build before this one (.ci/previous),
// whose library knows no policies. Each process also takes a lock of its own again and again, and keeps another one. The
// program then
//
//  1. waits until both processes have run steps of the same sagas, and none of their requests for locks has failed,
//  2. sets a policy by the command lockstep limit, as an operator does too early,
//  3. waits until the previous build is refused, and for a time after that,
//  4. ends the process of the previous build, as the roll-out does that should have come first,
//  5. waits until all sagas have ended.
//
// From ten seconds after the policy on, the process of the previous build must have changed nothing in the collection and run no
// function of a step, while sagas end in the other one. Each process logs the database's answers to its commands, so that nothing that
// it changes is overlooked. In the end all sagas must have ended as planned, and no lock may be left.
//
// The previous build also loses the lock that it keeps: it cannot renew it.
//
// It prints the errors of the previous build, which docs/production.md quotes.
package main
