package workflows_test

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

type order struct {
	From, To string
	Cents    int64
}

func debit(ctx context.Context, o order) error {
	// A store that remembers the highest fence refuses writes with a lower one.
	fence, _ := activities.Fence(ctx, "account/"+o.From)
	_ = fence
	return nil
}

func refund(context.Context, order) error { return nil }
func credit(context.Context, order) error { return nil }

// A saga over two accounts: no other workflow changes them until the saga has committed or was undone.
func ExampleRunSaga() {
	transfer := func(ctx workflow.Context, o order) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, lockcore.Exclusive("account/"+o.From), lockcore.Exclusive("account/"+o.To))
			// If the saga fails, refund undoes what debit may have done.
			if err := s.Step(ctx, debit, refund, o).Get(ctx, nil); err != nil {
				return err
			}
			return workflow.ExecuteActivity(ctx, credit, o).Get(ctx, nil)
		})
	}
	_ = transfer
}

// One step at a time changes the account. Several steps may read the rates at the same time.
func ExampleGuard() {
	pay := func(ctx workflow.Context, o order) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
		ctx = workflows.Guard(ctx, lockcore.Exclusive("account/"+o.From), lockcore.Shared("rates"))
		return workflow.ExecuteActivity(ctx, debit, o).Get(ctx, nil)
	}
	_ = pay
}

// A step that waits for at most a minute, and the failure if the lock is busy for longer.
func ExampleLocks() {
	pay := func(ctx workflow.Context, o order) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
		ctx = workflows.WithLocks(ctx, workflows.Locks{
			Resources: []lockcore.Resource{lockcore.Exclusive("account/" + o.From)},
			MaxWait:   time.Minute,
		})
		err := workflow.ExecuteActivity(ctx, debit, o).Get(ctx, nil)
		var busy *lockcore.BusyError
		if errors.As(err, &busy) {
			workflow.GetLogger(ctx).Info("the account was busy for a minute", "holders", busy.Holders)
		}
		return err
	}
	_ = pay
}

// One of ten places, held between the steps too; and a step that needs no lock.
func ExampleWithLocks() {
	report := func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{
			Resources: []lockcore.Resource{lockcore.SharedLimit("reports", 10)},
			Scope:     workflows.ScopeSaga,
			HoldTTL:   time.Hour,
		})
		if err := workflow.ExecuteActivity(ctx, "Gather").Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(workflows.Unguarded(ctx), "Mail").Get(ctx, nil)
	}
	_ = report
}

// A lock over a timer that is longer than its HoldTTL: the janitor extends it as long as the run is open.
func ExampleLock() {
	maintain := func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, workflows.Locks{
			Resources: []lockcore.Resource{lockcore.Exclusive("turbine/7")},
			MaxWait:   time.Hour,
		})
		if err != nil {
			return err // a *lockcore.BusyError names the holder
		}
		err = workflow.Sleep(ctx, 6*time.Hour)
		if lost := hold.Release(ctx); err == nil {
			err = lost // another workflow may have held it in between
		}
		return err
	}
	_ = maintain
}
