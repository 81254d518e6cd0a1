// Package interceptors is Lockstep's worker interceptor: it takes locks when a step is entered.
//
// # The model
//
// Workflow code says which locks its steps need, by a context (workflows.WithLocks). Nothing happens
// then. When the workflow schedules an activity under that context, the workflow side of the
// interceptor writes a guard into the activity's header, and the header is all: no command, no event,
// no wait. When a worker is about to run the activity, the activity side reads the guard and takes
// the locks, at the place where they are needed and at the moment they are needed.
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
// # What the activity side does
//
//   - Enter takes the locks in the name of the workflow run, and what a rule names for the step's type (worker.RuleFor) in a
//     lock ID of the step's own. If they are busy, the queue is full or the
//     database does not answer, the attempt fails with a benign lockstep.Parked, which is not retried: the workflow side
//     answers it. The request stands in the queue.
//   - A guard of scope step has a lock ID of its own, within its workflow's. If it has several resources, it keeps those that
//     it got while it waits for the rest.
//   - An attempt that took longer than 10 s to get its locks asks Temporal whether it still counts.
//   - While the step runs, its locks are renewed. The step's context is cancelled when one is lost, with the
//     *lockcore.LostError as its cause (context.Cause). A step that lost a lock while it ran fails
//     with lockstep.Lost, whatever its function returned: what it did may not have been isolated.
//   - When the step returns, fails or panics, its part leaves. In scope step the locks end with it; in
//     scope saga they stand.
//
// A step may read its fences with activities.Leases and pass them on to what it writes to.
//
// # What the workflow side does
//
// It numbers the steps, so that a retry of a step supersedes its own earlier attempt and no
// other; it remembers which steps completed under a saga's locks, so that a later step learns when the saga no longer
// holds what it held; and it gives back futures that work in selectors and whose errors match
// lockcore's typed errors.
//
// It answers lockstep.Parked by waiting: it runs the activity lockstep.Wait, whose attempts fail, in back-off, until asking
// again is worthwhile, and then schedules the step again, under a new number, with the attempts and the time that the step
// has left. The failure in the history is the record that it does so.
//
//	step ── busy ──▶ lockstep.Wait ──▶ step
//	                      ▲
//	                      │ CompleteActivityByID
//	the process that lets the lock go ── claim ── waker
//
// If a turn is likely to come within half a second, an attempt waits for it where it is while its place moves, and parked steps are called up
// a moment before theirs: docs/adr/0011-waiting-in-the-slot.md.
//
// The waker hears of claims from the Locker of its process: of those that this Locker makes itself, and of those on
// resources that it tends because a workflow waits there whose lockstep.Wait it has run. It completes the waiting activity by the run's ID and the
// number of the request, in the background. A wake-up that is lost is repaired: by the next attempt of the waiting activity,
// and by the claim's own end, after which the next in line is served and the sleeper comes first.
//
// All of it is computed from the workflow's calls and their outcomes, so it replays.
//
// It reads what a run was started with: the mark of a run that continued as new and left it what it holds
// (workflows.HandOver), and the party that it shares with its parent (workflows.WithOwner).
//
// All runs of a workflow share a lock ID, and the run label says which of them speaks. A step that meets what another run of
// its workflow holds takes it over, once Temporal has said that its own run is the current one; see package
// internal/currentrun, and docs/endings.md in the repository.
package interceptors
