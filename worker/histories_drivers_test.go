package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// driver does what a workflow meets whose history is recorded.
type driver = func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun

// whileTaken starts the workflow while somebody else holds its lock; then does what comes then, and lets go.
func whileTaken(then func(*bundle, *testing.T, client.WorkflowRun, *lockcore.Session)) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		other := b.taken(t, account)
		run := start()
		if then != nil {
			then(b, t, run, other)
		} else {
			_ = run.Get(t.Context(), nil) // how it ends stands in its history
		}
		require.NoError(t, other.Leave(t.Context()))
		return run
	}
}

func (b *bundle) leaveWhenParked(t *testing.T, run client.WorkflowRun, other *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
}

func (b *bundle) goOnWhenParked(t *testing.T, run client.WorkflowRun, _ *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	_ = run.Get(t.Context(), nil) // how it ends stands in its history
}

func (b *bundle) cancelWhenParked(t *testing.T, run client.WorkflowRun, _ *lockcore.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_ = run.Get(t.Context(), nil) // how it ends stands in its history
}

func lostBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{
		LockID: lockID(run), Resources: []string{account.Name}, Reason: "an operator wanted it",
	})
	require.NoError(t, err)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	return run
}

func cancelledBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	return run
}

func updated(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		UpdateID: "update", WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "do", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	return run
}

// resetBetweenSteps resets a workflow as often as it waits for a signal, where it waits.
func resetBetweenSteps(times int) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		run := start()
		for range times {
			run = b.reset(t, run, b.untilIdle(t, run))
			b.signal(t, run, "go")
		}
		return run
	}
}

// resetAndTakenAnew resets a workflow, and waits until it has taken its lock anew.
func resetAndTakenAnew(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	old := start()
	run := b.reset(t, old, b.untilIdle(t, old))
	b.untilHeldBy(t, run)
	b.signal(t, run, "go")
	return run
}

// resetBehindSomebody resets a workflow under its lock, in such a way that somebody gets in between.
func resetBehindSomebody(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run, somebody := b.resetBehind(t, start())
	b.untilParked(t, run)
	b.signal(t, run, "go")
	require.NoError(t, somebody.Leave(t.Context()))
	return run
}

// resetWhileAStepIsPending resets a workflow whose step waits for a worker, which comes when the new run has taken its lock.
func resetWhileAStepIsPending(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	old := start()
	b.untilEvent(t, old, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
	tasks := b.tasks(t, old) + 1
	b.signal(t, old, "noise")
	b.completed(t, old, tasks)
	run := b.reset(t, old, tasks)
	b.untilHeldBy(t, run)
	b.workForActivities(t)
	return run
}

// untilHeldBy waits until a run holds the account, alone.
func (b *bundle) untilHeldBy(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Equal(b.holders(t, account.Name), []string{lockID(run)})
	}, within, lookEvery, "the account is not held")
}

// resetAfterAWait lets the workflow wait for its lock in vain, and resets it after that.
func resetAfterAWait(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	other := b.taken(t, account)
	old := start()
	b.untilParked(t, old)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	tasks := b.untilIdle(t, old)
	b.signal(t, old, "noise")
	b.completed(t, old, tasks+1)
	run := b.reset(t, old, tasks+1)
	b.signal(t, run, "go")
	return run
}

// workWithoutADatabase starts a worker for workflows and local activities, which fail; ordinary ones wait for [bundle.workForActivities].
func (b *bundle) workWithoutADatabase(t *testing.T) {
	t.Helper()
	nowhere, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(50 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nowhere.Disconnect(context.WithoutCancel(t.Context()))) })
	locker, err := lockcore.New(nowhere.Database("none").Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Cluster: cluster})
	require.NoError(t, err)
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{plugin}}, nil)
}

// workForActivities starts the worker for them.
func (b *bundle) workForActivities(t *testing.T) {
	t.Helper()
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}, DisableWorkflowWorker: true})
	for name, fn := range recorded {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// resetWhileItAsks resets a workflow before it asks for its lock, and again while the ordinary activity that asks for it waits
// for a worker, which comes then.
func resetWhileItAsks(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	first := start()
	b.completed(t, first, 1)
	run := b.reset(t, first, 1)
	b.completed(t, run, 1)
	b.signal(t, run, "go")
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
	tasks := b.tasks(t, run)
	b.signal(t, run, "noise")
	b.completed(t, run, tasks+1)
	run = b.reset(t, run, tasks+1)
	b.workForActivities(t)
	return run
}

// nextRun is the run that continues the one which is started.
func nextRun(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	return b.untilContinued(t, start())
}

// inACircle lets somebody older wait for what the workflow holds, and hold what it waits for.
func inACircle(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	older := lockcore.Request{
		LockID: "somebody", Owner: "somebody", Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2},
	}
	holds, err := b.locker.TryAcquire(t.Context(), older)
	require.NoError(t, err)
	run := start()
	b.untilParked(t, run)
	older.Resources = []lockcore.Resource{account}
	got, err := b.locker.Acquire(t.Context(), older)
	require.NoError(t, err)
	require.NoError(t, errors.Join(got.Leave(t.Context()), holds.Leave(t.Context())))
	return run
}
