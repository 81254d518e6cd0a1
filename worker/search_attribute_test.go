package worker_test

import (
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var shelf = lockcore.Exclusive("shelf")

// waitsWith runs a workflow of two steps that wait side by side, replays it, and returns the events
// that set search attributes.
func (b *bundle) waitsWith(t *testing.T, attribute string, meanwhile func(id string)) []*historypb.HistoryEvent {
	t.Helper()
	plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker, Janitor: worker.JanitorOptions{Off: true}, WaitingAttribute: attribute})
	require.NoError(t, err)
	b.workflow("W", func(ctx workflow.Context) error {
		one := workflow.ExecuteActivity(workflows.Guard(ctx, account), "Nothing")
		two := workflow.ExecuteActivity(workflows.Guard(ctx, shelf), "Nothing")
		if err := one.Get(ctx, nil); err != nil {
			return err
		}
		return two.Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}}, map[string]any{"Nothing": nothing})
	first, second := b.taken(t, account), b.taken(t, shelf)
	run := b.start(t, "W")
	b.untilQueued(t, account.Name, 1)
	b.untilQueued(t, shelf.Name, 1)
	meanwhile(run.GetID())
	require.NoError(t, first.Leave(t.Context()))
	require.NoError(t, second.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	b.replay(t, b.historyOf(t, run.GetID(), run.GetRunID())) // by a worker that knows nothing of the attribute
	var upserts []*historypb.HistoryEvent
	for _, e := range events {
		if e.GetEventType() == enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES {
			upserts = append(upserts, e)
		}
	}
	return upserts
}

func TestAWorkflowThatWaitsIsFoundByASearchAttribute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const attribute = "LockstepWaitsFor"
	_, err := b.client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: "default", SearchAttributes: map[string]enumspb.IndexedValueType{attribute: enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST},
	})
	require.NoError(t, err)
	upserts := b.waitsWith(t, attribute, func(id string) {
		for _, resource := range []string{account.Name, shelf.Name} {
			require.Eventually(t, func() bool {
				found, err := b.client.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
					Query: "WorkflowId = '" + id + "' AND " + attribute + " = '" + resource + "'",
				})
				return err == nil && len(found.GetExecutions()) == 1
			}, within, 100*time.Millisecond, resource)
		}
	})
	require.NotEmpty(t, upserts)
	last := upserts[len(upserts)-1].GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
	require.Empty(t, last[attribute].GetData(), "what is not waited for any more does not stand there")
}

func TestAWaitGoesOnWithoutASearchAttributeThatTheNamespaceDoesNotHave(t *testing.T) {
	t.Parallel()
	require.Empty(t, setup(t).waitsWith(t, "NotThere", func(string) {}))
}
