package recipes

import (
	"context"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporalnexus"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Restock keeps an article locked while a child workflow delivers it.
func Restock(ctx workflow.Context, article string) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("stock/" + article)}})
	if err != nil {
		return err
	}
	ctx = workflows.WithOwner(ctx, "") // the child inherits the owner, so that deadlocks through it are found
	err = workflow.ExecuteChildWorkflow(ctx, Deliver, article).Get(ctx, nil)
	if lost := hold.Release(ctx); err == nil {
		err = lost
	}
	return err
}

// RestockByNexus does the same with a Nexus operation, which may run in another namespace.
func RestockByNexus(ctx workflow.Context, endpoint, article string) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("stock/" + article)}})
	if err != nil {
		return err
	}
	carrier := workflow.NewNexusClient(endpoint, "carrier")
	err = carrier.ExecuteOperation(ctx, "deliver", article, workflow.NexusOperationOptions{ScheduleToCloseTimeout: time.Hour}).Get(ctx, nil)
	if lost := hold.Release(ctx); err == nil {
		err = lost
	}
	return err
}

// Deliver is the child, and the workflow behind the operation. It has locks of its own, and must not ask for those of its caller, which waits for it.
func Deliver(ctx workflow.Context, article string) (nexus.NoValue, error) {
	ctx = workflows.Guard(withOptions(ctx), lockcore.Exclusive("ramp"))
	return nil, workflow.ExecuteActivity(ctx, work.Ship, article).Get(ctx, nil)
}

// Carrier is the Nexus service, for the worker that runs Deliver.
func Carrier() (*nexus.Service, error) {
	deliver := temporalnexus.NewWorkflowRunOperation("deliver", Deliver,
		func(_ context.Context, article string, o nexus.StartOperationOptions) (client.StartWorkflowOptions, error) {
			return client.StartWorkflowOptions{ID: "deliver-" + article + "-" + o.RequestID}, nil
		})
	carrier := nexus.NewService("carrier")
	return carrier, carrier.Register(deliver)
}
