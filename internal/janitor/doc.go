// Package janitor keeps the locks of workflows in step with Temporal.
//
// A hold that is kept stands without a process: between two steps of a saga, under a long timer, or
// when its workflow was terminated and will never release it. The database cannot tell these apart.
// Temporal can. So a janitor lists what the runs of its namespace keep, wait for or were granted,
// and asks Temporal about each run, once in every round:
//
//	the run is                                  | then
//	open, also if it is paused                  | kept holds and places are prolonged, queues are tended
//	open, and a step of it has ended            | what the step has left is given up
//	closed, and the current run is its heir     | kept holds are prolonged, queues are tended
//	closed, without an heir                     | everything is released
//	not found, or the question had no answer    | nothing
//
// The heir of a run is the workflow's current run, if that is open, belongs to the same chain of
// runs, and was made by a reset or by continuing as new; in the latter case it inherits what the
// run has handed over, and the rest is released. A retry, the next run of a cron schedule
// and a workflow that was started again are no heirs: they take over what they need, if it still
// stands.
//
// The answer about an open run lists its pending activities. If no workflow task is outstanding, a
// step of scope step has ended if neither it nor a wait is among them. In the workflow's own lock
// ID no step is told from others: its places are given up if nothing at all is pending.
//
// Everything is done under the run label that was listed. If another run has taken over since,
// nothing changes. A part that still trusts its lease drains before anybody else is let in.
//
// # One of many
//
// Every process of a fleet may run a janitor. One of them holds the office, a Lockstep lock in the
// same collection, and works; the others look once per interval whether the office is free. A
// janitor that dies is replaced when its lock has expired. Two at once, such as one that was
// frozen and its successor, do no harm. A janitor that Temporal refuses gives the office up, so
// that one with other credentials may have it, and stands for it again after ten intervals.
//
// # What it promises
//
//   - What a closed run has left is released in the first round that begins after its end.
//   - A hold with a HoldTTL of two intervals or more stands as long as its run is open, if rounds
//     take no longer than the interval. A round takes one question for each run, at
//     [Options.QuestionsPerSecond].
//   - A queue is looked after if a request of an open run stands in it, whichever process has died:
//     the next one is granted its turn, and is woken again.
//
// # What it does not promise
//
//   - A run that Temporal does not know is never released. Its holds end with their HoldTTL; one
//     without an end needs a forced release. A standby cluster that lags does not know a run that
//     is open, so not knowing is no proof.
//   - A request that is not heard of when it had said is passed over, although its place stands: its
//     workers are away, and others would wait for them.
//   - Lock IDs that name no workflow, or carry a hash, because the workflow's ID was too long, are
//     left alone, and so is what carries no run label.
package janitor
