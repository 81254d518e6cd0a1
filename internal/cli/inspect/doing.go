package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Doing is what a workflow run does, as Temporal tells it.
type Doing struct {
	RunID string `json:"runId"`
	// Status is "Running", "Paused", "Completed" and so on; "unknown" if Temporal does not know the
	// run, or was not asked.
	Status     string     `json:"status"`
	Activities []Activity `json:"activities,omitempty"`
	// TaskFailures says how often its workflow task has failed in a row.
	TaskFailures int32 `json:"taskFailures,omitempty"`
	Children     int   `json:"children,omitempty"`
	// open says that the run is not over. heir, of one that is, is the workflow's run that is open.
	open bool
	heir string
}

// Activity is one that is pending.
type Activity struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// State is "running", "in back-off", "scheduled" or "paused".
	State   string `json:"state"`
	Attempt int32  `json:"attempt"`
	// Since is when it was started, or scheduled. Next is when its next attempt comes, if it is in
	// back-off.
	Since time.Time `json:"since,omitzero"`
	Next  time.Time `json:"next,omitzero"`
	// Worker is the identity of the last worker, and Failure what its last attempt failed with.
	Worker  string `json:"worker,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Waits says that it is the wait for a lock.
	Waits bool `json:"waits,omitempty"`
}

// ask asks Temporal about a run of a workflow, or about its current one; of a run that is over also
// about that one.
func (s *Site) ask(ctx context.Context, workflowID, run string) (*Doing, error) {
	d, err := describe(ctx, s.Temporal.Service, s.Temporal.Namespace, workflowID, run)
	if err != nil || d.open || run == "" {
		return s.discreet(d), err
	}
	current, err := describe(ctx, s.Temporal.Service, s.Temporal.Namespace, workflowID, "")
	if err == nil && current.open {
		d.heir = current.RunID
	}
	return s.discreet(d), err
}

// discreet leaves out what may name resources that are hidden: a failure to get a lock does.
func (s *Site) discreet(d *Doing) *Doing {
	for i := 0; d != nil && s.Discreet && i < len(d.Activities); i++ {
		d.Activities[i].Failure = ""
	}
	return d
}

func describe(ctx context.Context, service currentrun.Describer, namespace, workflowID, run string) (*Doing, error) {
	found, err := service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run},
	})
	var missing *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	switch {
	case errors.As(err, &missing), errors.As(err, &invalid):
		return &Doing{RunID: run, Status: Unknown}, nil
	case err != nil:
		return nil, fmt.Errorf("lockstep: ask Temporal about workflow %q: %w", workflowID, err)
	}
	info := found.GetWorkflowExecutionInfo()
	d := &Doing{
		RunID: info.GetExecution().GetRunId(), Status: info.GetStatus().String(), Children: len(found.GetPendingChildren()),
		open: !currentrun.HasEnded(info.GetStatus()) && info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
	}
	if task := found.GetPendingWorkflowTask(); task.GetAttempt() > 1 {
		d.TaskFailures = task.GetAttempt() - 1
	}
	for _, p := range found.GetPendingActivities() {
		d.Activities = append(d.Activities, activityOf(p))
	}
	return d, nil
}

func activityOf(p *workflowpb.PendingActivityInfo) Activity {
	a := Activity{
		ID: p.GetActivityId(), Type: p.GetActivityType().GetName(), Attempt: p.GetAttempt(), Since: at(p.GetScheduledTime()), Worker: p.GetLastWorkerIdentity(),
		Failure: firstLine(p.GetLastFailure().GetMessage()), State: "scheduled",
	}
	a.Waits = a.Type == wire.ActivityWait
	switch {
	case p.GetPaused():
		a.State = "paused"
	case p.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED || p.GetState() == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED:
		a.State, a.Since = "running", at(p.GetLastStartedTime())
	case p.GetAttempt() > 1 && at(p.GetNextAttemptScheduleTime()).After(time.Now()):
		a.State, a.Next = "in back-off", at(p.GetNextAttemptScheduleTime())
	}
	return a
}

func at(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return wire.Cut(s, 200)
}
