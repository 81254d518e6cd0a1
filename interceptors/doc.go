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
//   - Enter takes the locks in the name of the workflow run. Where they are busy the attempt fails with a benign
//     lockstep.Busy, which is not retried: the workflow side answers it. The request stands in the queue.
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
// It numbers the steps, so that a retry of a step supersedes its own earlier attempt and nobody
// else's; it remembers which steps completed under a saga's locks, so that a later step learns when the saga no longer
// holds what it held; and it gives back futures that work in selectors and whose errors match
// lockcore's typed errors.
//
// It answers lockstep.Busy by waiting: it runs the activity lockstep.Wait, whose attempts fail, in back-off, until asking
// again is worthwhile, and then schedules the step again, under a new number, with the attempts and the time that the step
// has left. That the run does so is recorded by GetVersion at the first such failure, so that runs in which there is none
// have the commands that they would have without Lockstep.
//
//	step ── busy ──▶ version marker ── lockstep.Wait ──▶ step
//	                 (once in a run)        ▲
//	                                        │ CompleteActivityByID
//	whoever lets the lock go ── claim ── waker
//
// The waker hears of claims from the Locker of its process: of those that this Locker makes itself, and of those on
// resources that it tends because a workflow waits there whose lockstep.Wait it has run. It completes the waiting activity by the run's ID and the
// number of the request, in the background. A wake-up that is lost is repaired: by the next attempt of the waiting activity,
// and by the claim's own end, after which the next in line is served and the sleeper comes first.
//
// All of it is computed from the workflow's calls and their outcomes, so it replays.
//
// It reads what a run was started with: the locks that the run which it continues has handed over, in whose name it then
// goes on (workflows.HandOver), and the party that it shares with its parent (workflows.WithOwner). And it notices where
// a run was reset: what was locked before that point was locked in another run's name, and is taken anew, by the next guarded
// step; and locks around code by a local activity, for which the next activity waits.
//
// A step that finds its lock held by another run of the same workflow ID releases it, once Temporal has said that its own
// run is the open one: then the other is closed. See docs/endings.md in the repository.
//
// # Runs in flight
//
// A guard of scope step, or a rule, may come to the steps of runs in flight, and go from runs in which no guarded step found
// its locks busy, timed out or was cancelled: it adds no command, and where the locks are free a guarded step wakes its
// workflow in the order in which a step without a guard does. For that, the first coroutine of each run settles the futures of
// guarded steps, and the workflow's code runs in the second, which stack traces call "workflow". The SDK offers no way to
// do so at the moment when the step's own result comes. So in three places the order of what happens in one workflow task may
// still be another, and there such a change of runs in flight needs workflow.GetVersion:
//
//   - A selector waits for a guarded step and for something else, such as a timer, a signal or a step without a guard. Where
//     both come in one workflow task, and the step first, it takes the other.
//   - The handler of an update runs a guarded step. Other coroutines that go on in the workflow task in which the step ends
//     may go on before it.
//   - Workflow code cancels a guarded step by itself. The same holds in the workflow task in which it does.
//
// # What is not guarded
//
// Lockstep's own activities, the SDK's sessions, queries, child workflows and timers. An activity that returns
// activity.ErrResultPending is refused: its locks would end while it goes on.
//
// A local activity is guarded like any other. But where it runs again after a workflow task that timed out, it has the
// same number as before, and does not supersede its first run.
//
// # What it does not promise
//
// A worker without the interceptor runs a guarded step without its locks: it does not know the
// header. Install it on every worker that serves the task queue before workflows ask for locks. In
// scope saga the next guarded step finds out and fails.
//
// A step whose process stalls for longer than its TTL may go on after its lock was given to others, until it looks
// at its context: only a resource that checks fences refuses it.
//
// A guarded step's result is decoded with the workflow's data converter. Converters that use the
// activity's own serialization context see the workflow's instead.
package interceptors
