package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestNewPlugin_InvalidOptions_AreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options worker.Options
		field   string
	}{
		"no locker":             {worker.Options{}, "worker.Options.Locker"},
		"no janitor, but often": {withJanitor(worker.JanitorOptions{Off: true, Interval: time.Minute}), "worker.Options.Janitor.Interval"},
		"no janitor, but fast":  {withJanitor(worker.JanitorOptions{Off: true, RequestsPerSecond: 1}), "worker.Options.Janitor.RequestsPerSecond"},
		"too often":             {withJanitor(worker.JanitorOptions{Interval: time.Millisecond}), "worker.Options.Janitor.Interval"},
		"negative":              {withJanitor(worker.JanitorOptions{Interval: -time.Minute}), "worker.Options.Janitor.Interval"},
		"negative and off":      {withJanitor(worker.JanitorOptions{Off: true, Interval: -time.Minute}), "worker.Options.Janitor.Interval"},
		"too seldom":            {withJanitor(worker.JanitorOptions{Interval: 2 * time.Hour}), "worker.Options.Janitor.Interval"},
		"too slow":              {withJanitor(worker.JanitorOptions{RequestsPerSecond: -1}), "worker.Options.Janitor.RequestsPerSecond"},
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

func TestPlugin_OnWorker_InstallsOneInterceptor(t *testing.T) {
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

// Lockstep is installed on the client, the worker or both, or by hand, and guards each step once.
func TestPlugin_HoweverInstalled_GuardsOnce(t *testing.T) {
	t.Parallel()
	for name, install := range map[string]func(t *testing.T, b *bundle) sdkworker.Worker{
		"client": func(t *testing.T, b *bundle) sdkworker.Worker {
			b.reach(t, client.Options{Plugins: []client.Plugin{b.plugin}})
			return sdkworker.New(b.client, b.queue, sdkworker.Options{})
		},
		"client and worker": func(t *testing.T, b *bundle) sdkworker.Worker {
			b.reach(t, client.Options{Plugins: []client.Plugin{b.plugin}})
			return sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}})
		},
		"Register": func(t *testing.T, b *bundle) sdkworker.Worker {
			o := worker.Options{Locker: b.locker.Locker}
			own, err := worker.Interceptor(o)
			require.NoError(t, err)
			w := sdkworker.New(b.client, b.queue, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{own}})
			require.NoError(t, worker.Register(w, o))
			require.NoError(t, worker.Register(w, o))
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
				ctx = workflows.Guard(ctx, account)
				return errors.Join(do(ctx, "Look"), do(ctx, "Look"))
			})
			w := install(t, b)
			w.RegisterWorkflowWithOptions(b.workflows["W"], workflow.RegisterOptions{Name: "W"})
			w.RegisterActivityWithOptions(b.look, activity.RegisterOptions{Name: "Look"})
			require.NoError(t, w.Start())
			t.Cleanup(w.Stop)
			events, err := b.end(t, b.start(t, "W"))
			require.NoError(t, err)
			require.Equal(t, []string{"free: false", "free: false"}, b.read())
			b.requireFree(t, account.Name)
			require.Equal(t, []string{"1/Look", "2/Look"}, guardedParts(events))
		})
	}
}

// guardedParts returns the parts of the guards that the headers of the steps carry.
func guardedParts(events []*historypb.HistoryEvent) (parts []string) {
	for _, e := range events {
		if payload := e.GetActivityTaskScheduledEventAttributes().GetHeader().GetFields()[wire.HeaderKey]; payload != nil {
			guard, err := wire.DecodeGuard(nil, "n", "w", payload)
			parts = append(parts, guard.Part)
			if err != nil {
				parts = append(parts, err.Error())
			}
		}
	}
	return parts
}

// Nothing else fails without the indexes, so an operator would not notice. A worker whose database refuses it starts, and each step fails.
func TestPlugin_CollectionUnfit_IsLogged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		foreign bool
		want    []string
	}{
		"no indexes":                {false, []string{"run lockstep init", "locks missing=\"[lockstep_idle lockstep_attn]\""}},
		"another program's content": {true, []string{"the database refused to read the locks' collection", "has another layout"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if test.foreign {
				_, err := testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order/1"}})
				require.NoError(t, err)
			}
			logged := make(lines, 1000)
			c, err := client.Dial(client.Options{
				HostPort: testenv.TemporalAddress(t), Plugins: []client.Plugin{b.plugin},
				Logger: sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn}))),
			})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			b.client = c
			b.serve(t)
			for {
				select {
				case line := <-logged:
					if strings.Contains(line, test.want[0]) {
						require.Contains(t, line, test.want[1])
						return
					}
				case <-time.After(within):
					require.Fail(t, "nothing was logged")
				}
			}
		})
	}
}

// lines gets what a logger writes. It never blocks the logger, which works until its worker has stopped.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// A worker that runs no activities needs no database. This one accepts connections and answers nothing.
func TestPlugin_WorkflowsOnly_StartsWithoutDatabase(t *testing.T) {
	t.Parallel()
	queue := testenv.TaskQueue(t)
	plugin := newPlugin(t, worker.Options{Locker: silentLocker(t), TaskQueue: queue + "-activities"})
	w := sdkworker.New(testenv.Temporal(t), queue, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{plugin}})
	w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "W"})
	began := time.Now()
	require.NoError(t, w.Start())
	require.Less(t, time.Since(began), 8*time.Second, "a command has 10 s")
	began = time.Now()
	w.Stop()
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestPlugin_DatabaseDoesNotAnswer_StartFails(t *testing.T) {
	t.Parallel()
	plugin := newPlugin(t, worker.Options{Locker: silentLocker(t)})
	w := sdkworker.New(testenv.Temporal(t), testenv.TaskQueue(t), sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	w.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: "A"})
	require.ErrorContains(t, w.Start(), "lockstep: the worker was not started: no database answered for 30s")
}

// silentLocker returns a Locker whose database accepts connections and answers nothing.
func silentLocker(t *testing.T) *lockcore.Locker {
	t.Helper()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // it is the test's
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + silent.Addr().String() + "/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Disconnect(context.WithoutCancel(t.Context())) }) // nothing answers
	locker, err := lockcore.New(db.Database("d").Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	return locker
}

// A worker may answer every GetVersion with the default, which is how new versions are rolled out with care. Nothing of
// Lockstep asks: the history records that a step parked as its failure.
func TestPlugin_VersionProvider_ChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		return s.Step(workflows.Guard(ctx, account), "Look", "Look").Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{
		PreferredVersionProvider: func(sdkworker.PreferredVersionProviderInput) *sdkworker.VersionPreference {
			return &sdkworker.VersionPreference{Version: workflow.DefaultVersion}
		},
	}, nil)
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED)
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
	for _, e := range events {
		require.NotEqual(t, "Version", e.GetMarkerRecordedEventAttributes().GetMarkerName())
	}
	b.requireFree(t, account.Name)
}

// during runs a worker with a Locker of its own, as a process does that is started when there is work, and stops it after do.
func (b *bundle) during(t *testing.T, do func()) {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	l, err := lockcore.New(c.Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin := newPlugin(t, worker.Options{Locker: l})
	process := b.on(b.queue)
	process.reach(t, client.Options{Plugins: []client.Plugin{plugin}})
	w := process.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}}, nil)
	do()
	w.Stop()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, l.Close(ctx))
	require.NoError(t, c.Disconnect(ctx))
}

// Workers run only while there is work: the holds of a saga, and the queue position of a waiting step, remain while no worker
// runs, and a worker that stops has released what is due.
func TestShortLivedWorkers_BetweenWorkers_LocksStayHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("Saga", func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Step(workflows.Guard(ctx, account), "Note", "Note", "saga").Get(ctx, nil); err != nil {
			return err
		}
		receive(ctx, "go on")
		return nil
	})
	b.workflow("Waiter", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflows.Guard(ctx, account), "Note", "waiter").Get(ctx, nil)
	})
	saga := b.start(t, "Saga")
	b.during(t, func() { b.untilWritten(t, 1) })
	waiter := b.start(t, "Waiter")
	b.during(t, func() { b.untilParked(t, waiter) })
	b.requireHolds(t, saga, account)
	b.signal(t, saga, "go on")
	b.during(t, func() {
		b.succeed(t, saga)
	})
	b.during(t, func() {
		b.succeed(t, waiter)
	})
	require.Equal(t, []string{"saga", "waiter"}, b.read())
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.True(t, free, "the worker has left before it stopped")
}
