package interceptors

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A guard locks nothing around a child workflow or a Nexus operation: that is logged once for each type, and nothing is refused.
func TestUnlockedCalls_UnderAGuard_AreLoggedOnce(t *testing.T) {
	t.Parallel()
	logs := &strings.Builder{}
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(logs, nil))))
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{with(&fakeLocker{})}})
	env.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "Child"})
	pay := nexus.NewOperationReference[string, string]("Pay")
	env.OnNexusOperation("shop", pay, mock.Anything, mock.Anything).Return(&nexus.HandlerStartOperationResultSync[string]{Value: "paid"}, nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		c := workflow.NewNexusClient("endpoint", "shop")
		for _, ctx := range []workflow.Context{ctx, workflows.Unguarded(workflows.Guard(ctx, account))} {
			if err := workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil); err != nil {
				return err
			}
			if err := c.ExecuteOperation(ctx, pay, "1 EUR", workflow.NexusOperationOptions{}).Get(ctx, nil); err != nil {
				return err
			}
		}
		if strings.Contains(logs.String(), "locks nothing") {
			panic("there is no guard")
		}
		ctx = workflows.Guard(ctx, account)
		for range 2 {
			if err := workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil); err != nil {
				return err
			}
			for _, operation := range []any{pay, "Pay"} {
				if err := c.ExecuteOperation(ctx, operation, "1 EUR", workflow.NexusOperationOptions{}).Get(ctx, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	for call, name := range map[string]string{"child workflow": "type=Child", "Nexus operation": "type=Pay"} {
		var found []string
		for line := range strings.Lines(logs.String()) {
			if strings.Contains(line, "a guard around a "+call) {
				found = append(found, line)
			}
		}
		require.Len(t, found, 1, logs.String())
		require.Contains(t, found[0], "level=ERROR")
		require.Contains(t, found[0], name)
		require.Contains(t, found[0], "workflows.Lock")
		require.Contains(t, found[0], "workflows.Unguarded")
	}
}
