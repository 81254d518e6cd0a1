// Package interceptors is Lockstep's worker interceptor: it takes the locks of a step when the step is entered. Package worker installs it.
//
// # Model
//
// When a workflow schedules an activity under a guarded context (workflows.WithLocks), the workflow side writes a guard into the activity's
// header. It adds no command and no event, and does not wait. Before a worker runs the activity, the activity side takes the locks:
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
//   - Enter takes the locks of the guard in the name of the workflow, and those of a rule (worker.RuleFor) under a lock ID of the step's own.
//     If they are busy, the queue is full or the database does not answer, the attempt fails with a benign lockstep.Parked, which is not
//     retried. The request stays in the queue.
//   - A guard of scope step has a lock ID of its own, within that of its workflow. If it has several resources, it keeps the locks that it
//     has acquired while it waits for the rest.
//   - An attempt that took longer than 10 s to get its locks asks Temporal whether the attempt is still pending.
//   - While the step runs, its locks are renewed. If one is lost, the step's context is cancelled, with the *lockcore.LostError as its cause
//     (context.Cause), and the step fails with lockstep.Lost, whatever its function returned: its effects may not have been isolated.
//   - When the step returns, fails or panics, its part leaves. In scope step the locks end with it; in scope saga the hold remains.
//
// # Workflow side
//
// It numbers the steps, so that a retry of a step supersedes the earlier attempts of that step and no other. After lockstep.Parked it runs
// the activity lockstep.Wait, whose attempts fail in back-off until it is worth repeating the request. Then it schedules the step again, under a
// new number, with the attempts and the time that the step has left. See package internal/runstate.
//
//	step ── busy ──▶ lockstep.Wait ──▶ step
//	                      ▲
//	                      │ CompleteActivityByID
//	the process that releases the lock ── claim ── waker
//
// If a grant is near, an attempt waits for it in its slot, because the lock is idle for the 100 ms that Temporal takes to schedule a parked step
// again. It waits if a grant is expected within half of its MaxWait, holds last less than 500 ms, and its position is within the number of
// requests that may wait: 25 of a process, and a quarter of a worker's slots. It waits while its position moves at least once in 500 ms, for two
// seconds at most, or a quarter of the attempt's own timeouts. Parked steps whose grant is expected within 200 ms are woken before they have a
// claim. The estimates affect latency only. To end the wait after 500 ms in any case is slower: requests that give up just before their grant
// delay all behind them.
//
// The Locker of a process reports claims to the waker: claims that it makes itself, and claims on resources that it watches because it has run
// the lockstep.Wait of a workflow. The waker completes the waiting activity in the background. If a wake-up is lost, the next attempt of the
// activity finds the claim. If the claim lapses first, the next waiter is granted the lock, and the waiter that slept stays at the head of the
// queue.
//
// # Runs of a workflow
//
// All runs of a workflow share a lock ID, and the run ID distinguishes them: see package internal/currentrun, and docs/endings.md in the
// repository.
package interceptors
