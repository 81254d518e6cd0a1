package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// halves starts a worker as one is that uses no plugins.
func (b *bundle) halves(t *testing.T, forInterceptor, forRegister worker.Options) {
	t.Helper()
	guards, err := worker.Interceptor(forInterceptor)
	require.NoError(t, err)
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{
		Interceptors: []interceptor.WorkerInterceptor{guards}, DeadlockDetectionTimeout: within,
	})
	require.NoError(t, worker.Register(w, forRegister))
	require.NoError(t, worker.Register(w, forRegister))
	for name, fn := range b.workflows {
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	w.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: "Nothing"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

func TestTheScheduleReapsOnAWorkerOfTheTwoHalves(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	both := worker.Options{Locker: b.locker, Cluster: cluster}
	b.halves(t, both, both)
	o := worker.ReaperOptions{TaskQueue: b.queue, Interval: 24 * time.Hour}
	t.Cleanup(func() { _ = worker.DeleteReaper(context.Background(), b.client, o) })
	require.NoError(t, worker.CreateReaper(t.Context(), b.client, o))
	b.hold(t, lockID(b.ended(t)), account.Name)
	schedule := b.client.ScheduleClient().GetHandle(t.Context(), "lockstep-reaper-"+b.queue)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	require.Eventually(t, func() bool { free, err := b.isFree(t.Context(), account.Name); return err == nil && free },
		within, 50*time.Millisecond, "the schedule started no reap")
}

// What the interceptor locks under one cluster's name the activities would look for under another's.
func TestHalvesThatDifferInTheirClusterAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("Lock", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, locks(account))
		var invalid *lockcore.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "worker.Options.Cluster" {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	b.workflow("Saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return do(workflows.Guard(ctx, account), "Nothing")
		})
	})
	b.halves(t, worker.Options{Locker: b.locker, Cluster: cluster}, worker.Options{Locker: b.locker})
	for _, name := range []string{"Lock", "Saga"} {
		events, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
		refused := ""
		for _, e := range events {
			if failure := e.GetActivityTaskFailedEventAttributes().GetFailure(); failure != nil {
				refused = failure.GetApplicationFailureInfo().GetType()
			}
		}
		if name == "Saga" {
			require.Equal(t, "lockstep.Invalid", refused, "the release must not pass for done")
		}
	}
}
