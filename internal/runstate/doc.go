// Package runstate holds the state of the locks of one workflow run. The workflow side of the interceptor and package workflows share it.
//
// The interceptor makes one [State] for each run and attaches it to the workflow's context. Package workflows attaches the locks of guarded steps,
// and a [Saga] with its [Scope]. A [Step] is one call of ExecuteActivity with a guard in its header: [State.Step] makes it, and [Step.Run]
// schedules it, and waits while its locks are busy. A [Lock] is a step without an activity, with a scope of its own. [Scope.Commit] verifies and
// releases the locks of a saga, and [State.End] releases what the run still has.
//
// # The commit
//
// A kept hold lasts for at least 15 minutes from the entry of the latest step that used it. So a commit asks, by the activity lockstep.Verify, only
// about locks that were last used more than five minutes ago, and again if the answer comes late. A loss that is not a matter of time, such as a
// forced release, does not prevent a commit within these five minutes: the release finds it. A loss of which the run has learned always prevents
// the commit. See docs/adr/0014-verify-record-release.md in the repository.
//
// # Own activities
//
// State.schedule schedules all of Lockstep's own activities. They are retried until they succeed or fail with a verdict about the locks, and none
// is awaited after the workflow function has returned.
//
// # Runs that follow other runs
//
// All runs of a workflow share its lock ID, and the activity worker asks which run may take over: see package currentrun. Only the header of a run
// that continues as new records that the run before left its holds to it, with the releases that are due. A run that was made by a reset does not
// claim in its headers that it holds anything, because its history may be older than a release. Instead, evidence of losses since a minute before
// its start counts, whichever run lost the lock.
//
// # Replay
//
// The state depends only on the calls that the workflow makes and on the outcomes in its history, so a replay computes the same state. The
// history records as a failure that a step found its locks busy, so no version marker is needed. What cannot be read or encoded fails the
// workflow task, by a panic, and Temporal repeats the task: as a result it would be a decision that the history does not contain. Temporal runs
// one coroutine at a time, so a State needs no mutex.
package runstate
