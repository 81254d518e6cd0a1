package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// WorkerConfig is what a worker process is started with.
type WorkerConfig struct {
	Config
	Database  string
	TaskQueue string
	Traces    string
}

// The load's constants: what a step takes, and how often the check says no.
const (
	stepPause   = 3 * time.Millisecond
	failPercent = 12
)

// ready is what a worker process prints when it polls.
const ready = "ready"

// RunWorker is the whole of a worker process: it polls until stdin ends, which it does when the parent is
// gone, or ctx ends.
func RunWorker(ctx context.Context, cfg WorkerConfig, stdin io.Reader) (err error) {
	observed, err := observe(ctx, "lockstep-demo-worker", cfg.Traces, cfg.Err)
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
	transfer.Register(w, &transfer.Bank{Accounts: db.Collection("accounts"), Pause: stepPause, Seed: cfg.Seed, FailPercent: failPercent})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer w.Stop()
	if _, err := fmt.Fprintln(cfg.Out, ready); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // whichever way it ends, the parent is gone
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}
