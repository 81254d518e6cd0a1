package main

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// A mutex workflow is how Temporal users lock without a database: a workflow for each resource grants it by signals, to one after
// the other, in the order in which they asked.
const (
	mutexWorkflow = "Mutex"
	requestMutex  = "RequestMutex"

	requestSignal = "request"
	grantSignal   = "granted"

	// mutexTimeout is how long a grant stands if it is not given back.
	mutexTimeout = time.Minute
	// mutexMost is how many grants a run makes: its history must not grow without end.
	mutexMost = 500
)

func mutexOf(resource string) string { return "mutex/" + resource }

type mutex struct {
	client client.Client
	queue  string
}

// request asks the resource's workflow, and starts it if there is none.
func (m *mutex) request(ctx context.Context, resource string) error {
	_, err := m.client.SignalWithStartWorkflow(ctx, mutexOf(resource), requestSignal, activity.GetInfo(ctx).WorkflowExecution.ID,
		client.StartWorkflowOptions{TaskQueue: m.queue}, mutexWorkflow, []string(nil))
	return err
}

// withMutex runs a step while it is granted the resource.
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

// workflow grants its resource to those who wait, and to those who ask. Who gives it back signals under its own ID. It ends when
// no request has come for a while.
func (m *mutex) workflow(ctx workflow.Context, waiting []string) error {
	requests := workflow.GetSignalChannel(ctx, requestSignal)
	take := func() {
		for id := ""; requests.ReceiveAsync(&id); {
			waiting = append(waiting, id)
		}
	}
	for range mutexMost {
		if take(); len(waiting) == 0 {
			id := ""
			if asked, _ := requests.ReceiveWithTimeout(ctx, mutexTimeout, &id); !asked {
				return nil
			}
			waiting = append(waiting, id)
		}
		id := waiting[0]
		waiting = waiting[1:]
		if workflow.SignalExternalWorkflow(ctx, id, "", grantSignal, nil).Get(ctx, nil) == nil { // else it has ended
			workflow.GetSignalChannel(ctx, id).ReceiveWithTimeout(ctx, mutexTimeout, nil)
		}
	}
	take()
	return workflow.NewContinueAsNewError(ctx, mutexWorkflow, waiting)
}
