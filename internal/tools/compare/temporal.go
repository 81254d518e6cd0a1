package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/mutexworkflow"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// The kinds of workflows. Each has one step.
const (
	kindNone  = "none"
	kindMutex = "mutex"
	kindGuard = "guard"
)

const holderWorkflow = "CompareHolder"

// temporalInstance runs a workflow for each acquisition, on a worker of its own. Its step runs under the lock until the lock is
// released. With kindMutex the workflow uses a mutex workflow as in Temporal's samples, with the TTL as the sample's unlock
// timeout; with kindGuard the step has a guard (docs/guides/guards.md).
type temporalInstance struct {
	mongoClient // only with kindGuard
	client      client.Client
	worker      sdkworker.Worker
	locker      *lockcore.Locker // only with kindGuard
	kind, queue string
	// prefix makes resources unique among runs, because mutex workflows of an earlier run may still be open. mutexes has those of this run.
	prefix  string
	mutexes sync.Map
}

type holding struct{ Kind, Resource string }

func openTemporal(kind string) func(context.Context, env) (instance, error) {
	return func(ctx context.Context, e env) (instance, error) {
		i := &temporalInstance{kind: kind, queue: e.Queue, prefix: e.Mutexes + "/"}
		var opts sdkworker.Options
		if kind == kindGuard {
			if err := i.withLocker(ctx, e, &opts); err != nil {
				return nil, err
			}
		}
		var err error
		i.client, err = client.Dial(client.Options{
			HostPort: e.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
			ConnectionOptions: client.ConnectionOptions{DialOptions: countGRPC(e.sent)},
		})
		if err != nil {
			return nil, err
		}
		i.worker = sdkworker.New(i.client, e.Queue, opts)
		i.worker.RegisterWorkflowWithOptions(runHolder, workflow.RegisterOptions{Name: holderWorkflow})
		i.worker.RegisterActivityWithOptions(hold, activity.RegisterOptions{Name: "Hold"})
		i.worker.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Nothing"})
		mutexworkflow.Mutex{Client: i.client, Queue: e.Mutexes, Timeout: e.TTL}.Register(i.worker)
		return i, i.worker.Start()
	}
}

// withLocker opens the database, and adds Lockstep's plugin to the worker.
func (i *temporalInstance) withLocker(ctx context.Context, e env, opts *sdkworker.Options) (err error) {
	if i.mongoClient, err = openMongo(ctx, e); err != nil {
		return err
	}
	if i.locker, err = newLocker(ctx, i.mongoClient, e.TTL); err != nil {
		return err
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: i.locker})
	opts.Plugins = []sdkworker.Plugin{plugin}
	return err
}

func runHolder(ctx workflow.Context, h holding) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	step := func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Hold").Get(ctx, nil) }
	switch h.Kind {
	case kindMutex:
		return mutexworkflow.With(ctx, h.Resource, step)
	case kindGuard:
		return step(workflows.Guard(ctx, lockcore.Exclusive(h.Resource)))
	}
	return workflow.ExecuteActivity(ctx, "Nothing").Get(ctx, nil)
}

// acquisitions has a *acquisition for each workflow ID. All instances of a process share it, because any worker may run a step.
var acquisitions sync.Map

type acquisition struct {
	granted  chan context.Context
	released chan struct{}
}

// hold is the step: it passes its context to acquire, and ends when the lock is released.
func hold(ctx context.Context) error {
	found, ok := acquisitions.Load(activity.GetInfo(ctx).WorkflowExecution.ID)
	if !ok {
		return errors.New("no client waits for this step")
	}
	a := found.(*acquisition)
	a.granted <- ctx
	<-a.released
	return nil
}

func (i *temporalInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	// The grant is sent once, unless an attempt that took too long is repeated.
	a := &acquisition{granted: make(chan context.Context, 5), released: make(chan struct{})}
	id := "compare/" + rand.Text()
	resource = i.prefix + resource
	i.mutexes.Store(mutexworkflow.ID(resource), nil)
	acquisitions.Store(id, a)
	run, err := i.client.ExecuteWorkflow(ctx, i.options(id), holderWorkflow, holding{i.kind, resource})
	if err != nil {
		return nil, err
	}
	var step context.Context
	select {
	case step = <-a.granted:
	case <-ctx.Done():
		close(a.released)
		return nil, errors.Join(context.Cause(ctx), i.client.TerminateWorkflow(context.WithoutCancel(ctx), id, "", "no client waits for it"))
	}
	h := &held{}
	h.release = func(ctx context.Context) error {
		close(a.released)
		acquisitions.Delete(id)
		return run.Get(ctx, nil)
	}
	if i.kind == kindGuard {
		h.lost = step.Done()
		h.write = func(ctx context.Context) error { return i.updateFenced(ctx, activities.Leases(step)[0]) }
		h.check = func(context.Context) error { return context.Cause(step) }
	}
	return h, nil
}

// options bounds the life of a workflow, so that none outlives the program for long.
func (i *temporalInstance) options(id string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{ID: id, TaskQueue: i.queue, WorkflowExecutionTimeout: 3 * time.Minute}
}

// write runs the same workflow without a lock.
func (i *temporalInstance) write(ctx context.Context) error {
	run, err := i.client.ExecuteWorkflow(ctx, i.options("compare/"+rand.Text()), holderWorkflow, holding{Kind: kindNone})
	if err != nil {
		return err
	}
	return run.Get(ctx, nil)
}

func (i *temporalInstance) close(ctx context.Context) error {
	i.worker.Stop()
	for id := range i.mutexes.Range {
		// It is not an error that the workflow has ended, or that another instance has terminated it.
		_ = i.client.TerminateWorkflow(ctx, id.(string), "", "the comparison is over")
	}
	i.client.Close()
	if i.locker == nil {
		return nil
	}
	return errors.Join(i.locker.Close(ctx), i.mongoClient.close(ctx))
}
