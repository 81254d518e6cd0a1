package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// wrapping is a user's interceptor that wraps the errors of activities.
type wrapping struct{ interceptor.InterceptorBase }

func (*wrapping) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &wrappingInbound{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type wrappingInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

func (w *wrappingInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	result, err := w.Next.ExecuteActivity(ctx, in)
	if err != nil {
		err = fmt.Errorf("observed: %w", err)
	}
	return result, err
}

// A busy step parks, and its wait finds the lock, although an interceptor of the worker or of its client wraps their failures. The
// failures of steps stay wrapped.
func TestInterceptor_WrapsErrors_StepParks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		client func(b *bundle) client.Options
		worker sdkworker.Options
	}{
		"of the worker": {nil, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{&wrapping{}}}},
		"of the client": {func(b *bundle) client.Options {
			return client.Options{Plugins: []client.Plugin{b.plugin}, Interceptors: []interceptor.ClientInterceptor{&wrapping{}}}
		}, sdkworker.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if tc.client != nil {
				b.reach(t, tc.client(b))
			}
			once := temporal.RetryPolicy{MaximumAttempts: 1}
			b.workflow("W", func(ctx workflow.Context) error {
				ctx = workflow.WithRetryPolicy(ctx, once)
				if err := do(workflows.Guard(ctx, account), "Nothing"); err != nil {
					return err
				}
				return do(workflows.Guard(ctx, account), "Fails")
			})
			b.work(t, tc.worker, map[string]any{"Fails": func(context.Context) error { return fmt.Errorf("the step fails") }})
			run, other := b.parked(t, "W")
			require.NoError(t, other.Leave(t.Context()))
			_, err := b.end(t, run)
			require.ErrorContains(t, err, "observed: the step fails")
		})
	}
}
