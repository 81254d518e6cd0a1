// Package workflows is the API for workflow code: guards on steps, sagas, and locks around code. Its worker needs the plugin of package
// worker, and so do the workers of its activities.
//
// # Guards
//
// A guard is a set of locks that an activity holds while it runs. The activity's worker takes the locks, and the guard adds no event to the
// history:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.SharedLimit("printer", 2))
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// If locks are busy, the workflow waits in their queue, first come, first served. The wait does not use the step's attempts or timeouts,
// and no slot of a worker, except for a moment.
//
// # Sagas
//
// A saga keeps the locks of its steps from its first guarded step to its end, including compensations:
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
// At its end the saga verifies its locks by a local activity. They are released after Temporal has recorded what the workflow decided.
//
// # Locks around code
//
// A Lock is held over timers, signals and child workflows:
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	…
//	err = hold.Release(ctx)
//
// # Errors
//
// Errors match lockcore.ErrBusy, ErrLost, ErrDeadlock, ErrSuperseded, ErrInvalid and ErrEnded, and the types that go with them. In a history
// they are application errors whose types begin with "lockstep.". For failures of child workflows see [LockError].
//
// # Parties and versions
//
// All locks of one workflow are held in its name, by all its runs. They do not exclude each other, except those of steps with ScopeStep.
// Adding a saga or a Lock to running workflows, or guards around their steps, changes workflow code: use workflow.GetVersion.
//
// Costs of waiting, idempotency keys, handlers, children and resets: docs/guides/guards.md and sagas.md in the repository.
package workflows
