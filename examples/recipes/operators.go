package recipes

import (
	"context"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// StartUrgent starts an order that goes before waiting orders without a priority, wherever it waits.
func StartUrgent(ctx context.Context, c client.Client, queue, account string) (client.WorkflowRun, error) {
	return c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue, Priority: temporal.Priority{PriorityKey: 1}}, Order, account)
}

// Throttle allows only so many calls to each partner at a time, for an hour.
func Throttle(ctx context.Context, locker *lockcore.Locker, calls int) error {
	return locker.SetPolicy(ctx, lockcore.Policy{
		Name: "partner/", Prefix: true, Limit: calls, Until: time.Now().Add(time.Hour), By: "ann", Reason: "the partners are slow",
	})
}

// Preempt cancels the workflows that hold a resource. Each undoes its saga under its locks, and then the first waiter gets the resource.
func Preempt(ctx context.Context, c client.Client, locker *lockcore.Locker, resource string) error {
	holders := lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateHolding}}
	for holder, err := range locker.Status(ctx, holders) {
		if err != nil {
			return err
		}
		_, workflowID, _ := strings.Cut(holder.Owner, "/") // after the ID of the namespace
		if err := c.CancelWorkflow(ctx, workflowID, ""); err != nil {
			return err
		}
	}
	return nil
}
