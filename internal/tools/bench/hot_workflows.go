package main

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

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

// Temporal users who lock without a database use a mutex workflow: one workflow for each resource, which grants the resource by
// signals, in the order of the requests.
const (
	mutexWorkflow = "Mutex"
	requestMutex  = "RequestMutex"

	requestSignal = "request"
	grantSignal   = "granted"

	// mutexTimeout ends a grant that is not released.
	mutexTimeout = time.Minute
	// mutexMost is the number of grants of one run. It bounds the run's history.
	mutexMost = 500
)

func mutexOf(resource string) string { return "mutex/" + resource }

type mutex struct {
	client client.Client
	queue  string
}

// request signals the resource's mutex workflow, and starts it if it does not run.
func (m *mutex) request(ctx context.Context, resource string) error {
	_, err := m.client.SignalWithStartWorkflow(ctx, mutexOf(resource), requestSignal, activity.GetInfo(ctx).WorkflowExecution.ID,
		client.StartWorkflowOptions{TaskQueue: m.queue}, mutexWorkflow, []string(nil))
	return err
}

// withMutex runs a step while the mutex workflow grants the resource.
func withMutex(ctx workflow.Context, resource string, step func(workflow.Context) error) error {
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5},
	})
	if err := workflow.ExecuteLocalActivity(local, requestMutex, resource).Get(ctx, nil); err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, grantSignal).Receive(ctx, nil)
	err := step(ctx)
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	if failed := workflow.SignalExternalWorkflow(ctx, mutexOf(resource), "", id, nil).Get(ctx, nil); err == nil {
		err = failed
	}
	return err
}

// workflow grants its resource to the waiting workflows, one after the other. A workflow releases the resource by a signal that is
// named after its workflow ID. The mutex workflow ends when no request arrives for mutexTimeout.
func (m *mutex) workflow(ctx workflow.Context, waiting []string) error {
	requests := workflow.GetSignalChannel(ctx, requestSignal)
	for range mutexMost {
		waiting = appendRequests(waiting, requests)
		if len(waiting) == 0 {
			id := ""
			if arrived, _ := requests.ReceiveWithTimeout(ctx, mutexTimeout, &id); !arrived {
				return nil
			}
			waiting = append(waiting, id)
		}
		id := waiting[0]
		waiting = waiting[1:]
		// The signal fails if the workflow has ended.
		if workflow.SignalExternalWorkflow(ctx, id, "", grantSignal, nil).Get(ctx, nil) == nil {
			workflow.GetSignalChannel(ctx, id).ReceiveWithTimeout(ctx, mutexTimeout, nil)
		}
	}
	return workflow.NewContinueAsNewError(ctx, mutexWorkflow, appendRequests(waiting, requests))
}

// appendRequests appends the requests that have arrived.
func appendRequests(waiting []string, requests workflow.ReceiveChannel) []string {
	for id := ""; requests.ReceiveAsync(&id); {
		waiting = append(waiting, id)
	}
	return waiting
}
