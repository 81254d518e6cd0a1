package worker_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestPlugin_WorkerStarts_HasRegistered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: testenv.TemporalAddress(t), Identity: "the client's", Plugins: []client.Plugin{b.plugin},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}}, map[string]any{"A": nothing})
	b.work(t, sdkworker.Options{Identity: "its own"}, map[string]any{"A": nothing})
	registered, err := b.locker.Core().Workers(t.Context(), time.Minute)
	require.NoError(t, err)
	require.ElementsMatch(t, []party.Worker{
		{Namespace: "default", Queue: b.queue, Identity: "the client's"}, {Namespace: "default", Queue: b.queue, Identity: "its own"},
	}, registered)
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		require.Fail(t, "a registration is listed as a lock", "%+v", s)
	}
}

// The database accepts connections and answers nothing, so that a registration is under way when the worker stops.
func TestPlugin_DatabaseDoesNotAnswer_StopDoesNotWait(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // it is the test's
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + silent.Addr().String() + "/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Disconnect(context.WithoutCancel(t.Context())) }) // nothing answers
	locker, err := lockcore.New(db.Database("d").Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	w := sdkworker.New(testenv.Temporal(t), testenv.TaskQueue(t), sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	w.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: "A"})
	began := time.Now()
	require.NoError(t, w.Start())
	require.Less(t, time.Since(began), 8*time.Second, "a command has 10 s")
	began = time.Now()
	w.Stop()
	require.Less(t, time.Since(began), 5*time.Second)
}
