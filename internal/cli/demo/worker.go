package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/worker/tracefile"
)

// WorkerConfig configures a worker process.
type WorkerConfig struct {
	Config
	Database  string
	TaskQueue string
	// Traces is the folder for the spans, and Name begins the names of the files.
	Traces, Name string
}

// The duration of a step, and the share of transfers that fail their check.
const (
	stepPause   = 3 * time.Millisecond
	failPercent = 12
)

// ready is the line that a worker process prints when it polls.
const ready = "ready"

// RunWorker runs a worker process until ctx or stdin ends. Stdin ends when the parent does.
func RunWorker(ctx context.Context, cfg WorkerConfig, stdin io.Reader) (err error) {
	observed, err := observe(ctx, "lockstep-demo-worker", cfg.Traces, cfg.Name, cfg.Err)
	if err != nil {
		return err
	}
	defer observed.Shutdown(ctx)
	mc, err := connectMongo(ctx, cfg.MongoURI)
	if err != nil {
		return err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // the process ends anyway
	db := mc.Database(cfg.Database)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{TracerProvider: observed.Traces})
	if err != nil {
		return err
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	if err != nil {
		return err
	}
	tc, err := connectTemporal(ctx, cfg.Temporal, observed.Traces, cfg.Err)
	if err != nil {
		return err
	}
	defer tc.Close()
	w := sdkworker.New(tc, cfg.TaskQueue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, WorkerStopTimeout: 2 * time.Second})
	transfer.Register(w, &transfer.Bank{Accounts: db.Collection("accounts"), Pause: stepPause, Seed: seed, FailPercent: failPercent})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer w.Stop()
	if _, err := fmt.Fprintln(cfg.Out, ready); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // after an error the parent has ended too
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}

// connectMongo connects to the database. Its errors have a remedy.
func connectMongo(ctx context.Context, uri string) (*mongo.Client, error) {
	c, err := connect.Mongo(ctx, uri, "lockstep demo")
	if err != nil {
		return nil, fmt.Errorf("LOCKSTEP_MONGODB_URI: %w\n%s", err, remedy)
	}
	return c, nil
}

// connectTemporal connects to Temporal. The SDK logs to w.
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

// observe writes each span to a file in the folder when it ends, so that a killed process loses only open spans. It also exports them if
// the environment has an endpoint.
func observe(ctx context.Context, service, folder, name string, errs io.Writer) (*connect.Telemetry, error) {
	exporter, err := tracefile.New(ctx, folder, tracefile.Options{Name: name})
	if err != nil {
		return nil, err
	}
	return connect.NewTelemetry(ctx, connect.TelemetryOptions{
		Service: service, Errs: errs, NoMetrics: true,
		Exporters: []sdktrace.TracerProviderOption{sdktrace.WithSyncer(exporter)},
	})
}
