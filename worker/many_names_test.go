package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Temporal terminates a workflow that sets a search attribute of more than 2,048 bytes: these names have more.
func TestGuard_ManyLongNamesBusy_WorkflowGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := make([]lockcore.Resource, 45)
	for i := range resources {
		resources[i] = lockcore.Exclusive(fmt.Sprintf("%s/%d", strings.Repeat("x", 50), i))
	}
	b.workflow("W", func(ctx workflow.Context) error {
		steps := make([]workflow.Future, len(resources))
		for i, r := range resources {
			steps[i] = workflow.ExecuteActivity(workflows.Guard(ctx, r), "Nothing")
		}
		for _, step := range steps {
			if err := step.Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	held, err := b.locker.Core().TryAcquire(t.Context(), party.Request{LockID: "somebody", Resources: resources})
	require.NoError(t, err)
	run := b.start(t, "W")
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		steps := slices.ContainsFunc(d.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() != "lockstep.Wait"
		})
		ended := d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		return err == nil && (ended || len(d.GetPendingActivities()) == len(resources) && !steps)
	}, within, lookEvery, "the steps do not wait")
	require.NoError(t, held.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
}
