package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// askTimeout bounds one question, with the retries of the client if the server has no capacity.
const askTimeout = 10 * time.Second

// verdict is the state of a run. The zero verdict means that Temporal does not know the run, or does not know whether it has
// an heir.
type verdict int

const (
	open      verdict = iota + 1
	inherited         // closed, with an open heir
	closed            // closed, without an heir
)

// answer is Temporal's answer about a run.
type answer struct {
	verdict
	// settled is set for an open run without an outstanding workflow task: every step that is not among the pending
	// activities has ended. A paused run is never settled.
	settled bool
	pending []pendingActivity
	// why is the status of a closed run.
	why string
}

// pendingActivity is an activity that runs or waits for its next attempt.
type pendingActivity struct{ id, activityType string }

// hasEnded reports whether the step of an entry has ended and left the entry behind: neither the step nor its wait is among the pending
// activities. The schedule number in the entry's order identifies the wait of a step. In scope step, the lock ID identifies the step itself.
// With the workflow's lock ID the step may be any activity, so only waits end.
func (a *answer) hasEnded(e *lockcore.Status) bool {
	_, step, err := wire.ParseLockID(e.LockID)
	switch {
	case err != nil || a.verdict != open || !a.settled:
		return false
	case step == "":
		return e.State == lockcore.StateWaiting && !slices.ContainsFunc(a.pending, func(p pendingActivity) bool { return p.mayAwait(e.Order) })
	default:
		return !slices.ContainsFunc(a.pending, func(p pendingActivity) bool { return p.mayAwait(e.Order) && p.mayBe(step) })
	}
}

// mayAwait reports whether the activity is the wait of a schedule number, or not a wait at all.
func (p pendingActivity) mayAwait(order lockcore.Order) bool {
	return p.activityType != wire.ActivityWait || p.id == wire.WaitID(order.Schedule)
}

// mayBe reports whether the activity may be an attempt of a step, or a wait. A guard names the step by number and type. A
// rule names it by the activity, which is compared as a whole, because its ID and type may contain anything.
func (p pendingActivity) mayBe(step string) bool {
	_, guarded, _ := strings.Cut(step, "/")
	return p.activityType == wire.ActivityWait || wire.IsHash(step) || guarded == p.activityType ||
		strings.HasPrefix(step, wire.RuleStepPrefix(p.id, p.activityType))
}

// errRefused is matched by the error with which Temporal does not allow the janitor to ask about workflows. Its text is a part of that error's.
var errRefused = errors.New("is refused, and needs credentials that allow DescribeWorkflowExecution")

// Service is the part of Temporal's service that the janitor needs.
type Service interface {
	currentrun.Describer
	GetWorkflowExecutionHistory(ctx context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest, opts ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error)
}

// askTemporal asks about a run and, if that is closed, about the workflow's current run, and whether that inherits. The round paces the first
// question. The error matches errRefused if Temporal refuses all questions.
func (j *Janitor) askTemporal(ctx context.Context, workflowID, run string) (answer, error) {
	then, err := j.describe(ctx, workflowID, run)
	if then == nil {
		return answer{}, err
	}
	if isOpen(then) {
		found := answer{verdict: open}
		found.settled = then.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && then.GetPendingWorkflowTask() == nil
		for _, p := range then.GetPendingActivities() {
			found.pending = append(found.pending, pendingActivity{p.GetActivityId(), p.GetActivityType().GetName()})
		}
		return found, nil
	}
	if err := j.pace.Wait(ctx); err != nil {
		return answer{}, err
	}
	now, err := j.describe(ctx, workflowID, "")
	if now == nil {
		return answer{}, err
	}
	found := succession(then, now)
	if found.verdict != inherited {
		return found, nil
	}
	if err := j.pace.Wait(ctx); err != nil {
		return answer{}, err
	}
	// If it is not known whether the current run inherits, the hold is extended, which is always safe.
	if inherits, err := j.inherits(ctx, now.GetWorkflowExecutionInfo().GetExecution(), then.GetWorkflowExecutionInfo().GetStartTime().AsTime()); err == nil && !inherits {
		return answer{verdict: closed, why: then.GetWorkflowExecutionInfo().GetStatus().String() + ", and the current run inherits nothing"}, nil
	}
	return found, nil
}

// inherits reports whether a run may use what an earlier run of its workflow, which began at the given time, holds. A run that continues a
// hand-over inherits from the run that its header names as the first, and from later runs. An earlier run has continued without handing over, and
// its worker has died. A run that a reset has made begins with the history of the run that was reset, so it began when that one did.
func (j *Janitor) inherits(ctx context.Context, run *commonpb.WorkflowExecution, began time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := (*j.temporal.Load()).GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: j.Namespace, Execution: run, MaximumPageSize: 1,
	})
	events := found.GetHistory().GetEvents()
	switch {
	case err != nil:
		return false, err
	case len(events) == 0 || events[0].GetWorkflowExecutionStartedEventAttributes() == nil:
		return false, fmt.Errorf("lockstep: the server's answer about the start of run %q is empty", run.GetRunId())
	}
	start, first := events[0].GetWorkflowExecutionStartedEventAttributes(), events[0].GetEventTime().AsTime()
	if header := start.GetHeader().GetFields()[wire.HandoverKey]; header != nil {
		handover, err := wire.DecodeHandover(header)
		if err != nil {
			return true, nil // it cannot be read, so the run may inherit
		}
		if handover.From == start.GetContinuedExecutionRunId() && handover.Started.Before(first) {
			first = handover.Started
		}
	}
	return !began.Before(first), nil
}

// succession returns the verdict on the closed run then, given the current run of its workflow.
func succession(then, now *workflowservice.DescribeWorkflowExecutionResponse) answer {
	was, is := then.GetWorkflowExecutionInfo(), now.GetWorkflowExecutionInfo()
	// The chain continues after a terminated run only if that run or an earlier one was reset.
	mayHaveHeir := then.GetWorkflowExtendedInfo().GetResetRunId() != "" || was.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED ||
		was.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
	switch {
	case !mayHaveHeir, !isOpen(now):
		return answer{verdict: closed, why: was.GetStatus().String()}
	case was.GetFirstRunId() == "" || is.GetFirstRunId() == "": // an old server
		return answer{}
	case was.GetFirstRunId() != is.GetFirstRunId():
		return answer{verdict: closed, why: was.GetStatus().String() + ", and another chain of runs began"}
	}
	return answer{verdict: inherited}
}

func isOpen(run *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return currentrun.IsOpen(run.GetWorkflowExecutionInfo().GetStatus())
}

// describe asks about a run, or about the current run if run is empty. It returns nil and no error if Temporal does not
// know the run, or if the name is not valid.
func (j *Janitor) describe(ctx context.Context, workflowID, run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := currentrun.Describe(ctx, *j.temporal.Load(), j.Namespace, workflowID, run)
	_, missing := errors.AsType[*serviceerror.NotFound](err)
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	if missing || invalid {
		return nil, nil //nolint:nilnil // there is no such run
	}
	if _, denied := errors.AsType[*serviceerror.PermissionDenied](err); denied {
		return nil, fmt.Errorf("lockstep: asking about workflows in namespace %q %w: %w", j.Namespace, errRefused, err)
	}
	return found, err
}
