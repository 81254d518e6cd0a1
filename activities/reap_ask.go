package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// verdict is what is known of a run.
type verdict int

const (
	open verdict = iota + 1
	closed
	missing
	unknown
	failed
)

// askTimeout bounds one question. The worker's client asks again meanwhile, also where the server has no capacity.
const askTimeout = 10 * time.Second

// judge asks about the run that a lock names, and, if another one may go on for it, about its workflow. why says how a
// closed one ended; the error is that of a failed one.
func (r *reap) judge(ctx context.Context, s *suspect) (found verdict, why string, err error) {
	run, _, err := protocol.ParseLockID(s.lockID)
	run.RunID = s.run
	if err != nil || run.RunID == "" || run.WorkflowID == "" {
		return unknown, "", nil //nolint:nilerr // somebody made it by hand, or it has a hash
	}
	r.mu.Lock()
	r.result.Asked++
	r.mu.Unlock()
	answer, found, err := r.describe(ctx, s, run, run.RunID)
	if found != 0 {
		return found, "its namespace does not know it", err
	}
	info := answer.GetWorkflowExecutionInfo()
	why = info.GetStatus().String()
	if goesOn := info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW; !goesOn {
		if answer.GetWorkflowExtendedInfo().GetResetRunId() == "" {
			return ended(info.GetStatus()), why, nil
		}
		why = "it was reset"
	}
	// The run that goes on takes over what it left, when it asks.
	current, found, err := r.describe(ctx, s, run, "")
	if found != 0 {
		return found, why + ", and its namespace does not know the workflow", err
	}
	last := current.GetWorkflowExecutionInfo()
	switch heir, known := protocol.Heir(info, last); {
	case heir != "" || !known:
		return open, "", nil
	case last.GetFirstRunId() != info.GetFirstRunId():
		return closed, why + ", and another workflow has its ID now", nil
	default:
		return closed, why + ", and then: " + last.GetStatus().String(), nil
	}
}

// ended is the verdict on the end of a chain. A run that continued as new is none: its successor is there by now.
func ended(status enumspb.WorkflowExecutionStatus) verdict {
	if protocol.HasEnded(status) {
		return closed
	}
	return open
}

// describe asks about a run, or about the current one. The verdict is zero where there is an answer. The answer comes from
// the run's history and not from visibility, which is behind.
func (r *reap) describe(ctx context.Context, s *suspect, run protocol.Run, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := r.temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: r.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: run.WorkflowID, RunId: runID},
	})
	var (
		gone  *serviceerror.NotFound
		wrong *serviceerror.InvalidArgument
	)
	switch {
	case err == nil && answer.GetWorkflowExecutionInfo() == nil:
		return nil, failed, fmt.Errorf("lockstep: the server's answer about workflow %q is empty", run.WorkflowID)
	case err == nil:
		return answer, 0, nil
	case errors.As(err, &gone) && (s.silent >= r.missingAfter || r.wasDeleted(ctx, s.lockID+"/"+s.run)):
		return nil, closed, nil
	case errors.As(err, &gone):
		return nil, missing, nil
	case errors.As(err, &wrong): // such as a run ID that somebody made by hand
		return nil, unknown, nil
	default:
		return nil, failed, err
	}
}
