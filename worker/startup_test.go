package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// During an election no server answers for about ten seconds.
func TestPlugin_DatabaseAnswersLater_StartWaits(t *testing.T) {
	t.Parallel()
	uri, open := testenv.MongoLater(t)
	mc, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(100 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = mc.Disconnect(context.Background()) })
	locker, err := lockcore.New(mc.Database(testenv.Mongo(t).Name()).Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	var log logged
	c, err := client.Dial(client.Options{
		HostPort: testenv.TemporalAddress(t), Plugins: []client.Plugin{plugin}, Logger: sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&log, nil))),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := sdkworker.New(c, t.Name(), sdkworker.Options{})
	started := make(chan error, 1)
	go func() { started <- w.Start() }()
	require.Eventually(t, func() bool { return bytes.Contains(log.bytes(), []byte("waits for the database")) }, time.Minute, 10*time.Millisecond)
	require.Empty(t, started)
	open()
	require.NoError(t, <-started)
	w.Stop()
}

// logged is the output of a logger.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}
