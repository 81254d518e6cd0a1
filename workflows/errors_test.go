package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step without a guard, which a rule locks, is the victim of a deadlock. The saga begins again, unless the deadlock was another
// workflow's.
func TestRunSaga_DeadlockOfUnguardedStep_IsRepeated(t *testing.T) {
	t.Parallel()
	deadlock := temporal.NewNonRetryableApplicationError("deadlock", "lockstep.Deadlock", nil)
	step := func(ctx workflow.Context, name string) error {
		return workflow.ExecuteActivity(ctx, name).Get(ctx, nil)
	}
	for name, c := range map[string]struct {
		fn       func(ctx workflow.Context) error
		repeated bool
	}{
		"as it is": {func(ctx workflow.Context) error { return step(ctx, "Deadlock") }, true},
		"wrapped":  {func(ctx workflow.Context) error { return fmt.Errorf("pay: %w", step(ctx, "Deadlock")) }, true},
		"joined":   {func(ctx workflow.Context) error { return errors.Join(errStep, step(ctx, "Deadlock")) }, true},
		"of a child": {func(ctx workflow.Context) error {
			return workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil)
		}, false},
		"below another failure": {func(ctx workflow.Context) error { return step(ctx, "Deeper") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, _ := newEnv()
			env.RegisterActivityWithOptions(func(context.Context) error { return deadlock }, activity.RegisterOptions{Name: "Deadlock"})
			env.RegisterActivityWithOptions(func(context.Context) error {
				return temporal.NewNonRetryableApplicationError("another workflow failed", "Other", deadlock)
			}, activity.RegisterOptions{Name: "Deeper"})
			env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error { return deadlock }, workflow.RegisterOptions{Name: "Child"})
			calls, matched := 0, false
			_ = execute(t, env, func(ctx workflow.Context) error {
				err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: 2}, func(ctx workflow.Context, _ *workflows.Saga) error {
					calls++
					return c.fn(ctx)
				})
				matched = errors.Is(err, lockcore.ErrDeadlock)
				return err
			})
			require.Equal(t, c.repeated, calls == 3, "%d calls", calls)
			require.Equal(t, c.repeated, matched)
		})
	}
}
