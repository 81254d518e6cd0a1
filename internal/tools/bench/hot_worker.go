package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/delay"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// hotWorker is the command of a worker process of bench hot. Its configuration comes as JSON.
const hotWorker = "hot-worker"

type hotWorkerConfig struct {
	Address, URI, Database, Queue string
	Slots                         int
	WriteDelay                    time.Duration
}

// startWorkers starts worker processes, and waits until they poll. stop ends them.
func startWorkers(ctx context.Context, n int, cfg hotWorkerConfig) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	for range n {
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
			stop()
			return nil, err
		}
		stops = append(stops, func() {
			_ = in.Close()
			_ = child.Wait()
		})
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			stop()
			return nil, fmt.Errorf("a worker process did not start: %w", err)
		}
	}
	return stop, nil
}

// runHotWorker works until its standard input ends.
func runHotWorker(ctx context.Context, text string, out io.Writer) error {
	var cfg hotWorkerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	o := options.Client().ApplyURI(cfg.URI)
	if cfg.WriteDelay > 0 {
		o.SetDialer(&delay.Dialer{Delays: delay.Delays{Writes: cfg.WriteDelay}}).SetCompressors(nil)
	}
	mc, err := mongo.Connect(o)
	if err != nil {
		return err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }()
	db := mc.Database(cfg.Database)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return err
	}
	quiet := log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	c, err := client.Dial(client.Options{HostPort: cfg.Address, Logger: quiet})
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
	w.RegisterActivityWithOptions(func(ctx context.Context, name string) error {
		for range 2 {
			one := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}
			if err := raw.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: name}}, one, options.FindOneAndUpdate().SetUpsert(true)).Err(); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
				return err
			}
		}
		return nil
	}, activity.RegisterOptions{Name: "Write"})
	m := &mutex{client: c, queue: cfg.Queue}
	w.RegisterWorkflowWithOptions(m.workflow, workflow.RegisterOptions{Name: mutexWorkflow})
	w.RegisterActivityWithOptions(m.request, activity.RegisterOptions{Name: requestMutex})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	if _, err := fmt.Fprintln(out, "works"); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

const hotWorkflow = "HotOne"

type hotStep struct{ Kind, Resource string }

// hotOne is a workflow of one step.
func hotOne(ctx workflow.Context, s hotStep) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	step := func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Nothing").Get(ctx, nil) }
	resource := lockcore.Exclusive(s.Resource)
	switch s.Kind {
	case kindWrites:
		return workflow.ExecuteActivity(ctx, "Write", s.Resource).Get(ctx, nil)
	case kindMutex:
		return withMutex(ctx, s.Resource, step)
	case kindLock:
		hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{resource}})
		if err != nil {
			return err
		}
		err = step(ctx)
		if failed := hold.Release(ctx); err == nil {
			err = failed
		}
		return err
	case kindSaga:
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return step(workflows.Guard(ctx, resource))
		})
	case kindGuard:
		return step(workflows.Guard(ctx, resource))
	}
	return step(ctx)
}
