package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A run that continues another one has encoded releases in its header. The replay plugin has no DataConverter that could read them.
func TestReplay_HandedReleasesAreEncoded_Matches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, DataConverter: own})
	b.reach(t, client.Options{Plugins: []client.Plugin{b.plugin}})
	b.workflow("W", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return workflow.Sleep(ctx, time.Second)
		}
		hold, err := workflows.Lock(ctx, locks(account))
		if err == nil {
			err = hold.Release(ctx)
		}
		if err != nil {
			return err
		}
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	})
	b.serve(t)
	run := b.start(t, "W")
	require.NoError(t, b.last(t, run))
	next := b.current(t, run)
	history := b.historyOf(t, next.GetID(), next.GetRunID())
	require.Contains(t, history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetHeader().GetFields(), "lockstep-due")
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins: []sdkworker.Plugin{worker.NewReplayPlugin()}, DataConverter: own, DisableDeadlockDetection: true,
	})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(b.workflows["W"], workflow.RegisterOptions{Name: "W"})
	require.NoError(t, replayer.ReplayWorkflowHistory(nil, history))
}

// As TestUndo_SessionFailed_RunsOutsideOfIt, with a context propagator that needs a value which the workflow sets.
func TestUndo_SessionFailedAndPropagatorNeedsAValue_Runs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reach(t, client.Options{ContextPropagators: []workflow.ContextPropagator{tenants{}}})
	there := b.queue + "-there"
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(workflow.WithValue(ctx, tenantKey{}, "a"), paysInASession(there))
	})
	b.serve(t)
	block := make(chan struct{})
	activities := map[string]any{
		"Note": b.note, "Undo": b.undoes,
		"Block": func(ctx context.Context) error { b.write("blocked"); <-block; return ctx.Err() },
	}
	dies := sdkworker.New(b.client, there, sdkworker.Options{
		EnableSessionWorker: true, DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}, WorkerStopTimeout: time.Millisecond,
	})
	survives := sdkworker.New(b.client, there, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range activities {
		dies.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
		survives.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, dies.Start())
	run := b.start(t, "W")
	b.untilWritten(t, 2)
	dies.Stop()
	unblock := sync.OnceFunc(func() { close(block) })
	t.Cleanup(unblock)
	require.NoError(t, survives.Start())
	t.Cleanup(survives.Stop)
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"paid", "blocked", "undid paid"}, b.read(), "%v", err)
}

func paysInASession(queue string) func(ctx workflow.Context, s *workflows.Saga) error {
	return func(ctx workflow.Context, s *workflows.Saga) error {
		session, err := workflow.CreateSession(workflow.WithTaskQueue(workflows.Guard(ctx, account), queue), &workflow.SessionOptions{
			CreationTimeout: time.Minute, ExecutionTimeout: time.Hour, HeartbeatTimeout: 3 * time.Second,
		})
		if err != nil {
			return err
		}
		err = s.Step(session, "Note", "Undo", "paid").Get(ctx, nil)
		return errors.Join(err, do(session, "Block"))
	}
}

// The function of a saga sets the value that a context propagator needs. The own activities of the saga are scheduled under the context around it.
func TestOwnActivities_SagasFunctionSetsTheValue_AreScheduled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reach(t, client.Options{ContextPropagators: []workflow.ContextPropagator{tenants{}}})
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflow.WithValue(ctx, tenantKey{}, "a")
		return errors.Join(s.Step(workflows.Guard(ctx, account), "Note", "Undo", "paid").Get(ctx, nil), do(ctx, "Refuse"))
	})
	b.serve(t)
	run := b.start(t, "W")
	require.Eventually(t, func() bool { return b.hasEnded(t, run) }, 20*time.Second, lookEvery*10, "the workflow is stuck")
}
