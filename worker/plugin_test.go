package worker_test

import (
	"errors"
	"testing"
	"time"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestOptionsAreCheckedWhenThePluginIsMade(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options worker.Options
		field   string
	}{
		"no locker":             {worker.Options{}, "worker.Options.Locker"},
		"no janitor, but often": {withJanitor(worker.JanitorOptions{Off: true, Interval: time.Minute}), "worker.Options.Janitor.Interval"},
		"no janitor, but fast":  {withJanitor(worker.JanitorOptions{Off: true, QuestionsPerSecond: 1}), "worker.Options.Janitor.QuestionsPerSecond"},
		"too often":             {withJanitor(worker.JanitorOptions{Interval: time.Millisecond}), "worker.Options.Janitor.Interval"},
		"negative":              {withJanitor(worker.JanitorOptions{Interval: -time.Minute}), "worker.Options.Janitor.Interval"},
		"negative and off":      {withJanitor(worker.JanitorOptions{Off: true, Interval: -time.Minute}), "worker.Options.Janitor.Interval"},
		"too seldom":            {withJanitor(worker.JanitorOptions{Interval: 2 * time.Hour}), "worker.Options.Janitor.Interval"},
		"too slow":              {withJanitor(worker.JanitorOptions{QuestionsPerSecond: -1}), "worker.Options.Janitor.QuestionsPerSecond"},
	} {
		var invalid *lockcore.InvalidError
		_, err := worker.NewPlugin(tc.options)
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, tc.field, invalid.Field)
		_, err = worker.Interceptor(tc.options)
		require.ErrorAs(t, err, &invalid, name)
		require.ErrorAs(t, worker.Register(nil, tc.options), &invalid, name)
	}
}

func withJanitor(o worker.JanitorOptions) worker.Options {
	return worker.Options{Locker: &lockcore.Locker{}, Janitor: o}
}

func TestThePluginInstallsOneInterceptor(t *testing.T) {
	t.Parallel()
	o := worker.Options{Locker: &lockcore.Locker{}}
	plugin, err := worker.NewPlugin(o)
	require.NoError(t, err)
	twin, err := worker.NewPlugin(o)
	require.NoError(t, err)
	own, err := worker.Interceptor(o)
	require.NoError(t, err)

	options := sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{own}}
	for _, p := range []*worker.Plugin{plugin, plugin, twin} {
		require.NoError(t, p.ConfigureWorker(t.Context(), sdkworker.PluginConfigureWorkerOptions{
			WorkerOptions: &options, WorkerRegistryOptions: &sdkworker.PluginConfigureWorkerRegistryOptions{},
		}))
	}
	require.Len(t, options.Interceptors, 1)

	other, err := worker.NewPlugin(worker.Options{Locker: &lockcore.Locker{}})
	require.NoError(t, err)
	require.ErrorIs(t, other.ConfigureWorker(t.Context(), sdkworker.PluginConfigureWorkerOptions{
		WorkerOptions: &options, WorkerRegistryOptions: &sdkworker.PluginConfigureWorkerRegistryOptions{},
	}), lockcore.ErrInvalid)
}

func guardedSaga(ctx workflow.Context) error {
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		return errors.Join(do(ctx, "Look"), do(ctx, "Look"))
	})
}

func TestOnClientAndWorkerThePluginGuardsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", guardedSaga)
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), Plugins: []client.Plugin{b.plugin}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}}, map[string]any{"Look": b.look})
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
	require.Equal(t, 1, countGuards(events, "1/Look"))
	require.Equal(t, 1, countGuards(events, "2/Look"))
}

func TestOnTheClientAloneThePluginReachesItsWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", guardedSaga)
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), Plugins: []client.Plugin{b.plugin}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}}, map[string]any{"Look": b.look})
	_, err = b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
}

func TestAnExistingWorkerIsServedByInterceptorAndRegister(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", guardedSaga)
	o := worker.Options{Locker: b.locker}
	own, err := worker.Interceptor(o)
	require.NoError(t, err)
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{own}})
	require.NoError(t, worker.Register(w, o))
	require.NoError(t, worker.Register(w, o))
	w.RegisterWorkflowWithOptions(b.workflows["W"], workflow.RegisterOptions{Name: "W"})
	w.RegisterActivityWithOptions(b.look, activity.RegisterOptions{Name: "Look"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	_, err = b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// countGuards counts the steps whose header carries a guard with that part.
func countGuards(events []*historypb.HistoryEvent, part string) int {
	n := 0
	for _, e := range events {
		payload := e.GetActivityTaskScheduledEventAttributes().GetHeader().GetFields()[wire.HeaderKey]
		if payload == nil {
			continue
		}
		if guard, err := wire.DecodeGuard(payload); err == nil && guard.Part == part {
			n++
		}
	}
	return n
}
