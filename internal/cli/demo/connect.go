package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/mongo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/cli/otlpfile"
)

// connectMongo connects, and makes sure that the server answers.
func connectMongo(ctx context.Context, uri string) (*mongo.Client, error) {
	c, err := connect.Mongo(ctx, uri, "lockstep demo")
	if err != nil {
		return nil, fmt.Errorf("LOCKSTEP_MONGODB_URI: %w\n%s", err, remedy)
	}
	return c, nil
}

// connectTemporal dials; logs go to w.
func connectTemporal(ctx context.Context, f *connect.Frontend, tp *sdktrace.TracerProvider, w io.Writer) (client.Client, error) {
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: tp.Tracer("temporal-sdk-go")})
	if err != nil {
		return nil, err
	}
	f.Options.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
	f.Options.Interceptors = []interceptor.ClientInterceptor{tracing}
	c, err := f.Dial(ctx)
	if errors.Is(err, connect.ErrNoAnswer) {
		return nil, fmt.Errorf("%w\n%s", err, remedy)
	}
	return c, err
}

// observe writes each span to a file when it ends, so that a process which is killed loses none
// that has, and exports them if the environment says so.
func observe(ctx context.Context, service, path string, errs io.Writer) (*connect.Telemetry, error) {
	exporter, err := otlpfile.New(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return connect.NewTelemetry(ctx, connect.TelemetryOptions{
		Service: service, Errs: errs, NoMetrics: true,
		Beside: []sdktrace.TracerProviderOption{sdktrace.WithSyncer(exporter)},
	})
}
