package adoption

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Name is the name of the workflow in every deployment.
const Name = "Subscription"

// Renewed is the signal that a subscription waits for between its two steps.
const Renewed = "renewed"

// Before is the workflow without locks: it opens a customer's account, waits, perhaps for months, and then charges it.
func Before(ctx workflow.Context, customer string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	if err := workflow.ExecuteActivity(ctx, "Open", customer).Get(ctx, nil); err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, Renewed).Receive(ctx, nil)
	return workflow.ExecuteActivity(ctx, "Charge", customer).Get(ctx, nil)
}

// Guarded is the same with a guard on its steps. A guard adds no event, but a wait for a busy lock does. So runs that began
// without the guard continue without it.
func Guarded(ctx workflow.Context, customer string) error {
	if workflow.GetVersion(ctx, "locks", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return Before(ctx, customer)
	}
	return guarded(ctx, customer)
}

func guarded(ctx workflow.Context, customer string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflows.Guard(ctx, lockcore.Exclusive("customer/"+customer))
	if err := workflow.ExecuteActivity(ctx, "Open", customer).Get(ctx, nil); err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, Renewed).Receive(ctx, nil)
	return workflow.ExecuteActivity(ctx, "Charge", customer).Get(ctx, nil)
}

// Isolated holds the lock from the first step to the last, as a saga. If that fails, its compensations are events, so GetVersion lets
// each run continue as it began.
func Isolated(ctx workflow.Context, customer string) error {
	switch workflow.GetVersion(ctx, "locks", workflow.DefaultVersion, 2) {
	case workflow.DefaultVersion:
		return Before(ctx, customer)
	case 1:
		return guarded(ctx, customer)
	default:
		return Saga(ctx, customer)
	}
}

// Saga is the workflow of new runs of Isolated.
func Saga(ctx workflow.Context, customer string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		// No step runs while it waits for the signal. The janitor of a worker extends the lock as long as the workflow is open.
		ctx = workflows.Guard(ctx, lockcore.Exclusive("customer/"+customer))
		if err := s.CompensateWith(ctx, "Close", customer); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, "Open", customer).Get(ctx, nil); err != nil {
			return err
		}
		workflow.GetSignalChannel(ctx, Renewed).Receive(ctx, nil)
		return workflow.ExecuteActivity(ctx, "Charge", customer).Get(ctx, nil)
	})
}

// Accounts has the activities, the same in every deployment.
type Accounts struct {
	// Did is called for each step, with whether it ran under its lock.
	Did func(step string, locked bool)
}

// Open opens an account.
func (a *Accounts) Open(ctx context.Context, customer string) error { return a.did(ctx, customer) }

// Charge charges it.
func (a *Accounts) Charge(ctx context.Context, customer string) error { return a.did(ctx, customer) }

// Close closes it.
func (a *Accounts) Close(ctx context.Context, customer string) error { return a.did(ctx, customer) }

func (a *Accounts) did(ctx context.Context, customer string) error {
	_, locked := activities.Fence(ctx, "customer/"+customer)
	a.Did(activity.GetInfo(ctx).ActivityType.Name, locked)
	return nil
}
