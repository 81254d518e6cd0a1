package testenv

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

const temporalVariable = "TEMPORAL_ADDRESS"

// TemporalAddress returns the address of Temporal's frontend. It fails the test without a server.
func TemporalAddress(t testing.TB) string {
	t.Helper()
	temporalUsed.Store(true)
	return temporalServer.address(t)
}

// temporalUsed reports whether a test of this process has asked for the server.
var temporalUsed atomic.Bool

// Temporal returns a client for the default namespace. It is closed after the test.
func Temporal(t testing.TB) client.Client {
	t.Helper()
	c := dial(t.Context(), t)
	t.Cleanup(c.Close)
	return c
}

func dial(ctx context.Context, t testing.TB) client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{HostPort: TemporalAddress(t), Logger: logger()})
	if err != nil {
		t.Fatalf("Temporal does not answer: %v\n%s", err, temporalServer.remedy())
	}
	return c
}

// TaskQueue returns a name for a task queue that nothing else uses. If the tests of this process have used a server, the test fails for
// each workflow task on this queue that has failed, unless AllowFailedTasks names it: see NoFailedTasks.
func TaskQueue(t testing.TB) string {
	name := "test-" + slug(t.Name(), 60) + "-" + suffix()
	t.Cleanup(func() {
		if !temporalUsed.Load() {
			return
		}
		c := dial(context.WithoutCancel(t.Context()), t)
		defer c.Close()
		NoFailedTasks(t, c, client.DefaultNamespace, name)
	})
	return name
}

// logger writes errors only, because tests cause many warnings. It does not write to the test's log: a worker that outlives the test
// would make it panic.
func logger() sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
}
