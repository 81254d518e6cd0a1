// Package failedtasks finds workflow tasks that have failed. The SDK repeats a failed task, so the result of its workflow does not show
// the failure.
package failedtasks

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// List describes the failed workflow tasks of the workflows on a task queue, or on one whose name begins with it and a hyphen.
//
// It reads histories, in which the server records the first failure of each row of attempts. It finds the workflows in the server's list,
// which may lag behind by some milliseconds: a workflow that has just started may be missing.
func List(ctx context.Context, service workflowservice.WorkflowServiceClient, namespace, taskQueue string) (failed []string, err error) {
	for token := []byte(nil); ; {
		page, err := service.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: namespace, NextPageToken: token,
			Query: fmt.Sprintf("TaskQueue = '%s' OR TaskQueue STARTS_WITH '%[1]s-'", taskQueue),
		})
		if err != nil {
			return failed, err
		}
		for _, w := range page.GetExecutions() {
			ofRun, err := ofRun(ctx, service, namespace, w.GetExecution())
			if err != nil {
				return failed, err
			}
			failed = append(failed, ofRun...)
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return failed, nil
		}
	}
}

func ofRun(ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string, run *commonpb.WorkflowExecution) (failed []string, err error) {
	for token := []byte(nil); ; {
		page, err := service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: namespace, Execution: run, NextPageToken: token,
		})
		if err != nil {
			return failed, err
		}
		for _, event := range page.GetHistory().GetEvents() {
			if a := event.GetWorkflowTaskFailedEventAttributes(); a != nil && isFailureOfCode(a) {
				failed = append(failed, fmt.Sprintf("workflow %q, run %s, event %d: %v: %s",
					run.GetWorkflowId(), run.GetRunId(), event.GetEventId(), a.GetCause(), a.GetFailure().GetMessage()))
			}
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return failed, nil
		}
	}
}

// isFailureOfCode reports whether a workflow task failed because of its worker. The server fails the others by itself: because of a
// reset, an event that has arrived before a closing command, a failover, or a close by an operator.
func isFailureOfCode(a *historypb.WorkflowTaskFailedEventAttributes) bool {
	switch a.GetCause() {
	case enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW, enumspb.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
		enumspb.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND, enumspb.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
		enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE:
		return false
	}
	return true
}
