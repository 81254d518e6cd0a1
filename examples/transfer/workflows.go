package transfer

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Transfer is the argument of a transfer and of all its steps.
type Transfer struct {
	// ID is unique; it makes the steps idempotent.
	ID string
	// Key decides, with the bank's seed, whether the check fails.
	Key string
	// From and To are accounts.
	From, To string
	// Amount is in cents.
	Amount int64
	// Guarded locks the accounts. The control runs without it.
	Guarded bool
}

// Audit is the argument of an audit.
type Audit struct {
	Accounts []string
	Guarded  bool
}

// lockTTL is the time for which a killed worker's step keeps others out: short, for a demo.
const lockTTL = 5 * time.Second

// stepOptions need not allow for waiting: waiting for a lock uses neither the time nor the attempts of a step.
var stepOptions = workflow.ActivityOptions{
	StartToCloseTimeout:    5 * time.Second, // then a killed worker's step is retried
	ScheduleToCloseTimeout: 10 * time.Minute,
	RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
}

// sagaOptions restarts sagas that were deadlock victims.
var sagaOptions = workflows.SagaOptions{DeadlockRetries: 100}

// TransferWorkflow moves the amount. Each account is locked by the first step that needs it, until the transfer has committed
// or has been undone. So transfers from A to B and from B to A can wait for each other: one of them is undone, releases its
// locks, and begins again.
func TransferWorkflow(ctx workflow.Context, t Transfer) error {
	ctx = workflow.WithActivityOptions(ctx, stepOptions)
	return workflows.RunSaga(ctx, sagaOptions, func(ctx workflow.Context, s *workflows.Saga) error {
		t := t
		t.ID = fmt.Sprintf("%s/%d", t.ID, s.Attempt()) // what was undone must not look as if it were done
		from, to := ctx, ctx
		if t.Guarded {
			from, to = guard(ctx, lockcore.Exclusive(t.From)), guard(ctx, lockcore.Exclusive(t.To))
		}
		var bank *Bank
		if err := s.Step(from, bank.Debit, bank.UndoDebit, t).Get(ctx, nil); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(from, bank.Check, t).Get(ctx, nil); err != nil {
			return err
		}
		return s.Step(to, bank.Credit, bank.UndoCredit, t).Get(ctx, nil)
	})
}

// AuditWorkflow returns the sum of the accounts. Shared locks on all accounts let auditors read at the same time, and keep
// transfers out. It is a saga so that it keeps its first locks while it waits for the others.
func AuditWorkflow(ctx workflow.Context, a Audit) (total int64, err error) {
	ctx = workflow.WithActivityOptions(ctx, stepOptions)
	err = workflows.RunSaga(ctx, sagaOptions, func(ctx workflow.Context, _ *workflows.Saga) error {
		if a.Guarded {
			resources := make([]lockcore.Resource, len(a.Accounts))
			for i, id := range a.Accounts {
				resources[i] = lockcore.Shared(id)
			}
			ctx = guard(ctx, resources...)
		}
		var bank *Bank
		return workflow.ExecuteActivity(ctx, bank.Total, a.Accounts).Get(ctx, &total)
	})
	return total, err
}

func guard(ctx workflow.Context, resources ...lockcore.Resource) workflow.Context {
	return workflows.WithLocks(ctx, workflows.Locks{Resources: resources, TTL: lockTTL})
}

// Register registers the workflows and the bank's activities.
func Register(w worker.Registry, b *Bank) {
	w.RegisterWorkflow(TransferWorkflow)
	w.RegisterWorkflow(AuditWorkflow)
	w.RegisterActivity(b)
}
