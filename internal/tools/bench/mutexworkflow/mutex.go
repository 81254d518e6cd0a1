// Package mutexworkflow is the lock that Temporal users write without a database, for benchmarks to compare with: a mutex workflow,
// as in Temporal's samples (temporalio/samples-go, folder mutex), in our own version. One workflow for each resource grants the resource by
// signals, in the order of the requests.
package mutexworkflow

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	mutexWorkflow = "Mutex"
	requestMutex  = "RequestMutex"

	requestSignal = "request"
	grantSignal   = "granted"

	// most is the number of grants of one run. It bounds the run's history.
	most = 500
)

// ID returns the workflow ID of a resource's mutex workflow.
func ID(resource string) string { return "mutex/" + resource }

// Mutex grants resources to workflows.
type Mutex struct {
	Client client.Client
	// Queue is the task queue of the mutex workflows.
	Queue string
	// Timeout ends a grant that is not released, and a mutex workflow without requests.
	Timeout time.Duration
}

// Register lets a worker run mutex workflows, and workflows that call With.
func (m Mutex) Register(w sdkworker.Registry) {
	w.RegisterWorkflowWithOptions(m.workflow, workflow.RegisterOptions{Name: mutexWorkflow})
	w.RegisterActivityWithOptions(m.request, activity.RegisterOptions{Name: requestMutex})
}

// request signals the resource's mutex workflow, and starts it if it does not run.
func (m Mutex) request(ctx context.Context, resource string) error {
	_, err := m.Client.SignalWithStartWorkflow(ctx, ID(resource), requestSignal, activity.GetInfo(ctx).WorkflowExecution.ID,
		client.StartWorkflowOptions{TaskQueue: m.Queue}, mutexWorkflow, []string(nil))
	return err
}

// With runs a step while the mutex workflow grants the resource.
func With(ctx workflow.Context, resource string, step func(workflow.Context) error) error {
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5},
	})
	if err := workflow.ExecuteLocalActivity(local, requestMutex, resource).Get(ctx, nil); err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, grantSignal).Receive(ctx, nil)
	err := step(ctx)
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	if failed := workflow.SignalExternalWorkflow(ctx, ID(resource), "", id, nil).Get(ctx, nil); err == nil {
		err = failed
	}
	return err
}

// workflow grants its resource to the waiting workflows, one after the other. A workflow releases the resource by a signal that is
// named after its workflow ID. The mutex workflow ends when no request arrives for Timeout.
func (m Mutex) workflow(ctx workflow.Context, waiting []string) error {
	requests := workflow.GetSignalChannel(ctx, requestSignal)
	for range most {
		waiting = appendRequests(waiting, requests)
		if len(waiting) == 0 {
			id := ""
			if arrived, _ := requests.ReceiveWithTimeout(ctx, m.Timeout, &id); !arrived {
				return nil
			}
			waiting = append(waiting, id)
		}
		id := waiting[0]
		waiting = waiting[1:]
		// The signal fails if the workflow has ended.
		if workflow.SignalExternalWorkflow(ctx, id, "", grantSignal, nil).Get(ctx, nil) == nil {
			workflow.GetSignalChannel(ctx, id).ReceiveWithTimeout(ctx, m.Timeout, nil)
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
