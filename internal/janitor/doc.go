// Package janitor releases the locks that closed workflow runs have left, and extends those of open runs.
//
// A kept hold needs no process: its workflow may be between two steps of a saga, may sleep for a week, or may have been terminated and never
// release it. The database cannot distinguish these, but Temporal can. In each round a janitor asks about each run of its namespace that holds
// something, waits for it or was granted it:
//
//	state of the run                            | action
//	open, also if it is paused                  | extend its kept holds and waits
//	open, but one of its steps has ended        | release what the step has left
//	closed, and the current run is its heir     | extend its kept holds
//	closed, without an heir                     | release everything
//	not found, or the question had no answer    | none
//
// The janitor also watches the queues in which open runs wait, so that their heads are granted the lock and woken.
//
// The heir of a run is the workflow's current run, if that is open, belongs to the same chain of runs, and was made by a reset or continues a
// hand-over. After a continue-as-new it inherits only what the run has handed over; the rest is released. A retry, the next run of a cron schedule
// and a restarted workflow are not heirs: they take over the holds that they need, if these still exist.
//
// All changes name the run that was listed. If another run has taken over since, nothing changes. A part whose lease is
// still valid drains before another party gets the lock.
//
// # One of many
//
// Every process of a fleet may run a janitor. The active one holds a Lockstep lock in the same collection, [LockName]; the others try to get it
// once per interval. Two active janitors, such as a frozen one and its successor, do no harm. A janitor that Temporal refuses releases the lock,
// so that one with other credentials can work, and tries again after ten intervals.
//
// # Guarantees
//
//   - What a closed run has left is released in the first round that begins after its end.
//   - A hold with a HoldTTL of two intervals or more lasts as long as its run is open, if rounds take no longer than the
//     interval. A round asks one to three questions for each run, at [Options.RequestsPerSecond].
//   - In a queue with a request of an open run, the next waiter is granted the lock and woken, whichever process has died.
//
// # Not guaranteed
//
//   - Locks of a run that Temporal does not know are never released. They end with their HoldTTL; a hold without an end
//     needs a forced release. A lagging standby cluster does not know a run that is open, so not knowing proves nothing.
//   - An overdue waiter is passed over although it stays in the queue: its workers are away, and others would wait for them.
//   - Lock IDs that name no workflow or contain a hash, because the workflow's ID was too long, are ignored, and so are
//     entries without a run.
package janitor
