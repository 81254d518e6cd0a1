package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// meddle does to a workflow what an operator may do. What has ended already may be reset and restarted.
func (p *play) meddle(ctx context.Context, w *Workflow, f WorkflowFault) (err error) {
	record := &Record{What: Meddled, Workflow: p.id(w), Type: f.Kind, At: time.Now().UnixNano()}
	switch f.Kind {
	case "cancel":
		err = p.tc.CancelWorkflow(ctx, p.id(w), "")
	case "terminate":
		err = p.tc.TerminateWorkflow(ctx, p.id(w), "", "as planned")
	case "restart":
		err = p.start(ctx, w)
	case "reset":
		record.Run, record.Other, err = p.reset(ctx, p.id(w), f.Pick)
	case "activity":
		err = p.resetActivity(ctx, p.id(w), f.Pick)
	case "break":
		err = p.breakLocks(ctx, p.id(w))
	}
	var gone *serviceerror.NotFound
	var early *serviceerror.FailedPrecondition
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &gone) || errors.As(err, &early) || errors.As(err, &invalid) {
		record.Error, err = err.Error(), nil // it has ended, or has no such activity or workflow task
	}
	p.log.Write(record)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil // the server is slow; no check needs to know whether it was done
	}
	return err
}

// reset makes a new run out of the history up to one of the workflow's tasks.
func (p *play) reset(ctx context.Context, id string, pick uint64) (old, run string, err error) {
	var tasks []int64
	events := p.tc.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return "", "", err
		}
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks = append(tasks, event.GetEventId())
		}
	}
	d, err := p.tc.DescribeWorkflowExecution(ctx, id, "")
	if err != nil || len(tasks) == 0 {
		return "", "", err
	}
	old = d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	answer, err := p.tc.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: old},
		Reason: "as planned", RequestId: fmt.Sprintf("%s %d", old, pick), WorkflowTaskFinishEventId: tasks[pick%uint64(len(tasks))],
	})
	return old, answer.GetRunId(), err
}

// breakLocks ends by force what a workflow holds. What runs under it drains.
func (p *play) breakLocks(ctx context.Context, id string) error {
	for s, err := range p.locker.Status(ctx, lockcore.Filter{States: []lockcore.State{lockcore.StateHolding}}) {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(s.LockID, "/"+id) {
			continue
		}
		err = p.locker.Core().Release(ctx, party.Release{
			LockID: s.LockID, Resources: []string{s.Resource}, FirstFence: s.FirstFence, Force: true, Reason: "as planned",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resetActivity has a pending step begin again with attempt 1.
func (p *play) resetActivity(ctx context.Context, id string, pick uint64) error {
	d, err := p.tc.DescribeWorkflowExecution(ctx, id, "")
	if err != nil || len(d.GetPendingActivities()) == 0 {
		return err
	}
	pending := d.GetPendingActivities()[pick%uint64(len(d.GetPendingActivities()))]
	_, err = p.tc.WorkflowService().ResetActivity(ctx, &workflowservice.ResetActivityRequest{
		Namespace: namespace, Execution: d.GetWorkflowExecutionInfo().GetExecution(),
		Activity: &workflowservice.ResetActivityRequest_Id{Id: pending.GetActivityId()},
	})
	return err
}
