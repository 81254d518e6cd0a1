package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// verdict is what is known of a run.
type verdict int

const (
	open verdict = iota + 1
	closed
	missing
	denied
	unknown
	failed
)

// askTimeout bounds one question. The worker's client asks again meanwhile, also where the server has no capacity.
const askTimeout = 10 * time.Second

// judge asks about the exact run that a lock ID names, and where it continued as new about its workflow. why says how a
// closed one ended; the error is that of a failed one.
func (r *reap) judge(ctx context.Context, s *suspect) (found verdict, why string, err error) {
	run, err := protocol.ParseLockID(s.lockID)
	if err != nil || run.RunID == "" || run.WorkflowID == "" {
		return unknown, "", nil //nolint:nilerr // somebody made it by hand
	}
	r.mu.Lock()
	known := r.namespaces[run.Namespace]
	if known == 0 {
		r.result.Asked++
	}
	r.mu.Unlock()
	if known != 0 {
		return known, "", nil
	}
	if run.Hashed {
		if found, err = r.unhash(ctx, s, &run); found != 0 {
			return found, "", err
		}
	}
	s.workflowID = run.WorkflowID
	info, found, err := r.describe(ctx, s, run, run.RunID)
	if found != 0 {
		return found, "its namespace does not know it", err
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
		return ended(info.GetStatus()), info.GetStatus().String(), nil
	}
	// It may have handed its locks over, which then stand in its name.
	last, found, err := r.describe(ctx, s, run, "")
	if found != 0 {
		return found, "it continued as new, and its namespace does not know the workflow", err
	}
	switch heir, known := protocol.Heir(info, last); {
	case heir != "" || !known:
		return open, "", nil
	case last.GetFirstRunId() != info.GetFirstRunId():
		return closed, "it continued as new, and another workflow has its ID now", nil
	default:
		return closed, "it continued as new, and then: " + last.GetStatus().String(), nil
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
func (r *reap) describe(ctx context.Context, s *suspect, run protocol.Run, runID string) (*workflowpb.WorkflowExecutionInfo, verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := protocol.Describe(ctx, r.temporal, run.Namespace, run.WorkflowID, runID)
	var gone *serviceerror.NotFound
	switch {
	case err == nil:
		return info, 0, nil
	case errors.As(err, &gone) && (s.silent >= r.missingAfter || r.wasDeleted(ctx, s.lockID, run.Namespace)):
		return nil, closed, nil
	case errors.As(err, &gone):
		return nil, missing, nil
	}
	found, err := r.refused(run.Namespace, err)
	return nil, found, err
}

// unhash finds the ID of a workflow that is too long, or too odd, to stand in a lock ID. Visibility tells it; what it
// tells of the run's state is not used.
func (r *reap) unhash(ctx context.Context, s *suspect, run *protocol.Run) (verdict, error) {
	if id, seen := r.seen.of(s.lockID); seen {
		run.WorkflowID = id
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := r.temporal.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: run.Namespace, PageSize: 10, Query: fmt.Sprintf("RunId = %q", run.RunID),
	})
	if err != nil {
		return r.refused(run.Namespace, err)
	}
	for _, e := range answer.GetExecutions() {
		asked := protocol.Run{
			Cluster: run.Cluster, Namespace: run.Namespace, WorkflowID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId(),
		}
		if asked.LockID() == s.lockID {
			*run = asked
			return 0, nil
		}
	}
	return unknown, nil
}

// refused is the verdict where there is no answer. A namespace that is not there, or may not be read, is not asked
// about again.
func (r *reap) refused(namespace string, err error) (verdict, error) {
	var (
		noNamespace *serviceerror.NamespaceNotFound
		forbidden   *serviceerror.PermissionDenied
		wrong       *serviceerror.InvalidArgument
		found       verdict
	)
	switch {
	case errors.As(err, &noNamespace):
		found = unknown
	case errors.As(err, &forbidden):
		found = denied
	case errors.As(err, &wrong): // such as a run ID that somebody made by hand
		return unknown, nil
	default:
		return failed, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.namespaces[namespace] = found
	return found, nil
}
