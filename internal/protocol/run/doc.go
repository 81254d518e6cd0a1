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
// A [Step] is one call of ExecuteActivity or ExecuteLocalActivity. Whoever schedules it has one of four ways:
//
//	a guard, in its header          the worker that runs the step takes the locks; [Step.Wait] and [Step.Again]
//	                                where they are busy
//	no guard                        nothing is asked for
//	[Step.Around]                   the workflow takes the locks before the step, and lets them go after it
//	[Step.Under]                    locks around code are taken anew first, after a reset
//
// A [Lock] is locks around code. It is a step without an activity: it has a step's numbers and way of waiting, and a
// scope of its own. [Lock.KeepAlive] extends it by an activity for as long as it stands.
//
// # What a scope knows
//
// For each resource: whether any step asked for it (wanted, or traces where the lock ends with the step), so that it is
// released at the end; whether a step is known to have left it held (held), which the next guard says, so that a loss is
// noticed; whether somebody was told of its loss (lost); and whether the run before a reset held it and this one does not
// yet (lacks).
//
// # Runs that follow on others
//
// A run that continues as new may hand its scopes to the next one, in the header of its start: [State.HandOver],
// [State.Begin]. The next run goes on in the lock ID of the first.
//
// A run that was made by a reset replays a history in which another run has locked. From the point of the reset on it
// holds nothing: what its scopes held they lack, and take anew. How that point is found is told at the type past.
//
// # Replay
//
// Everything here runs in workflow code: it depends on nothing but the calls that the workflow makes
// and on the outcomes in its history, so a replay comes to the same state. Commands that a run without Lockstep would
// not have made stand behind a version marker, whose change ID is asked for at the first of them: see the constants that
// begin with version. A State is used by one coroutine at a time, as Temporal runs them, and needs no lock.
package run
