package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

type temporalConfig struct {
	uri, address    string
	rounds, waiters int
	wait            time.Duration
}

// temporalBench is a worker with the workflows that are measured.
type temporalBench struct {
	cfg    temporalConfig
	client client.Client
	locker *lockcore.Locker
	raw    *mongo.Collection
	queue  string
	// serial is how long the database's commands took together, in nanoseconds, and commands how many there were.
	serial, commands atomic.Int64
	turns            turns
}

// slots is how many activities the worker runs at once, and pollers how many of each kind ask for tasks.
const (
	slots   = 10
	pollers = 10
)

func benchTemporal(ctx context.Context, cfg temporalConfig) (report Report, err error) {
	b, stop, err := startTemporal(ctx, cfg)
	if err != nil {
		return report, err
	}
	defer stop()
	for _, part := range []func(context.Context) ([]FactReport, error){b.events, b.throughput, b.wakeUps, b.crowd} {
		facts, err := part(ctx)
		if err != nil {
			return report, err
		}
		report.Facts = append(report.Facts, facts...)
	}
	return report, nil
}

// startTemporal starts a worker on a new database, and returns what ends both.
func startTemporal(ctx context.Context, cfg temporalConfig) (b *temporalBench, stop func(), err error) {
	b = &temporalBench{cfg: cfg, queue: fmt.Sprintf("lockstep-bench-%d", time.Now().UnixNano())}
	var ends []func()
	stop = func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		b.serial.Add(int64(e.Duration))
		b.commands.Add(1)
	}}
	mc, err := mongo.Connect(options.Client().ApplyURI(cfg.uri).SetMonitor(monitor))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	db := mc.Database(fmt.Sprintf("lockstep_bench_%d", time.Now().UnixNano()))
	ends = append(ends, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
		_ = mc.Disconnect(ctx)
	})
	b.raw = db.Collection("raw")
	if b.locker, err = lockcore.New(db.Collection("locks"), lockcore.Config{}); err != nil {
		return nil, nil, err
	}
	if err := b.locker.CreateIndexes(ctx); err != nil {
		return nil, nil, err
	}
	quiet := log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if b.client, err = client.Dial(client.Options{HostPort: cfg.address, Logger: quiet}); err != nil {
		return nil, nil, fmt.Errorf("connect to TEMPORAL_ADDRESS: %w", err)
	}
	ends = append(ends, b.client.Close)
	plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker})
	if err != nil {
		return nil, nil, err
	}
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, MaxConcurrentActivityExecutionSize: slots,
		// A queue has four partitions: with the usual two pollers tasks wait, by chance, for one to come by theirs.
		MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers,
	})
	b.register(w)
	if err := w.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the worker: %w", err)
	}
	ends = append(ends, w.Stop)
	return b, stop, nil
}

// step says what a workflow does: one step, guarded by a resource, or writing raw to a document, if one is named.
type step struct {
	Resource string
	Saga     bool
	Raw      string
}

func (b *temporalBench) register(w sdkworker.Worker) {
	w.RegisterWorkflowWithOptions(b.oneStep, workflow.RegisterOptions{Name: "OneStep"})
	w.RegisterActivityWithOptions(b.turns.take, activity.RegisterOptions{Name: "Take"})
	w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Nothing"})
	w.RegisterActivityWithOptions(func(ctx context.Context, id string) error { return rawPair(ctx, b.raw, id) }, activity.RegisterOptions{Name: "Raw"})
}

func (b *temporalBench) oneStep(ctx workflow.Context, s step) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	run := func(ctx workflow.Context) error {
		switch {
		case s.Resource != "":
			return workflow.ExecuteActivity(workflows.Guard(ctx, lockcore.Exclusive(s.Resource)), "Take").Get(ctx, nil)
		case s.Raw != "":
			return workflow.ExecuteActivity(ctx, "Raw", s.Raw).Get(ctx, nil)
		}
		return workflow.ExecuteActivity(ctx, "Nothing").Get(ctx, nil)
	}
	if !s.Saga {
		return run(ctx)
	}
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error { return run(ctx) })
}

func (b *temporalBench) start(ctx context.Context, s step) (client.WorkflowRun, error) {
	return b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: b.queue}, "OneStep", s)
}

// run starts a workflow and waits for its end.
func (b *temporalBench) run(ctx context.Context, s step) (client.WorkflowRun, error) {
	run, err := b.start(ctx, s)
	if err != nil {
		return nil, err
	}
	return run, run.Get(ctx, nil)
}

func (b *temporalBench) historyLength(ctx context.Context, run client.WorkflowRun) (float64, error) {
	d, err := b.client.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
	return float64(d.GetWorkflowExecutionInfo().GetHistoryLength()), err
}

// events counts from histories what guards add.
func (b *temporalBench) events(ctx context.Context) ([]FactReport, error) {
	var lengths [3]float64
	for i, s := range []step{{}, {Resource: "events"}, {Resource: "events", Saga: true}} {
		run, err := b.run(ctx, s)
		if err != nil {
			return nil, err
		}
		if lengths[i], err = b.historyLength(ctx, run); err != nil {
			return nil, err
		}
	}
	return []FactReport{
		{Name: "events of a workflow with one unguarded step", Value: lengths[0], Unit: "events"},
		{Name: "more with a guard", Value: lengths[1] - lengths[0], Unit: "events"},
		{Name: "more with a guard of scope saga", Value: lengths[2] - lengths[0], Unit: "events", Limit: 1},
	}, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
