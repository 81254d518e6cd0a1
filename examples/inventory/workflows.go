package inventory

import (
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Bays is the number of orders that can be picked and packed at the same time.
const Bays = 3

// Order is a customer's order.
type Order struct {
	ID       string
	SKU      string
	Quantity int
}

// Fulfil reserves what was ordered, and picks and packs it in a bay. What cannot be packed goes back into the stock.
func Fulfil(ctx workflow.Context, o Order) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		var w *Warehouse
		// One order at a time counts the stock, and no other waits for it while this one is packed.
		stock := workflows.WithLocks(ctx, workflows.Locks{
			Resources: []lockcore.Resource{lockcore.Exclusive("stock/" + o.SKU)}, Scope: workflows.ScopeStep,
		})
		if err := s.CompensateWith(stock, w.PutBack, o); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(stock, w.Reserve, o).Get(ctx, nil); err != nil {
			return err
		}
		// One of the bays is this order's from its first step there until the saga ends.
		bay := workflows.Guard(ctx, lockcore.SharedLimit("bays", Bays))
		if err := workflow.ExecuteActivity(bay, w.Pick, o).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(bay, w.Pack, o).Get(ctx, nil)
	})
}

// Register registers the workflow and the warehouse's activities.
func Register(r worker.Registry, w *Warehouse) {
	r.RegisterWorkflow(Fulfil)
	r.RegisterActivity(w)
}
