// Package interceptors is Lockstep's worker interceptor: it takes the locks of a step when the step is entered.
//
// # Model
//
// Workflow code attaches the locks of its steps to a context (workflows.WithLocks). When the workflow schedules an activity under that
// context, the workflow side of the interceptor writes a guard into the activity's header. It adds no command and no event, and does not
// wait. When a worker is about to run the activity, the activity side reads the guard and takes the locks: where they are needed, when
// they are needed.
//
//	workflow worker                  server              activity worker
//	ExecuteActivity ── header ──▶ ScheduleActivity ──▶ enter ── busy ──▶ the workflow waits
//	                                                     │
//	                                                   renew ◀─┐ every third of the TTL
//	                                                     │  ───┘
//	                                                    step ──── lost ──▶ context cancelled
//	                                                     │
//	     future  ◀── completed ◀─────────────────────  leave
//
// # Activity side
//
//   - Enter takes the locks of the guard in the name of the workflow, and the locks that a rule names for the step's type
//     (worker.RuleFor) under a lock ID of the step's own. If they are busy, the queue is full or the database does not answer, the attempt
//     fails with a benign lockstep.Parked, which is not retried. The request stays in the queue.
//   - A guard of scope step has a lock ID of its own, within the lock ID of its workflow. If it has several resources, it keeps those that
//     it got while it waits for the rest.
//   - An attempt that took longer than 10 s to get its locks asks Temporal whether the attempt is still pending.
//   - While the step runs, its locks are renewed. If one is lost, the step's context is cancelled, with the *lockcore.LostError as its
//     cause (context.Cause). A step that lost a lock while it ran fails with lockstep.Lost, whatever its function returned, because its
//     effects may not have been isolated.
//   - When the step returns, fails or panics, its part leaves. In scope step the locks end with it; in scope saga the hold remains.
//
// A step reads its fences with activities.Leases, and passes them on to the stores that it writes to.
//
// # Workflow side
//
// It numbers the steps, so that a retry of a step supersedes the earlier attempts of that step and no other. It remembers which steps
// completed under a saga's locks, and when, so that a later step notices a loss, and a commit asks only about locks that may have expired. It returns futures that work in selectors, and whose errors match
// lockcore's typed errors.
//
// After lockstep.Parked it runs the activity lockstep.Wait, whose attempts fail in back-off until it is worth repeating the request. Then
// it schedules the step again, under a new number, with the attempts and the time that the step has left. A replay reads from the failure
// in the history that the step was parked.
//
//	step ── busy ──▶ lockstep.Wait ──▶ step
//	                      ▲
//	                      │ CompleteActivityByID
//	the process that releases the lock ── claim ── waker
//
// If a grant is near, an attempt waits for it in its slot, because Temporal takes about 100 ms to schedule a parked step again, and the lock is
// idle in that time. Each process keeps a moving average of how long holds of a resource last; the estimate affects latency only. An attempt
// waits if a grant is expected within half of its MaxWait, holds last less than 500 ms, and its position is within the number of requests that may
// wait: 25 of a process, and a quarter of a worker's slots. It waits while its position moves at least once in 500 ms, for two seconds at most, or
// a quarter of the attempt's own timeouts. Parked steps whose grant is expected within 200 ms are woken before they have a claim. With 20
// workflows at a time on one resource, this raised guarded workflows from 10 to 58 a second. To end the wait after 500 ms in any case is slower:
// requests that give up just before their grant delay all behind them.
//
// The Locker of a process reports claims to the waker: those that it makes itself, and those on resources that it watches because it has
// run the lockstep.Wait of a workflow. The waker completes the waiting activity in the background, by the run's ID and the number of the
// request. If a wake-up is lost, the next attempt of the waiting activity finds the claim. If the claim lapses first, the next waiter is
// granted the lock, and the one that slept keeps its position at the head of the queue.
//
// The workflow side derives everything from the workflow's calls and their outcomes, so it replays. It also reads the headers with which a
// run was started: the mark of a run that continued as new and handed its locks over (workflows.HandOver), with the releases that it had
// still to make, and the owner that the run shares with its parent (workflows.WithOwner).
//
// What it cannot read or encode fails the workflow task by a panic, and Temporal repeats the task. A failure that became a result would be a
// decision that the history does not contain.
//
// # Runs of a workflow
//
// All runs of a workflow share a lock ID, and the run ID tells them apart. A step that meets a hold of another run of its workflow takes
// it over, once Temporal has reported its own run as the current one; see package internal/currentrun, and docs/endings.md in the
// repository.
package interceptors
