package worker_test

import (
	"context"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/worker"
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
	both := worker.Options{Locker: b.locker}
	b.halves(t, both, both)
	o := worker.ReaperOptions{TaskQueue: b.queue, Interval: 24 * time.Hour}
	t.Cleanup(func() { _ = worker.DeleteReaper(context.Background(), b.client, o) })
	require.NoError(t, worker.CreateReaper(t.Context(), b.client, o))
	run := b.ended(t)
	b.hold(t, lockID(run), run.GetRunID(), account.Name)
	schedule := b.client.ScheduleClient().GetHandle(t.Context(), "lockstep-reaper-"+b.queue)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	require.Eventually(t, func() bool { free, err := b.isFree(t.Context(), account.Name); return err == nil && free },
		within, 50*time.Millisecond, "the schedule started no reap")
}
