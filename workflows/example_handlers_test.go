package workflows_test

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var stepOptions = workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second}

// An update handler locks in its workflow's name. A guard of scope step makes two updates of one workflow exclude each other.
func Example_update() {
	account := func(ctx workflow.Context, id string) error {
		err := workflow.SetUpdateHandler(ctx, "debit", func(ctx workflow.Context, o order) error {
			ctx = workflow.WithActivityOptions(ctx, stepOptions)
			ctx = workflows.Guard(ctx, lockcore.Exclusive("account/"+id))
			return workflow.ExecuteActivity(ctx, debit, o).Get(ctx, nil)
		})
		if err != nil {
			return err
		}
		workflow.GetSignalChannel(ctx, "close").Receive(ctx, nil)
		// Otherwise running handlers would be cut off, and their locks released.
		return workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	}
	_ = account
}

// Each account has a workflow, which the first order starts. The locks of one order are released before the next begins.
func Example_signalWithStart() {
	var transfer func(workflow.Context, order) error // the saga in the example of RunSaga
	orders := func(ctx workflow.Context) error {
		incoming := workflow.GetSignalChannel(ctx, "order")
		for {
			var o order
			if ok, _ := incoming.ReceiveWithTimeout(ctx, time.Hour, &o); !ok {
				return ctx.Err()
			}
			if err := transfer(ctx, o); err != nil {
				workflow.GetLogger(ctx).Error("an order failed and was undone", "error", err)
			}
		}
	}
	send := func(ctx context.Context, c client.Client, o order) error {
		_, err := c.SignalWithStartWorkflow(ctx, "orders-"+o.From, "order", o, client.StartWorkflowOptions{TaskQueue: "payments"}, orders)
		return err
	}
	_ = send
}

// A child is a party of its own, which its parent's locks keep out. With the owner of its parent, a deadlock is found in which another
// workflow waits for the parent, and the child for that workflow.
func Example_childWorkflow() {
	settle := func(ctx workflow.Context, o order) error {
		ctx = workflow.WithChildOptions(workflows.WithOwner(ctx, ""), workflow.ChildWorkflowOptions{WorkflowID: "settle-" + o.From})
		return workflow.ExecuteChildWorkflow(ctx, "Settle", o).Get(ctx, nil)
	}
	_ = settle
}
