package recipes

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"
)

// Work has the activities. Each calls Do with its name and its argument.
type Work struct {
	Do func(ctx context.Context, step, id string) error
}

// Charge takes money from an account.
func (w *Work) Charge(ctx context.Context, id string) error { return w.Do(ctx, "Charge", id) }

// Refund undoes Charge.
func (w *Work) Refund(ctx context.Context, id string) error { return w.Do(ctx, "Refund", id) }

// Print prints a label.
func (w *Work) Print(ctx context.Context, id string) error { return w.Do(ctx, "Print", id) }

// Ship ships an order.
func (w *Work) Ship(ctx context.Context, id string) error { return w.Do(ctx, "Ship", id) }

// Bill closes the month of a tenant.
func (w *Work) Bill(ctx context.Context, id string) error { return w.Do(ctx, "Bill", id) }

var work *Work // only names activities, in workflows

// withOptions returns a context with the options of all activities.
func withOptions(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
}
