package testenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// allowed contains the failures that tests have asked for, by the test's task queue.
var allowed struct {
	sync.Mutex
	texts map[string][]string
}

// AllowFailedTasks makes the check of a test's task queue (see TaskQueue) ignore failed workflow tasks whose failure contains one of the
// texts. Use it for a test that provokes such failures.
func AllowFailedTasks(t testing.TB, taskQueue string, texts ...string) {
	t.Helper()
	allowed.Lock()
	defer allowed.Unlock()
	if allowed.texts == nil {
		allowed.texts = map[string][]string{}
	}
	allowed.texts[taskQueue] = append(allowed.texts[taskQueue], texts...)
}

// NoFailedTasks fails the test for each workflow task that has failed in a namespace, on a task queue or on one whose name begins with
// it and a hyphen. The SDK repeats such a task, so a test that looks only at results passes.
//
// It reads histories, in which the server records the first failure of each row of attempts, and finds the workflows in the list, which
// may lag behind by some milliseconds: a workflow that has just started may be missed.
func NoFailedTasks(t testing.TB, c client.Client, namespace, taskQueue string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), answerWithin)
	defer cancel()
	allowed.Lock()
	texts := allowed.texts[taskQueue]
	allowed.Unlock()
	failed, err := FailedTasks(ctx, c, namespace, taskQueue)
	if err != nil {
		t.Errorf("search for failed workflow tasks on %q: %v", taskQueue, err)
	}
	for _, text := range failed {
		if !slices.ContainsFunc(texts, func(allowed string) bool { return strings.Contains(text, allowed) }) {
			t.Errorf("a workflow task has failed, and the test does not allow it with testenv.AllowFailedTasks: %s", text)
		}
	}
}

// FailedTasks describes the failed workflow tasks of the workflows on a task queue, or on one whose name begins with it and a hyphen.
func FailedTasks(ctx context.Context, c client.Client, namespace, taskQueue string) (failed []string, err error) {
	for token := []byte(nil); ; {
		page, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: namespace, NextPageToken: token,
			Query: fmt.Sprintf("TaskQueue = '%s' OR TaskQueue STARTS_WITH '%[1]s-'", taskQueue),
		})
		if err != nil {
			return failed, err
		}
		for _, w := range page.GetExecutions() {
			of, err := failedTasksOf(ctx, c, namespace, w.GetExecution())
			if err != nil {
				return failed, err
			}
			failed = append(failed, of...)
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return failed, nil
		}
	}
}

func failedTasksOf(ctx context.Context, c client.Client, namespace string, run *commonpb.WorkflowExecution) (failed []string, err error) {
	for token := []byte(nil); ; {
		page, err := c.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
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
