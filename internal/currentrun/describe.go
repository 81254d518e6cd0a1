package currentrun

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Describer is what Describe needs of Temporal's service.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Describe asks Temporal about a run of a workflow, or about the current one if runID is empty. The answer comes from the
// run's history and not from visibility, which is behind. It is never nil without an error.
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

// HasEnded reports whether a run with this status is over for good, so that no lock is taken in its name any more. One that
// continued as new is not, since its successor may go on with its locks; nor is one in a state that did not exist when this
// was written.
func HasEnded(status enumspb.WorkflowExecutionStatus) bool {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return true
	default:
		return false
	}
}

// RunsBefore are the runs that a run was made of by resets, as its history tells: each from which it has a part of its history. It
// is asked in an activity.
func RunsBefore(ctx context.Context, own wire.Run) (runs []string, err error) {
	c := activity.GetClient(ctx)
	if !Connects(c) { // a test environment, in which no run is reset
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
