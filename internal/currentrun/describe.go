package currentrun

import (
	"context"
	"fmt"
	"reflect"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// askTimeout bounds one question about runs.
const askTimeout = 5 * time.Second

// IsCurrent reports whether Temporal reports a run as its workflow's current one, and open. Call it in an activity.
func IsCurrent(ctx context.Context, own wire.Run) (bool, error) {
	c := activity.GetClient(ctx)
	if !IsRealClient(c) { // in the test environment no run follows another
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now, err := Describe(ctx, c.WorkflowService(), activity.GetInfo(ctx).Namespace, own.WorkflowID, "")
	if err != nil {
		return false, fmt.Errorf("lockstep: ask which run of workflow %q is the current one: %w", own.WorkflowID, err)
	}
	status := now.GetStatus()
	open := !HasEnded(status) && status != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
	return open && now.GetExecution().GetRunId() == own.RunID, nil
}

// Describer is the part of Temporal's service that Describe needs.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Describe asks Temporal about a run of a workflow, or about the current run if runID is empty. The server answers from the run's
// state and not from visibility, which lags behind. The answer is never nil without an error.
func Describe(ctx context.Context, service Describer, namespace, workflowID, runID string) (*workflowpb.WorkflowExecutionInfo, error) {
	answer, err := service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
	})
	switch {
	case err != nil:
		return nil, err
	case answer.GetWorkflowExecutionInfo() == nil:
		return nil, fmt.Errorf("lockstep: the server's answer about workflow %q is empty", workflowID)
	}
	return answer.GetWorkflowExecutionInfo(), nil
}

// HasEnded reports whether a run with this status has ended for good, so that no lock is taken in its name again. It is false for
// a run that continued as new, because the next run may continue with its locks, and for a status that this version does not know.
func HasEnded(status enumspb.WorkflowExecutionStatus) bool {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return true
	default:
		return false
	}
}

// RunsBefore returns the earlier runs whose histories a run that was reset contains. Call it in an activity.
func RunsBefore(ctx context.Context, own wire.Run) (runs []string, err error) {
	c := activity.GetClient(ctx)
	if !IsRealClient(c) { // in the test environment no run is reset
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for events := c.GetWorkflowHistory(ctx, own.WorkflowID, own.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("lockstep: read the history of run %q, which was reset: %w", own.RunID, err)
		}
		if reset := e.GetWorkflowTaskFailedEventAttributes(); reset.GetBaseRunId() != "" {
			runs = append(runs, reset.GetBaseRunId())
		}
	}
	return runs, nil
}

// IsRealClient reports whether a client reaches a server. In the SDK's test environments a client is nil, or a mock that ends the
// process when it is called. There no waiter is woken, and no goroutine may outlive the workflow, because the environment skips the
// time in which only timers run.
func IsRealClient(c client.Client) bool {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return false
	}
	service := reflect.TypeOf(c.WorkflowService())
	if service == nil {
		return false
	}
	_, mocked := service.MethodByName("EXPECT")
	return !mocked
}
