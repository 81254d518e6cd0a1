//go:build newtemporal

package worker_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// version starts a worker of a version of the test's deployment, whose steps note their version.
func (b *bundle) version(t *testing.T, build string, behavior workflow.VersioningBehavior) sdkworker.Worker {
	t.Helper()
	note := func(ctx context.Context, what string) error { return b.note(ctx, what+" on "+build) }
	w := b.work(t, sdkworker.Options{DeploymentOptions: sdkworker.DeploymentOptions{
		UseVersioning: true, Version: sdkworker.WorkerDeploymentVersion{DeploymentName: b.queue, BuildID: build}, DefaultVersioningBehavior: behavior,
	}}, map[string]any{"Note": note})
	require.Eventually(t, func() bool {
		_, err := b.client.WorkerDeploymentClient().GetHandle(b.queue).SetCurrentVersion(t.Context(),
			client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, within, lookEvery, "version %s does not become current", build)
	return w
}

func (b *bundle) versioned() {
	b.workflow("W", func(ctx workflow.Context) error {
		name := workflow.GetInfo(ctx).WorkflowExecution.ID[:1]
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.Step(workflows.Guard(ctx, account), "Note", "Note", name+" first").Get(ctx, nil); err != nil {
				return err
			}
			receive(ctx, "go on")
			return s.Step(workflows.Guard(ctx, account), "Note", "Note", name+" second").Get(ctx, nil)
		})
	})
}

func (b *bundle) startNamed(t *testing.T, name string) client.WorkflowRun {
	t.Helper()
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: name + b.queue, TaskQueue: b.queue}, "W")
	require.NoError(t, err)
	return run
}

// A run that is pinned to the old version holds its locks to its end, and wakes a run of the new version.
func TestVersioning_Pinned_VersionsShareTheLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.versioned()
	b.version(t, "1", workflow.VersioningBehaviorPinned)
	old := b.startNamed(t, "a")
	b.untilWritten(t, 1)
	b.version(t, "2", workflow.VersioningBehaviorPinned)
	next := b.startNamed(t, "b")
	b.untilParked(t, next)
	b.signal(t, old, "go on")
	b.signal(t, next, "go on")
	b.succeed(t, old, next)
	require.Equal(t, []string{"a first on 1", "a second on 1", "b first on 2", "b second on 2"}, b.read())
	b.requireFree(t, account.Name)
}

// A run that moves to another version in the middle of its saga still holds its locks.
func TestVersioning_AutoUpgrade_SagaKeepsItsLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.versioned()
	first := b.version(t, "1", workflow.VersioningBehaviorAutoUpgrade)
	run := b.startNamed(t, "a")
	b.untilWritten(t, 1)
	b.version(t, "2", workflow.VersioningBehaviorAutoUpgrade)
	first.Stop()
	b.requireHolds(t, run, account)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"a first on 1", "a second on 2"}, b.read())
	b.requireFree(t, account.Name)
}

// Workflows can be paused on servers from 1.30 on, if the setting frontend.WorkflowPauseEnabled is on: internal/tools/stack/newtemporal
// starts one.
func TestPause_WorkflowHoldsAndWaits_KeepsBoth(t *testing.T) {
	t.Parallel()
	const holdTTL = 2 * time.Second
	b := setup(t)
	janitored(t, b)
	b.saga("Saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: time.Second, HoldTTL: holdTTL})
		err := do(ctx, "Note")
		receive(ctx, "end")
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.writer("entered")})
	holder := b.start(t, "Saga")
	b.untilWritten(t, 1)
	waiter := b.start(t, "Saga")
	b.untilParked(t, waiter)
	last := b.start(t, "Saga")
	b.untilParked(t, last)
	b.pause(t, holder)
	b.pause(t, waiter)
	site := inspect.Site{Locker: b.locker, Temporal: inspect.Temporal{Service: b.client.WorkflowService(), Namespace: client.DefaultNamespace, NamespaceID: namespaceID}}
	why, err := site.Why(t.Context(), last.GetID())
	require.NoError(t, err)
	require.NotEmpty(t, why.Roots)
	require.Equal(t, holder.GetID(), why.Roots[0].Party.Workflow)
	require.Equal(t, "its workflow is paused: temporal workflow unpause --workflow-id "+holder.GetID(), why.Roots[0].Advice)

	<-time.After(3 * holdTTL) // the holds would expire by then if they were not extended
	b.requireHolds(t, holder, account)
	b.untilQueued(t, account.Name, 2)

	for _, run := range []client.WorkflowRun{holder, waiter} {
		b.unpause(t, run)
	}
	for i, run := range []client.WorkflowRun{holder, waiter, last} { // in their order, though the last was never paused
		b.untilWritten(t, i+1)
		b.requireHolds(t, run, account)
		b.signal(t, run, "end")
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

// Servers from 1.31 on have another list of workers than server 1.29.
func TestDoctor_WorkerWithoutPlugin_IsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.dial(t, client.Options{WorkerHeartbeatInterval: time.Second})
	b.workflow("W", func(workflow.Context) error { return nil })
	b.serve(t)
	m, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Disconnect(context.WithoutCancel(t.Context()))) })
	doctor := inspect.Doctor{Logger: log.NewStructuredLogger(slog.Default()), Site: inspect.Site{
		Locker: b.locker, Collection: m.Database(b.database).Collection(lockCollection),
		Temporal: inspect.Temporal{Service: b.client.WorkflowService(), Namespace: client.DefaultNamespace, NamespaceID: namespaceID},
	}}
	workers := func() (found inspect.Finding) {
		for _, f := range doctor.Examine(t.Context()) {
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
