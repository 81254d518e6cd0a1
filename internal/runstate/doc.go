// Package runstate holds the state of the locks of one workflow run. The workflow side of the interceptor and package workflows share it.
//
// The interceptor makes one [State] for each run and attaches it to the workflow's context. Package workflows attaches [Locks], and a
// [Scope] for each saga. When an activity is scheduled, [State.Step] makes its guard, and [Step.Run] schedules it, and waits while its locks are busy.
// [Scope.Commit] releases the locks of a saga's steps, and first verifies those that may have expired. [State.End] releases what the run still
// has.
//
// # The commit
//
// A kept hold lasts for at least 15 minutes from the entry of the latest step that used it. So a commit does not ask about a lock that was used
// within the last five minutes. It asks about the others, by the activity lockstep.Verify, and again if the answer comes late. So a loss that is
// not a matter of time, such as a forced release, does not prevent a commit within these five minutes: the release finds it. A loss of which
// the run has learned always prevents the commit. See docs/adr/0014-verify-record-release.md in the repository.
//
// # Own activities
//
// State.schedule schedules all of Lockstep's own activities. They are retried until they succeed or fail with a verdict about the locks, and none
// is awaited after the workflow function has returned. Their inputs, and guards, have bounds for the bytes of names in them, so that no workflow
// task is refused because of its size.
//
// # Steps and locks around code
//
// A [Step] is one call of ExecuteActivity with a guard in its header: the worker that runs the activity takes the locks. A [Lock] is a
// set of locks around code: a step without an activity, with a scope of its own.
//
// # What a scope records
//
// For each resource, a scope records that a step has requested it, so that it is released at the end; the number of the first step that has
// completed under a lock on it, which the next guard carries, so that a loss is noticed; and the time of the latest use. A [Saga] records the
// resources of its scheduled steps: before its first compensation, the activity lockstep.Bar ends the steps that may still run on them.
//
// # Runs that follow other runs
//
// All runs of a workflow share its lock ID. The activity worker asks which run may take over: see package currentrun. Workflow code knows
// two things about it. A run that continues as new may leave its holds to the next run: only the header of that run records this, with the
// releases that are due. And a run that was made by a reset does not claim in its headers that it holds anything, because its history may be
// older than a release. Instead, evidence of losses since a minute before its start counts, whichever run lost the lock.
//
// # Replay
//
// The state depends only on the calls that the workflow makes and on the outcomes in its history, so a replay computes the same state. The
// history records as a failure that a step found its locks busy, so no version marker is needed. What cannot be read or encoded fails the
// workflow task, by a panic, and Temporal repeats the task: as a result it would be a decision that the history does not contain. Temporal runs
// one coroutine at a time, so a State needs no mutex.
package runstate
