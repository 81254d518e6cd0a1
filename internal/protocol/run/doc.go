// Package run is what the workflow-side interceptor and the package workflows share within one workflow
// run: who has asked for which locks, and what is known to be held.
//
// The interceptor makes one [State] per run and puts it into the workflow's context. Package workflows
// puts [Locks] beside it, and a [Scope] for each saga. When a step is scheduled, the interceptor asks
// the State for the step's guard and tells it what became of the step. When a scope ends,
// [Scope.Release] lets go of all that its steps may have taken.
//
// # Steps and locks around code
//
// A [Step] is one call of ExecuteActivity. With a guard, in its header, the worker that runs the step takes the locks; if they
// are busy, [Step.Wait] and [Step.Again] follow. Without one nothing is asked for.
//
// A [Lock] is locks around code. It is a step without an activity: it has a step's numbers and way of waiting, and a
// scope of its own.
//
// # What a scope knows
//
// For each resource: whether any step asked for it (wanted, or traces if the lock ends with the step), so that it is
// released at the end; and whether a step is known to have left it held (held), which the next guard says, so that a loss is
// noticed.
//
// # Runs that follow on others
//
// All runs of a workflow share its lock ID. Who holds, and which run may take over, is asked where it is known, by the worker
// that runs the activity: see package openrun. Workflow code knows two things of it. A run that continues as new may leave
// its holds to the next one: [State.HandOver], [State.Begin]. And a run that was made by a reset does not say in its headers
// that it holds anything, since its history may be older than a release.
//
// # Replay
//
// Everything here runs in workflow code: it depends on nothing but the calls that the workflow makes
// and on the outcomes in its history, so a replay comes to the same state. That a step found its locks busy stands in the
// history as its failure, which is what the run answers by waiting; no version marker is needed. A State is used by one coroutine at a time, as Temporal runs them, and needs no lock.
package run
