package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/mutexworkflow"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// hotWorker is the command of a worker process of bench hot. Its argument is a site as JSON.
const hotWorker = "hot-worker"

// pollers is the number of pollers for each kind of task. A task queue has four partitions: with the SDK's default of two pollers a
// task sometimes waits until a poller asks its partition.
const pollers = 10

// startWorkers starts n worker processes and returns when they poll. stop ends the processes that were started, and is never nil.
func startWorkers(ctx context.Context, n int, at site) (stop func(), err error) {
	text, err := json.Marshal(at)
	if err != nil {
		return func() {}, err
	}
	pool := harness.NewPool(n, func(_, number int) harness.Command {
		return harness.Command{Name: fmt.Sprint("worker process ", number), Args: []string{hotWorker, string(text)}}
	})
	return func() {
		pool.Stop(0, n, func(_ int, worker *harness.Process) { _ = worker.Quit(time.Minute) }) // whichever way it ends
	}, pool.StartAll(ctx)
}

// runHotWorker runs a worker until the standard input ends. It prints a line when the worker polls.
func runHotWorker(text string) error {
	var at site
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		return err
	}
	w, err := at.open(sdkworker.Options{
		MaxConcurrentActivityExecutionSize: hotSlots, MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers,
	})
	if err != nil {
		return err
	}
	w.RegisterWorkflowWithOptions(hotOne, workflow.RegisterOptions{Name: hotWorkflow})
	w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Nothing"})
	raw := w.db.Collection("raw", options.Collection().SetWriteConcern(writeconcern.Majority()))
	w.RegisterActivityWithOptions(func(ctx context.Context, id string) error { return rawPair(ctx, raw, id) }, activity.RegisterOptions{Name: "Write"})
	mutexworkflow.Mutex{Client: w.client, Queue: at.Queue, Timeout: time.Minute}.Register(w)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// The kinds of workflows that bench hot compares. Each runs one step that does nothing. The step of kindWrites sends two writes to
// the locks' database: the least that a lock in that database can cost if no request waits.
const (
	kindNone   = "no locks"
	kindWrites = "two raw writes"
	kindMutex  = "mutex workflow"
	kindLock   = "Lock"
	kindSaga   = "saga"
	kindGuard  = "guard"
)

var hotKinds = []string{kindNone, kindWrites, kindMutex, kindLock, kindSaga, kindGuard}

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
		return mutexworkflow.With(ctx, s.Resource, step)
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
