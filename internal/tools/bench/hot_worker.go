package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/delay"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// hotWorker is the command of a worker process of bench hot. Its argument is a hotWorkerConfig as JSON.
const hotWorker = "hot-worker"

type hotWorkerConfig struct {
	Address, URI, Database, Queue string
	Slots                         int
	WriteDelay                    time.Duration
}

// pollers is the number of pollers for each kind of task. A task queue has four partitions: with the SDK's default of two pollers a
// task sometimes waits until a poller asks its partition.
const pollers = 10

// startWorkers starts n worker processes and returns when they poll. stop ends them.
func startWorkers(ctx context.Context, n int, cfg hotWorkerConfig) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	for range n {
		one, err := startWorker(ctx, cfg)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

func startWorker(ctx context.Context, cfg hotWorkerConfig) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self, hotWorker, string(text)) //nolint:gosec // itself
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = child.Wait()
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return nil, fmt.Errorf("a worker process did not start: %w", err)
	}
	return stop, nil
}

// runHotWorker runs a worker until the standard input ends. It prints a line when the worker polls.
func runHotWorker(ctx context.Context, text string, out io.Writer) error {
	var cfg hotWorkerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	mc, err := mongo.Connect(options.Client().ApplyURI(cfg.URI).SetMonitor(delay.Delays{Writes: cfg.WriteDelay}.Monitor()))
	if err != nil {
		return err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }()
	db := mc.Database(cfg.Database)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return err
	}
	c, err := client.Dial(client.Options{HostPort: cfg.Address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	defer c.Close()
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	if err != nil {
		return err
	}
	w := sdkworker.New(c, cfg.Queue, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, MaxConcurrentActivityExecutionSize: cfg.Slots,
		MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers,
	})
	w.RegisterWorkflowWithOptions(hotOne, workflow.RegisterOptions{Name: hotWorkflow})
	w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Nothing"})
	raw := db.Collection("raw", options.Collection().SetWriteConcern(writeconcern.Majority()))
	w.RegisterActivityWithOptions(func(ctx context.Context, id string) error { return rawPair(ctx, raw, id) }, activity.RegisterOptions{Name: "Write"})
	m := &mutex{client: c, queue: cfg.Queue}
	w.RegisterWorkflowWithOptions(m.workflow, workflow.RegisterOptions{Name: mutexWorkflow})
	w.RegisterActivityWithOptions(m.request, activity.RegisterOptions{Name: requestMutex})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	if _, err := fmt.Fprintln(out, "polling"); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
