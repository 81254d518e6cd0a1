//go:build newtemporal

package worker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

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
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
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
	for _, run := range []client.WorkflowRun{old, next} {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"a first on 1", "a second on 1", "b first on 2", "b second on 2"}, b.read())
	b.requireFree(t, account.Name)
}

// A run that goes on with another version in the middle of its saga still holds its locks.
func TestVersioning_AutoUpgrade_SagaGoesOnUnderItsLocks(t *testing.T) {
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
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"a first on 1", "a second on 2"}, b.read())
	b.requireFree(t, account.Name)
}
