// Package run is what the workflow-side interceptor and the package workflows share within one workflow
// run: who has asked for which locks, and what is known to be held.
//
// The interceptor makes one [State] per run and puts it into the workflow's context. Package workflows
// puts [Locks] beside it, and a [Scope] for each saga. When a step is scheduled, the interceptor asks
// the State for the step's guard and tells it what became of the step. When a scope ends,
// [Scope.Release] lets go of all that its steps may have taken.
//
// Everything here runs in workflow code: it depends on nothing but the calls that the workflow makes
// and on the outcomes in its history, so a replay comes to the same state. A State is used by one
// coroutine at a time, as Temporal runs them, and needs no lock.
package run
