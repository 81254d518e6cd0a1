// Package runstate holds the state of the locks of one workflow run. The workflow side of the interceptor and package workflows share it.
//
// The interceptor makes one [State] for each run and attaches it to the workflow's context. Package workflows attaches [Locks], and a
// [Scope] for each saga. When an activity is scheduled, [State.Step] makes its guard, and [Step.Enter] waits while its locks are busy.
// [Scope.Commit] verifies and releases the locks of a saga's steps, [State.End] those that the run still has.
//
// # Steps and locks around code
//
// A [Step] is one call of ExecuteActivity with a guard in its header: the worker that runs the activity takes the locks. A [Lock] is a
// set of locks around code: a step without an activity, with a scope of its own.
//
// # What a scope records
//
// For each resource, a scope records that a step has requested it, so that it is released at the end; and whether a step has completed
// under a lock on it. The next guard carries that, so that a loss is noticed.
//
// # Runs that follow other runs
//
// All runs of a workflow share its lock ID. The activity worker asks which run may take over: see package currentrun. Workflow code knows
// two things about it. A run that continues as new may leave its holds to the next run. And a run that was made by a reset does not claim
// in its headers that it holds anything, because its history may be older than a release.
//
// # Replay
//
// The state depends only on the calls that the workflow makes and on the outcomes in its history, so a replay computes the same state. The
// history records as a failure that a step found its locks busy, so no version marker is needed. Temporal runs one coroutine at a time, so
// a State needs no mutex.
package runstate
