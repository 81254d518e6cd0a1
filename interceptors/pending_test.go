package interceptors

import (
	"context"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// An attempt that took long to get its locks does not run if Temporal has given it up, and another one may run.
func TestAnAttemptThatTookLongAsksWhetherItStillCounts(t *testing.T) {
	t.Parallel()
	c, queue := testenv.Temporal(t), testenv.TaskQueue(t)
	long := time.Now().Add(-time.Hour)
	first, second := make(chan error, 1), make(chan error, 1)
	w := sdkworker.New(c, queue, sdkworker.Options{})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		if activity.GetInfo(ctx).Attempt > 1 {
			err := checkNotAbandoned(ctx, long)
			second <- err
			return err
		}
		require.NoError(t, checkNotAbandoned(ctx, time.Now()))
		<-ctx.Done() // its time is over, and another attempt runs
		result := <-second
		first <- checkNotAbandoned(context.WithoutCancel(ctx), long)
		return result
	}, activity.RegisterOptions{Name: "Do"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: 3 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
		})
		return workflow.ExecuteActivity(ctx, "Do").Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "W"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "W")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.ErrorIs(t, <-first, errAbandoned)
}
