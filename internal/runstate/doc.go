// Package runstate is what the workflow-side interceptor and package workflows share within one
// workflow run: who has asked for which locks, and what is known to be held.
//
// The interceptor makes one [State] per run and puts it into the workflow's context. Package
// workflows puts [Locks] beside it, and a [Scope] for each saga. When an activity is scheduled,
// [State.Step] makes its guard, and [Step.Enter] waits as long as its locks are busy.
// [Scope.Commit] verifies and releases what a saga's steps have taken, [State.End] what the run
// still has.
//
// # Steps and locks around code
//
// A [Step] is one call of ExecuteActivity with a guard, in its header: the worker that runs the
// activity takes the locks. A [Lock] is locks around code: a step without an activity, with a scope
// of its own.
//
// # What a scope knows
//
// For each resource: that a step has asked for it, so that it is released at the end; and whether a
// step has completed under a lock on it, which the next guard says, so that a loss is noticed.
//
// # Runs that follow on others
//
// All runs of a workflow share its lock ID. Which run may take over is asked by the worker of the
// activity: see package openrun. Workflow code knows two things of it. A run that continues as new
// may leave its holds to the next one. And a run that was made by a reset does not say in its
// headers that it holds anything: its history may be older than a release.
//
// # Replay
//
// All of it depends on the calls that the workflow makes and on the outcomes in its history, so a
// replay comes to the same state. That a step found its locks busy stands in the history as its
// failure; no version marker is needed. Temporal runs one coroutine at a time, so a State needs no
// lock.
package runstate
