package transfer

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Transfer is one transfer, and what all its steps get.
type Transfer struct {
	// ID is unique; it makes the steps idempotent.
	ID string
	// Key decides, with the bank's seed, whether the check fails.
	Key string
	// From and To are accounts.
	From, To string
	// Amount is in cents.
	Amount int64
	// Guarded takes the locks; without, it is the control.
	Guarded bool
}

// Audit is what an auditor gets.
type Audit struct {
	Accounts []string
	Guarded  bool
}

// lockTTL is how long a killed worker's step keeps others out: short, for a demo.
const lockTTL = 5 * time.Second

// stepOptions allow for waiting: a step that finds an account locked fails its attempt and is tried again, in its
// place in the queue, so waiting uses attempts and the time from schedule to close.
var stepOptions = workflow.ActivityOptions{
	StartToCloseTimeout:    5 * time.Second, // a killed worker's step is tried again after this
	ScheduleToCloseTimeout: 10 * time.Minute,
	RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
}

// TransferWorkflow moves the amount. Both accounts are locked at the first step, in one request, so that
// transfers from A to B and from B to A cannot wait for each other; the locks stay until the transfer has
// committed or has been undone. Each step's compensation is registered before the step: a step that timed out may have
// been applied.
func TransferWorkflow(ctx workflow.Context, t Transfer) error {
	ctx = workflow.WithActivityOptions(ctx, stepOptions)
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		if t.Guarded {
			ctx = guard(ctx, lockcore.Exclusive(t.From), lockcore.Exclusive(t.To))
		}
		var bank *Bank
		s.CompensateWith(ctx, bank.UndoDebit, t)
		if err := workflow.ExecuteActivity(ctx, bank.Debit, t).Get(ctx, nil); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, bank.Check, t).Get(ctx, nil); err != nil {
			return err
		}
		s.CompensateWith(ctx, bank.UndoCredit, t)
		return workflow.ExecuteActivity(ctx, bank.Credit, t).Get(ctx, nil)
	})
}

// AuditWorkflow returns the sum of the accounts. Shared locks on all of them let auditors read side by
// side, and keep transfers out while they do. It is a saga so that the locks which it got first are kept
// while it waits for the others.
func AuditWorkflow(ctx workflow.Context, a Audit) (total int64, err error) {
	ctx = workflow.WithActivityOptions(ctx, stepOptions)
	err = workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
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
