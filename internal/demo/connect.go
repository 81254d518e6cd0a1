package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/otlpfile"
)

const connectTimeout = 5 * time.Second

// connectMongo connects, and makes sure that somebody answers.
func connectMongo(ctx context.Context, uri string) (*mongo.Client, error) {
	opts := options.Client().ApplyURI(uri).SetServerSelectionTimeout(connectTimeout).SetAppName("lockstep demo")
	c, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("LOCKSTEP_MONGODB_URI %q: %w", masked(uri), err)
	}
	if err := c.Ping(ctx, nil); err != nil {
		_ = c.Disconnect(context.WithoutCancel(ctx)) // it never connected
		return nil, fmt.Errorf("no database answers at %s (LOCKSTEP_MONGODB_URI): %w\n%s", masked(uri), err, remedy)
	}
	return c, nil
}

// masked is a URI without what may be secret in it.
func masked(uri string) string {
	cs, err := connstring.Parse(uri)
	if err != nil {
		return "(not a MongoDB URI)"
	}
	return fmt.Sprint(cs.Hosts)
}

// connectTemporal dials; logs go to w.
func connectTemporal(ctx context.Context, address string, tp *sdktrace.TracerProvider, w io.Writer) (client.Client, error) {
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: tp.Tracer("temporal-sdk-go")})
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := client.DialContext(dialCtx, client.Options{
		HostPort:     address,
		Logger:       sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		Interceptors: []interceptor.ClientInterceptor{tracing},
	})
	if err != nil {
		return nil, fmt.Errorf("no Temporal server answers at %s (TEMPORAL_ADDRESS): %w\n%s", address, err, remedy)
	}
	return c, nil
}

// tracing writes spans to a file, soon enough that a process which is killed loses little.
func tracing(ctx context.Context, path string) (*sdktrace.TracerProvider, error) {
	exporter, err := otlpfile.New(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(500*time.Millisecond))), nil
}
