package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// drain is how long the worker's activities, each a few database commands, have to end when it is stopped.
const drain = 10 * time.Second

// workerConfig is what a worker is started with.
type workerConfig struct {
	temporalFlags
	databaseFlags
	janitor time.Duration
}

func workerCommand(s streams) *cobra.Command {
	var cfg workerConfig
	c := &cobra.Command{
		Use:   "worker",
		Short: "Serve the lock activities on a task queue, for workflows in any language",
		Long: `Serves the activities lockstep.Acquire, Wait, Keep, Renew, Leave and Release on a task queue, so
that workflows in any language lock by calling them by name. docs/activities.md has their JSON.

It also runs the janitor, which releases what closed workflows have left; see "lockstep janitor". Any
number of workers may serve a task queue: one janitor among them works at a time.

With OTEL_EXPORTER_OTLP_ENDPOINT set, spans and metrics are sent there over OTLP, as http/protobuf;
with OTEL_METRICS_EXPORTER=none, spans alone.

` + connectionHelp + `

TLS and credentials of the database are options of its URI: tls, tlsCAFile, tlsCertificateKeyFile and others.

Ctrl-C lets running activities end; a second one ends the process at once. Pass a database's password
in LOCKSTEP_MONGODB_URI and not in a flag, which other users of the machine can see.

Exit status: 0 after it was stopped, 1 if it could not start, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.run(c.Context(), s) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.temporalFlags.add(f)
	f.StringVar(&cfg.taskQueue, "task-queue", "lockstep", "the task queue")
	cfg.databaseFlags.add(f)
	f.DurationVar(&cfg.janitor, "janitor", worker.DefaultJanitorInterval, "how often the janitor asks Temporal; 0 runs none in this process")
	return c
}

// run serves until ctx ends, and lets what is running end.
func (cfg *workerConfig) run(ctx context.Context, s streams) error {
	coll, disconnect, err := cfg.connect(ctx, "lockstep worker")
	if err != nil {
		return err
	}
	defer disconnect()
	observed, err := connect.NewTelemetry(ctx, connect.TelemetryOptions{Service: "lockstep-worker", Errs: s.err})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	defer observed.Shutdown(ctx)
	locker, err := lockcore.New(coll, lockcore.Config{TracerProvider: observed.Traces, MeterProvider: observed.Metrics})
	if err != nil {
		return usage(err)
	}
	plugin, err := worker.NewPlugin(worker.Options{
		Locker: locker, Janitor: worker.JanitorOptions{Off: cfg.janitor == 0, Interval: cfg.janitor},
	})
	if err != nil {
		return usage(err)
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return err
	}
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: observed.Traces.Tracer("temporal-sdk-go")})
	if err != nil {
		return err
	}
	tc, err := cfg.dial(ctx, s, func(o *client.Options) {
		o.Interceptors, o.Plugins = []interceptor.ClientInterceptor{tracing}, []client.Plugin{plugin}
	})
	if err != nil {
		return err
	}
	defer tc.Close()
	return cfg.serve(ctx, s, tc)
}

func (cfg *workerConfig) serve(ctx context.Context, s streams, tc client.Client) error {
	fatal := make(chan error, 1)
	w := sdkworker.New(tc, cfg.taskQueue, sdkworker.Options{WorkerStopTimeout: drain, OnFatalError: func(err error) { fatal <- err }})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer w.Stop()
	if _, err := fmt.Fprintf(s.out, "serving task queue %q of namespace %q; Ctrl-C stops\n", cfg.taskQueue, cfg.namespace); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		_, err := fmt.Fprintf(s.err, "lockstep: stopping, as soon as what is running has ended, and within %v; Ctrl-C ends it at once\n", drain)
		return err
	case err := <-fatal:
		return fmt.Errorf("the worker cannot go on: %w", err)
	}
}

// usage marks errors that say that an option was wrong.
func usage(err error) error {
	if errors.Is(err, lockcore.ErrInvalid) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}
