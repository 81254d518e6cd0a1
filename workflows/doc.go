// Package workflows is the API for workflow code: guards on steps, sagas, and locks around code. The workers that run the workflow and its
// activities need the plugin of package worker.
//
// # Guards
//
// A guard is a set of locks that an activity holds while it runs. The activity's worker takes the locks, and the guard adds no event to the
// history:
//
//	ctx = workflows.Guard(ctx, lockcore.Exclusive("account/42"), lockcore.SharedLimit("printer", 2))
//	err := workflow.ExecuteActivity(ctx, Debit, in).Get(ctx, nil)
//
// If locks are busy, the step waits in their queue, first come, first served. After two seconds at most it gives up its worker slot. From
// then on, waiting does not count against the step's attempts or timeouts.
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
//		return s.Step(ctx, Credit, TakeBack, in).Get(ctx, nil)
//	})
//
//	Debit    ├─acquire──run──return─┤
//	Credit                             ├─join──run──return─┤
//	locks    ├──────────────────────────────────────────────────┤ committed, recorded, released
//
// A saga whose steps have used all its locks within the last five minutes commits without asking the database, and adds no event; see [RunSaga]
// for what that gives up. The locks are released after Temporal has recorded the end of the saga.
//
// # Locks around code
//
// Locks taken with [Lock] are held across timers, signals and child workflows:
//
//	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
//	…
//	err = hold.Release(ctx)
//
// [Hold.Release] is a commit, too. What the workflow function has not released when it returns is released without being verified.
//
// # Errors
//
// Errors match lockcore.ErrBusy, ErrLost, ErrDeadlock, ErrSuperseded and ErrInvalid, and their types, or lockcore.ErrEnded. In a history
// they are application errors whose types begin with "lockstep.". For failures of child workflows see [LockError].
//
// What cannot be encoded, or read from the history, fails the workflow task by a panic, and Temporal repeats the task. With
// WorkflowPanicPolicy FailWorkflow a panic fails the workflow, and no compensation runs.
//
// # Who shares locks
//
// The locks of sagas and of [Lock] belong to the workflow ID: all runs of a workflow share them, and do not exclude each other. A step
// guarded outside a saga, or with ScopeStep, has locks of its own.
//
// Adding a saga, a Lock or a guard to the code of running workflows may change the order of their
// commands, so that their histories do not replay: use workflow.GetVersion.
//
// Costs of waiting, idempotency keys, handlers, children and resets: docs/guides/guards.md and sagas.md in the repository.
package workflows
