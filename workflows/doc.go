// Package workflows is what workflow code calls: guards on steps, sagas, and locks around code.
//
// A guard is a set of locks that an activity holds while it runs. It is taken by the activity's worker, and adds no event:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.SharedLimit("printer", 2))
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// A saga keeps the locks of its steps from its first guarded step to its end, compensations included:
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
//	locks    ├──────────────────────────────────────────────────┤ verified, recorded, released
//
// The saga verifies its locks by a local activity, and they are released once Temporal has recorded what follows from that.
// A Lock stands over timers, signals and child workflows:
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	…
//	err = hold.Release(ctx)
//
// If locks are busy, the workflow waits in their queue: first come, first served, without using the step's attempts,
// and but for a moment without a slot or its time. Its worker needs the plugin of package worker, and so does the activity's.
//
// Failures match lockcore.ErrBusy, ErrLost, ErrDeadlock, ErrSuperseded, ErrInvalid and ErrEnded, and the types that go with them.
// As application errors their types begin with "lockstep.". See [LockError] for those of child workflows.
//
// All locks of one workflow are held in its name, by all its runs: they do not keep each other out, but for steps with locks
// of scope step. Guards, sagas and Locks around steps of running workflows change workflow code: use workflow.GetVersion.
//
// What waits cost, idempotency keys, handlers, children, and resets: docs/guides/guards.md and sagas.md in the repository.
package workflows
