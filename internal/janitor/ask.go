package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/time/rate"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// askTimeout bounds one question. The client repeats it meanwhile if the server has no capacity.
const askTimeout = 10 * time.Second

// verdict says what is known of a run.
type verdict int

const (
	// The zero verdict: Temporal does not know the run, or cannot say whether it has an heir.
	_ verdict = iota
	// open: the run is open.
	open
	// inherited: the run is closed, and its heir is open.
	inherited
	// closed: the run is closed, and has no heir.
	closed
)

// answer is Temporal's.
type answer struct {
	verdict
	// settled says, of an open run, that no workflow task is outstanding: what is not among the
	// pending activities has ended. A run that is paused is never settled.
	settled bool
	pending []pendingActivity
	// why says how a closed run ended.
	why string
	// continued says, of a run with an heir, that it continued as new: the heir inherits only what the
	// run has handed over.
	continued bool
}

// pendingActivity is one that runs, or waits for its next attempt.
type pendingActivity struct{ id, activityType string }

// isOver reports whether the step whose entry it is has ended without giving the entry up. The wait
// of a step is named by the number of its scheduling, which is in the entry's order. The step
// itself is told by its lock ID, in scope step. One of the workflow's lock ID may be any activity.
func (a *answer) isOver(e *lockcore.Status) bool {
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

// mayAwait reports whether the activity is the wait of a scheduling, or no wait.
func (p pendingActivity) mayAwait(order party.Order) bool {
	return p.activityType != wire.ActivityWait || p.id == wire.WaitID(order.Schedule)
}

// mayBe reports whether the activity may be an attempt of a step, or a wait. The step is named by a
// guard, as number and type, or by a rule, as ID and time.
func (p pendingActivity) mayBe(step string) bool {
	_, guarded, _ := strings.Cut(step, "/")
	ruled, _, _ := strings.Cut(step, "@")
	return p.activityType == wire.ActivityWait || wire.IsHash(step) || guarded == p.activityType || ruled == p.id
}

// asker answers questions about runs. The error is a *RefusedError if it never will.
type asker interface {
	ask(ctx context.Context, workflowID, run string) (answer, error)
}

// RefusedError says that Temporal does not let the janitor ask about workflows.
type RefusedError struct {
	// Namespace is the name.
	Namespace string
	// Err is Temporal's answer.
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("lockstep: asking about workflows in namespace %q is refused, and needs credentials that allow DescribeWorkflowExecution: %v",
		e.Namespace, e.Err)
}

// Unwrap returns Temporal's answer.
func (e *RefusedError) Unwrap() error { return e.Err }

// temporalAsker asks a Temporal server.
type temporalAsker struct {
	service   currentrun.Describer
	namespace string
	pace      *rate.Limiter
}

// ask asks about the run, and if it is closed about the workflow's current run. The round paces the
// first question.
func (t temporalAsker) ask(ctx context.Context, workflowID, run string) (answer, error) {
	then, err := t.describe(ctx, workflowID, run)
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
	if err := t.pace.Wait(ctx); err != nil {
		return answer{}, err
	}
	now, err := t.describe(ctx, workflowID, "")
	if now == nil {
		return answer{}, err
	}
	return succession(then, now), nil
}

// succession is the verdict on a closed run, if now is the current run of its workflow.
func succession(then, now *workflowservice.DescribeWorkflowExecutionResponse) answer {
	was, is := then.GetWorkflowExecutionInfo(), now.GetWorkflowExecutionInfo()
	gaveWay := wasReset(then) || was.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
	switch {
	case !gaveWay, !isOpen(now):
		return answer{verdict: closed, why: was.GetStatus().String()}
	case was.GetFirstRunId() == "" || is.GetFirstRunId() == "": // the server is too old to say
		return answer{}
	case was.GetFirstRunId() != is.GetFirstRunId():
		return answer{verdict: closed, why: was.GetStatus().String() + ", and another chain of runs began"}
	}
	return answer{verdict: inherited, continued: !wasReset(then)}
}

// wasReset reports whether a closed run was reset, if its chain goes on: after a run that was
// terminated it does so only if that one was reset, or an earlier one.
func wasReset(run *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return run.GetWorkflowExtendedInfo().GetResetRunId() != "" ||
		run.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
}

// isOpen reports whether a run is open. One in a state that did not exist when this was written is.
func isOpen(run *workflowservice.DescribeWorkflowExecutionResponse) bool {
	status := run.GetWorkflowExecutionInfo().GetStatus()
	return !currentrun.HasEnded(status) && status != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
}

// describe asks about a run, or about the current one if run is empty. It returns nil and no error
// if Temporal does not know the run, or if there can be none of that name.
func (t temporalAsker) describe(ctx context.Context, workflowID, run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := t.service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: t.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run},
	})
	var (
		missing *serviceerror.NotFound
		invalid *serviceerror.InvalidArgument
		denied  *serviceerror.PermissionDenied
	)
	switch {
	case errors.As(err, &missing), errors.As(err, &invalid):
		return nil, nil //nolint:nilnil // there is none
	case errors.As(err, &denied):
		return nil, &RefusedError{Namespace: t.namespace, Err: err}
	case err != nil:
		return nil, err
	case found.GetWorkflowExecutionInfo() == nil:
		return nil, fmt.Errorf("lockstep: the server's answer about workflow %q is empty", workflowID)
	}
	return found, nil
}
