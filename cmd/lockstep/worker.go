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
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/startup"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// stopTimeout is the time that the worker's activities have to end. Each is a few database commands.
const stopTimeout = 10 * time.Second

// workerConfig has the flags of worker.
type workerConfig struct {
	temporalFlags
	databaseFlags
	taskQueue string
	janitor   time.Duration
}

func workerCommand(s streams) *cobra.Command {
	var cfg workerConfig
	c := &cobra.Command{
		Use:   "worker",
		Short: "Serve the lock activities on a task queue, for workflows in any language",
		Long: `Serves the activities lockstep.Acquire, Wait, Verify, Renew, Leave and Release on a task queue, so
that workflows in any language lock by calling them by name. docs/activities.md has their JSON.

It also runs the janitor, which releases what closed workflows have left; see "lockstep janitor". Any
number of workers may serve a task queue: one janitor among them works at a time.

With OTEL_EXPORTER_OTLP_ENDPOINT set, spans and metrics are sent there over OTLP, as http/protobuf;
with OTEL_METRICS_EXPORTER=none, spans alone.

` + connectionHelp + `

If a codec encodes the workflows' payloads, the worker needs a codec server, which --codec-endpoint names, as
that flag of the temporal command line does. It decodes inputs and encodes results. Failures stay plain, and name
resources. The value of its Authorization header is read from TEMPORAL_CODEC_AUTH. Without a codec server, an
activity with encoded input fails and is retried.

TLS and credentials of the database are options of its URI: tls, tlsCAFile, tlsCertificateKeyFile and others.

If the database does not answer, as during an election, it waits for 30 seconds and logs that.

Ctrl-C lets running activities end; a second one ends the process at once. Pass a database's password
in LOCKSTEP_MONGODB_URI and not in a flag, which other users of the machine can see.

Exit status: 0 after it was stopped, 1 if it could not start, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.run(c.Context(), s) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.temporalFlags.add(c)
	cfg.usesCodec = true
	f.StringVar(&cfg.codecEndpoint, "codec-endpoint", "",
		"URL of a codec server, if the workflows' payloads are encoded (TEMPORAL_CODEC_ENDPOINT); {namespace} stands for the namespace")
	f.StringVar(&cfg.taskQueue, "task-queue", "lockstep", "the task queue")
	cfg.databaseFlags.add(c)
	f.DurationVar(&cfg.janitor, "janitor", worker.DefaultJanitorInterval, "how often the janitor asks Temporal; 0 runs none in this process")
	return c
}

// run serves until ctx ends, then lets running activities end.
func (cfg *workerConfig) run(ctx context.Context, s streams) error {
	cfg.awaits = logger(s)
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
	if err := startup.Await(ctx, cfg.awaits, locker.CreateIndexes); err != nil {
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
	w := sdkworker.New(tc, cfg.taskQueue, sdkworker.Options{WorkerStopTimeout: stopTimeout, OnFatalError: func(err error) { fatal <- err }})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer w.Stop()
	codec := "no codec server is set, so payloads that a codec encodes cannot be read; --codec-endpoint names one"
	if cfg.codec != "" {
		codec = "payloads are encoded and decoded by the codec server " + cfg.codec
	}
	if err := table.Fprintf(s.err, "lockstep: %s\n", codec); err != nil {
		return err
	}
	if err := table.Fprintf(s.out, "serving task queue %q of namespace %q; Ctrl-C stops\n", cfg.taskQueue, cfg.namespace); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return table.Fprintf(s.err, "lockstep: stopping when the running activities have ended, within %v; Ctrl-C ends it at once\n", stopTimeout)
	case err := <-fatal:
		return fmt.Errorf("the worker cannot continue: %w", err)
	}
}

// usage marks errors about invalid options as errors of the caller.
func usage(err error) error {
	if errors.Is(err, lockcore.ErrInvalid) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

func initCommand(s streams) *cobra.Command {
	var db databaseFlags
	c := &cobra.Command{
		Use:   "init",
		Short: "Make the indexes of a collection of locks, and print its ID",
		Long: `Makes the indexes that a collection of locks needs, if they are missing, and prints the collection's ID, by
which workers tell it from others of the same name. It may be repeated. If the database role of the workers
may not make indexes, a user with that right must run it once.

Exit status: 0, 1 if the database could not be reached or refused, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := db.open(c.Context(), "lockstep init")
			if err != nil {
				return err
			}
			defer at.close()
			if err := at.Locker.CreateIndexes(c.Context()); err != nil {
				return err
			}
			id, err := at.Locker.CollectionID(c.Context())
			if err != nil {
				return err
			}
			return table.Fprintf(s.out, "the indexes are there; the collection's ID is %s\n", id)
		},
	}
	db.add(c)
	return c
}
