package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step that ignores its cancellation, or has timed out and lives on, is not undone while it still runs.
func TestACompensationDoesNotRunBesideItsStep(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(ctx workflow.Context, s *workflows.Saga) error{
		"cancelled": func(ctx workflow.Context, s *workflows.Saga) error {
			own, cancel := workflow.WithCancel(ctx)
			step := s.Step(own, "Step", "Undo")
			receive(ctx, "go on")
			cancel()
			return step.Get(ctx, nil)
		},
		"timed out": func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				StartToCloseTimeout: 2 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
			})
			step := s.Step(ctx, "Step", "Undo")
			receive(ctx, "go on")
			return step.Get(ctx, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					return ends(workflows.Guard(ctx, account), s)
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Step": func(context.Context) error {
					b.write("step begins")
					close(entered)
					<-leave // it does not look at its context
					b.write("step ends")
					return errors.New("nobody reads this")
				},
				"Undo": func(context.Context) error {
					b.write("undone")
					return nil
				},
			})
			run := b.start(t, "W")
			<-entered
			b.signal(t, run, "go on")
			b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "lockstep.Bar" && a.GetLastFailure() != nil
			}, "the saga does not wait for its step")
			require.Equal(t, []string{"step begins"}, b.read())
			close(leave)
			_, err := b.end(t, run)
			require.Error(t, err)
			require.Equal(t, []string{"step begins", "step ends", "undone"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}
