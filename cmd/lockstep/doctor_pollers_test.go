package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestDoctor_PollerWithoutThePlugin_IsNamed(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t)
	locker, err := lockcore.New(db.Collection(defaultCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin := func() *worker.Plugin {
		p, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Off: true}})
		require.NoError(t, err)
		return p
	}
	dial := func(identity string, plugins ...client.Plugin) client.Client {
		c, err := client.DialContext(t.Context(), client.Options{HostPort: testenv.TemporalAddress(t), Identity: identity, Plugins: plugins})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	work := func(c client.Client, queue string, o sdkworker.Options) (stop func()) {
		w := sdkworker.New(c, queue, o)
		w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "A"})
		require.NoError(t, w.Start())
		return w.Stop
	}
	untilSaid := func(want ...string) {
		t.Helper()
		var out string
		require.Eventually(t, func() bool {
			_, out, _ = lockstep(t, servers(t), "doctor", "--database", db.Name())
			for _, text := range want {
				if !strings.Contains(out, text) {
					return false
				}
			}
			return true
		}, within, 100*time.Millisecond, "%q was not said", want)
	}
	untilSaid("warning  pollers      no worker with the plugin has registered")
	queue, guessed := testenv.TaskQueue(t), testenv.TaskQueue(t)
	// The plugin on the client, the plugin on the worker alone, and an identity of the worker's own.
	defer work(dial("by the client", plugin()), queue, sdkworker.Options{})()
	defer work(dial(""), queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}})()
	defer work(dial(""), queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}, Identity: "by the worker"})()
	untilSaid("ok       pollers      on 1 task queues all who poll have registered")

	defer work(dial("not known to the plugin"), guessed, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}})()
	untilSaid("warning  pollers      ", guessed+" (not known to the plugin)")

	defer work(dial("a stranger"), queue, sdkworker.Options{})()
	untilSaid("broken   pollers      ", queue+" (a stranger)", "install it there, or stop them")
}
