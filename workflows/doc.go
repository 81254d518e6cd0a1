// Package workflows is what workflow code calls: guards on steps, sagas, and locks around code.
//
// # The model
//
// A step is an activity. A guard is a set of locks that a step must hold before it runs:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"))
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// The guard takes nothing by itself. It travels with the step to the worker that runs it, and the
// locks are taken there, when the step is entered: no event is added to the history, and nothing is
// held while the step waits for a worker. They are renewed while the step runs, and its context is
// cancelled if one is lost.
//
// A saga is a sequence of steps of which each can be undone. It needs isolation over all of them, so
// its locks stay when a step has returned, and are let go at its very end:
//
//	err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
//		ctx = workflows.Guard(ctx, lockcore.Exclusive("account/"+in.From), lockcore.Exclusive("account/"+in.To))
//		if err := s.Step(ctx, Debit, Refund, in).Get(ctx, nil); err != nil {
//			return err
//		}
//		return workflow.ExecuteActivity(ctx, Credit, in).Get(ctx, nil)
//	})
//
//	Debit    ├─enter──run──leave─┤
//	Credit                          ├─enter──run──leave─┤
//	locks    ├──────────────────────────────────────────────────┤ release: one local activity
//	                                                  committed ┘
//
// Locks around code are for what is no step: a timer, a child workflow, a signal that has to be awaited alone:
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	…
//	hold.Release(ctx)
//
// They cost an event to take and an event to release. Where somebody is in the way the workflow waits in the queue, with no
// slot and with no more history however long it takes. They stand for their HoldTTL after the last sign of
// life. A step under them gives one, and so does the janitor (see worker.JanitorOptions) as long as the run is open.
//
// # Waiting
//
// A step that finds its locks busy stands in their queue, first come first served, and its workflow waits in an
// activity that is in back-off: no slot, no polling, and three events however long it takes. Whoever lets the lock go wakes
// it; when the holder is dead, the end of the holder's promise does. Then the step is scheduled again with the attempts and the time that it
// has left. [Locks] has options to wait for a bounded time, and not at all. Cancelling the step's context leaves the queue.
// A compensation waits as long as it takes; so it is not run where its step is known never to have run, see [Saga.Step].
//
// To Temporal a step that is scheduled again is another activity: where an attempt has failed and somebody else got in before the next, the
// step begins again with attempt 1, without the heartbeat details of the attempts before, and with another ActivityID unless
// the activity's options name one. So an idempotency key is made neither of activity.Info's ActivityID, where it is the default, nor of its Attempt,
// but of the workflow ID (or the run ID) and a key of the step's own; or the options say an ActivityID, which stays.
//
// The activity that waits, lockstep.Wait, goes to the step's own task queue, and for [Lock] to the workflow's, as do
// the lock activities that locks around code and a release fall back on. So Lockstep has to be
// installed on workers of both that run activities, and not only local ones. Where no worker does that (all workers of the workflow's queue have
// LocalActivityWorkerOnly), the workflow is woken when a worker with Lockstep lets the lock go, but nobody keeps its place in the queue
// alive, and nobody looks when a holder is dead. Run one more worker on that queue, with DisableWorkflowWorker and Register of package
// worker, or give each wait a MaxWait, which ends it anyway.
//
// Sagas that wait for each other are a deadlock. One of them is told, the youngest, but never one that is
// compensating: its step fails with a *lockcore.DeadlockError before it runs, and so the saga is undone and lets go.
// [SagaOptions] can begin it again. Where all that wait for each other are compensations, the youngest saga's fails so, and its
// [SagaError] tells of it; the saga is not begun again.
//
// # What is guaranteed
//
//   - Between the first guarded step of a saga and its end nobody else enters a step under an
//     incompatible lock on the same resource, also while a worker of the saga is dead, as long as
//     the saga gives a sign of life within the HoldTTL.
//   - Where that was not so, the next step of the saga fails with a *lockcore.LostError, before it runs.
//   - Compensations run while the locks are held, in reverse order, whether the saga failed or was cancelled.
//     They take anew what was lost.
//   - The locks are released after success, failure, cancellation and continue-as-new, also when no
//     step is known to have taken them.
//   - All of it replays: what is added to a history follows from the workflow's calls and from what
//     stands in the history.
//
// # What is not promised
//
//   - A step that ran under a lock which was lost meanwhile may have done its work beside somebody
//     else's. Resources that must refuse it check the fence; see activities.Fence.
//   - A workflow that is terminated, times out or is deleted runs no code. Its locks stand until
//     their HoldTTL has passed, the janitor finds them (see worker.JanitorOptions), or a later run of the same
//     workflow ID asks for them.
//   - A step of scope step with several resources holds none of them while it waits for one.
//   - A workflow that is reset goes on with what it held. What it had released after the point of the reset is gone, and
//     its history does not say so: others may have been in between.
//   - All sagas and locks of one workflow are held in its name: they do not keep each other out.
//
// # Changing workflows that are running
//
// Putting a guard, RunSaga or Lock around steps of workflows in flight is a change of workflow code like any other, and
// needs workflow.GetVersion like any other.
package workflows
