//go:build newtemporal

package worker_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Workflows can be paused on servers from 1.30 on, if the setting frontend.WorkflowPauseEnabled says so: internal/tools/stack/newtemporal
// starts one.
func TestWhatIsHeldAndWaitedForSurvivesAPause(t *testing.T) {
	t.Parallel()
	const holdTTL = 2 * time.Second
	b := setup(t)
	janitored(t, b)
	b.workflow("Saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: time.Second, HoldTTL: holdTTL})
			err := do(ctx, "Note")
			workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil)
			return err
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": func(context.Context) error { b.write("entered"); return nil }})
	holder := b.start(t, "Saga")
	b.untilWritten(t, 1)
	waiter := b.start(t, "Saga")
	b.untilParked(t, waiter)
	last := b.start(t, "Saga")
	b.untilParked(t, last)
	b.pause(t, holder)
	b.pause(t, waiter)
	site := inspect.Site{Locker: b.locker.Core(), Temporal: inspect.Temporal{Service: b.client.WorkflowService(), Namespace: client.DefaultNamespace, NamespaceID: namespaceID}}
	why, err := site.Why(t.Context(), last.GetID())
	require.NoError(t, err)
	require.NotEmpty(t, why.Roots)
	require.Equal(t, holder.GetID(), why.Roots[0].Party.Workflow)
	require.Equal(t, "its workflow is paused: temporal workflow unpause --workflow-id "+holder.GetID(), why.Roots[0].Advice)

	<-time.After(3 * holdTTL) // in which the holds would end if nobody extended them
	b.requireHolds(t, holder, account)
	b.untilQueued(t, account.Name, 2)

	for _, run := range []client.WorkflowRun{holder, waiter} {
		b.unpause(t, run)
	}
	for i, run := range []client.WorkflowRun{holder, waiter, last} { // in their order, though the last was never paused
		b.untilWritten(t, i+1)
		b.requireHolds(t, run, account)
		require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "end", nil))
		require.NoError(t, run.Get(t.Context(), nil))
	}
	b.requireFree(t, account.Name)
}

func (b *bundle) pause(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	_, err := b.client.WorkflowService().PauseWorkflowExecution(t.Context(), &workflowservice.PauseWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowId: run.GetID(), RunId: run.GetRunID(), Reason: "a test", RequestId: rand.Text(),
	})
	require.NoError(t, err)
}

func (b *bundle) unpause(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	_, err := b.client.WorkflowService().UnpauseWorkflowExecution(t.Context(), &workflowservice.UnpauseWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowId: run.GetID(), RunId: run.GetRunID(), Reason: "a test", RequestId: rand.Text(),
	})
	require.NoError(t, err)
}

// TestTheDoctorFindsAWorkerWithoutLockstep: servers from 1.30 on list their workers, with the plugins that each has.
func TestTheDoctorFindsAWorkerWithoutLockstep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.dial(t, client.Options{WorkerHeartbeatInterval: time.Second})
	b.workflow("W", func(workflow.Context) error { return nil })
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	m, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Disconnect(context.WithoutCancel(t.Context()))) })
	patient := inspect.Patient{Logger: log.NewStructuredLogger(slog.Default()), Site: inspect.Site{
		Locker: b.locker.Core(), Collection: m.Database(b.database).Collection(lockCollection),
		Temporal: inspect.Temporal{Service: b.client.WorkflowService(), Namespace: client.DefaultNamespace, NamespaceID: namespaceID},
	}}
	workers := func() (found inspect.Finding) {
		for _, f := range patient.Examine(t.Context()) {
			if f.About == "workers" {
				found = f
			}
		}
		return found
	}
	require.NotContains(t, workers().What, b.queue)
	bare, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), WorkerHeartbeatInterval: time.Second})
	require.NoError(t, err)
	t.Cleanup(bare.Close)
	w := sdkworker.New(bare, b.queue, sdkworker.Options{Identity: "bare"})
	w.RegisterActivity(nothing)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	require.Eventually(t, func() bool { return strings.Contains(workers().What, b.queue+" (bare)") }, within, 200*time.Millisecond)
	require.Equal(t, inspect.Broken, workers().State)
}
