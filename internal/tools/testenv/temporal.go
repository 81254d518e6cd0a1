package testenv

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

const temporalVariable = "TEMPORAL_ADDRESS"

// TemporalAddress returns the address of Temporal's frontend. It fails the test if there is no server.
func TemporalAddress(t testing.TB) string {
	t.Helper()
	return temporalServer.address(t)
}

// Temporal returns a client for the default namespace. It is closed after the test.
func Temporal(t testing.TB) client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{HostPort: TemporalAddress(t), Logger: logger()})
	if err != nil {
		t.Fatalf("Temporal does not answer: %v\n%s", err, temporalServer.remedy())
	}
	t.Cleanup(c.Close)
	return c
}

// TaskQueue returns a name for a task queue that nothing else uses.
func TaskQueue(t testing.TB) string {
	return "test-" + slug(t.Name(), 60) + "-" + suffix()
}

// logger writes errors only, because tests cause many warnings. It does not write to the test's log: a worker that outlives the test
// would make it panic.
func logger() sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
}
