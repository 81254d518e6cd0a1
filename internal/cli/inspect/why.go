package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Why explains why a party waits.
type Why struct {
	Party Party `json:"party"`
	// Waits and Holds are the party's own. If it waits, Holds has only the ones that others wait for or that are kept.
	Waits []Entry `json:"waits,omitempty"`
	Holds []Entry `json:"holds,omitempty"`
	// Lost has the holds that it is known to have lost.
	Lost []Loss `json:"lost,omitempty"`
	// Missed has the losses of the last 24 hours that its sagas found out only after they had committed.
	Missed []Missed `json:"missed,omitempty"`
	// Doing describes its workflow, if it is one.
	Doing *Doing `json:"doing,omitempty"`
	// Advice is one line on what to do about a party that no other party blocks, as the parties see it that wait for its locks.
	Advice string `json:"advice,omitempty"`
	// Roots are the root blockers, with their waiters down to the party.
	Roots []*Node `json:"roots,omitempty"`
	// elsewhere is the ID of another namespace, a workflow of which has the name that was asked for.
	elsewhere string
}

// Known reports whether the party holds a lock or waits for one, or is a workflow that Temporal knows.
func (w *Why) Known() bool {
	return len(w.Waits)+len(w.Holds)+len(w.Lost)+len(w.Missed) > 0 || (w.Doing != nil && w.Doing.Status != Unknown)
}

// Temporal returns Temporal's answer about a party that is not [Why.Known], as the end of a sentence.
func (w *Why) Temporal() string {
	switch {
	case w.elsewhere != "":
		return ", but a workflow of that name does in the namespace with the ID " + w.elsewhere + ": is --namespace right?"
	case w.Doing == nil:
		return "; Temporal was not asked"
	case w.Doing.Reason != "":
		return "; Temporal gave no answer about such a workflow: " + w.Doing.Reason
	}
	return ", and Temporal knows no such workflow"
}

// Why explains why a workflow, or another owner, waits. A name that is not known gets no Waits and no Holds.
func (s *Site) Why(ctx context.Context, name string) (Why, error) {
	why, err := s.whyNamed(ctx, name)
	if err != nil {
		return Why{}, err
	}
	// An index finds the resources with waiters. All resources are read only for a party that does not wait.
	var resources []Resource
	asked := why.Party
	for _, contended := range []bool{true, false} {
		if resources, err = s.Resources(ctx, lockcore.Filter{Contended: contended}); err != nil {
			return Why{}, err
		}
		why.fill(asked, resources)
		if len(why.Waits) > 0 {
			break
		}
	}
	losses, err := s.Losses(ctx, lockcore.Filter{Contended: len(why.Waits) > 0})
	if err != nil {
		return Why{}, err
	}
	missed, err := s.Missed(ctx)
	if err != nil {
		return Why{}, err
	}
	why.addMissed(why.Party, missed)
	if why.addLosses(why.Party, losses); !why.Known() { // the plain Go party of the same name
		why.addLosses(Party{Owner: name}, losses)
		why.addMissed(Party{Owner: name}, missed)
	}
	return why, s.explain(ctx, &why, resources, maxPaths+maxDescribed)
}

// maxDescribed is the number of workflows that WhyIn asks Temporal about.
const maxDescribed = 10

// WhyIn is [Site.Why] in a complete listing of [Site.Resources], which many viewers may share. It reads no locks. It
// asks Temporal about the first ten workflows that it meets on the way to the root blockers; the others have neither Doing nor Advice.
func (s *Site) WhyIn(ctx context.Context, name string, resources []Resource) (Why, error) {
	why, err := s.whyNamed(ctx, name)
	if err != nil {
		return Why{}, err
	}
	why.fill(why.Party, resources)
	return why, s.explain(ctx, &why, resources, maxDescribed)
}

// explain finds the root blockers, and sets the advice about them, or about a party that no other blocks. It asks Temporal about limit
// workflow runs at most.
func (s *Site) explain(ctx context.Context, why *Why, resources []Resource, limit int) (err error) {
	g := graphOf(resources)
	g.asker = s.newAsker(limit)
	if why.Doing != nil {
		g.asker.known[[2]string{why.Party.Workflow, ""}] = why.Doing
	}
	if len(why.Waits) > 0 {
		why.Roots, err = g.above(ctx, why.Waits)
	} else {
		why.Roots, err = g.aboveChildren(ctx, why.Party)
	}
	if err != nil {
		return err
	}
	if len(why.Roots) == 0 {
		why.Advice = s.adviseSelf(why, resources)
	}
	return g.asker.describeRoots(ctx, why.Roots)
}

// whyNamed begins a Why with the party and its workflow.
func (s *Site) whyNamed(ctx context.Context, name string) (why Why, err error) {
	why.Party = Party{Name: name, Workflow: name, Owner: name}
	if s.Temporal.Service != nil {
		run := wire.Run{Namespace: s.Temporal.NamespaceID, WorkflowID: name}
		why.Party = Party{Name: name, Workflow: name, Namespace: run.Namespace, Owner: run.Owner()}
		why.Doing, err = s.ask(ctx, name, "")
	}
	return why, err
}

// fill sets Waits and Holds to the entries of the party or, if it has none, of the activities without a workflow with that ID or name, or of the
// plain Go party of the same name.
func (w *Why) fill(asked Party, resources []Resource) {
	for _, p := range []Party{asked, {Activity: asked.Name, Namespace: asked.Namespace}, {Name: asked.Name, Owner: asked.Name}} {
		w.Waits, w.Holds = nil, nil
		for i := range resources {
			for _, e := range slices.Concat(resources[i].Holders, resources[i].Waiters) {
				switch {
				case !e.isOf(p):
				case e.State == lockcore.StateWaiting:
					w.Waits = append(w.Waits, e)
				default:
					w.Holds = append(w.Holds, e)
				}
			}
		}
		if len(w.Waits)+len(w.Holds) > 0 {
			w.Party = p
			if e := slices.Concat(w.Waits, w.Holds)[0]; e.Party.Workflow == "" {
				w.Party, w.Doing = e.Party, nil
			}
			break
		}
	}
	oldestFirst := func(a, b Entry) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Resource, b.Resource)) }
	slices.SortStableFunc(w.Waits, oldestFirst)
	slices.SortStableFunc(w.Holds, oldestFirst)
	if len(w.Waits)+len(w.Holds) == 0 {
		w.findElsewhere(resources)
	}
}

// findElsewhere looks for a workflow of another namespace with the name of the party.
func (w *Why) findElsewhere(resources []Resource) {
	for i := range resources {
		for _, e := range slices.Concat(resources[i].Holders, resources[i].Waiters) {
			if e.Party.Workflow == w.Party.Name {
				w.elsewhere = e.Party.Namespace
			}
		}
	}
}

// addLosses adds the losses of a party, and of the lock IDs in Waits and Holds.
func (w *Why) addLosses(p Party, losses []Loss) {
	for _, l := range losses {
		used := func(e Entry) bool { return e.LockID == l.Party.Owner }
		if l.Party.is(p) || slices.ContainsFunc(slices.Concat(w.Waits, w.Holds), used) {
			w.Lost = append(w.Lost, l)
		}
	}
}

// addMissed adds the losses that sagas of a party found out only after they had committed.
func (w *Why) addMissed(p Party, missed []Missed) {
	for _, m := range missed {
		if m.Party.is(p) {
			w.Missed = append(w.Missed, m)
		}
	}
}

// isOf reports whether a party owns an entry.
func (e *Entry) isOf(p Party) bool { return e.Party.is(p) || e.LockID == p.Owner }

// is reports whether two parties are the same. A workflow or an activity without a namespace matches those of every namespace.
func (p Party) is(other Party) bool {
	inNamespace := other.Namespace == "" || p.Namespace == other.Namespace
	isWorkflow := other.Workflow != "" && p.Workflow == other.Workflow
	isActivity := other.Activity != "" && (p.Activity == other.Activity || p.Name == other.Activity)
	return inNamespace && (isWorkflow || isActivity) || p.Owner == other.Owner
}

// describeRoots sets Doing and Advice of root blockers. Workflows about which it may not ask get no advice.
func (a *asker) describeRoots(ctx context.Context, roots []*Node) (err error) {
	for _, root := range roots {
		run := ""
		if root.Hold != nil {
			run = root.Hold.Run
		}
		if root.Doing, err = a.ask(ctx, root.Party, run); err != nil {
			return err
		}
		if root.Doing != nil || !a.canAsk(root.Party) {
			root.Advice = a.site.advise(root) + root.earlierAttempt()
		}
	}
	return nil
}

// Doing describes a workflow run, as Temporal reports it.
type Doing struct {
	RunID string `json:"runId"`
	// Type is its workflow type.
	Type string `json:"type,omitempty"`
	// Status is "Running", "Paused", "Completed" and so on, or "unknown" if Temporal does not know the run or gave no answer.
	Status string `json:"status"`
	// Reason is the reason why Temporal gave no answer about this run.
	Reason     string     `json:"reason,omitempty"`
	Activities []Activity `json:"activities,omitempty"`
	// TaskFailures counts the failures of its workflow task in a row.
	TaskFailures int32 `json:"taskFailures,omitempty"`
	// TaskFailure is the message of the first of them. Describe leaves it empty.
	TaskFailure string `json:"taskFailure,omitempty"`
	Children    int    `json:"children,omitempty"`
	// open is set while the run is open. Otherwise heir is the workflow's open run, if it has one.
	open bool
	heir string
	// children are the open child workflows.
	children []child
	// taskSince is the time since which its workflow task waits for a worker; zero if none does.
	taskSince time.Time
}

// Open reports whether the run is open.
func (d *Doing) Open() bool { return d.open }

// Activity is a pending activity.
type Activity struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// State is "running", "in back-off", "scheduled" or "paused".
	State   string `json:"state"`
	Attempt int32  `json:"attempt"`
	// Since is the time at which it was started or scheduled. Next is the time of its next attempt in back-off.
	Since time.Time `json:"since,omitzero"`
	Next  time.Time `json:"next,omitzero"`
	// Worker is the identity of the last worker, Failure the last attempt's failure.
	Worker  string `json:"worker,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Waits is set if it waits for a lock.
	Waits bool `json:"waits,omitempty"`
	// maxAttempts is the limit of its retry policy, 0 without one. isBusy is set if its last attempt did not get a lock.
	maxAttempts int32
	isBusy      bool
}

// ask is Describe, which also finds the failure of the workflow task and the run that continues a closed one.
func (s *Site) ask(ctx context.Context, workflowID, run string) (*Doing, error) {
	d, err := s.Describe(ctx, workflowID, run)
	if err == nil && d.TaskFailures > 0 {
		d.TaskFailure = s.taskFailure(ctx, workflowID, d.RunID)
	}
	if err != nil || d.open || run == "" {
		return d, err
	}
	current, err := s.Describe(ctx, workflowID, "")
	if err == nil && current.open {
		d.heir = current.RunID
	}
	return d, err
}

// Describe asks Temporal about a run of a workflow, or about the current run if run is empty. It fails only if Temporal
// cannot be reached: a question that is refused, such as one about an ID that no client can send, means nothing for others.
func (s *Site) Describe(ctx context.Context, workflowID, run string) (*Doing, error) {
	found, err := s.Temporal.Service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: s.Temporal.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run},
	})
	var missing *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	switch {
	case errors.As(err, &missing), errors.As(err, &invalid):
		return &Doing{RunID: run, Status: Unknown}, nil
	case ctx.Err() != nil || errors.As(err, &unavailable) || errors.As(err, &late):
		return nil, fmt.Errorf("lockstep: ask Temporal about workflow %q: %w", workflowID, err)
	case err != nil:
		return &Doing{RunID: run, Status: Unknown, Reason: err.Error()}, nil //nolint:nilerr // the reason is a part of the answer
	}
	info := found.GetWorkflowExecutionInfo()
	d := &Doing{
		RunID: info.GetExecution().GetRunId(), Type: info.GetType().GetName(), Status: info.GetStatus().String(), Children: len(found.GetPendingChildren()),
		open: currentrun.IsOpen(info.GetStatus()),
	}
	task := found.GetPendingWorkflowTask()
	if attempt := task.GetAttempt(); attempt > 1 {
		d.TaskFailures = attempt - 1
	}
	if task.GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED {
		d.taskSince = timeOf(task.GetScheduledTime())
	}
	for _, c := range found.GetPendingChildren() {
		d.children = append(d.children, child{c.GetWorkflowId(), c.GetRunId()})
	}
	for _, p := range found.GetPendingActivities() {
		a := activityOf(p)
		if s.Discreet {
			a.Failure = "" // a failure to get a lock names the resource
		}
		d.Activities = append(d.Activities, a)
	}
	return d, nil
}

// taskFailure returns the message of the failure with which the last workflow task in a run's history ended. Temporal
// records only the first of several failures in a row. It returns the empty string if the history cannot be read.
func (s *Site) taskFailure(ctx context.Context, workflowID, run string) string {
	if s.Discreet {
		return ""
	}
	last, err := s.Temporal.Service.GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: s.Temporal.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run}, MaximumPageSize: 20,
	})
	if err != nil {
		return "" // without permission for it, the rest is still known
	}
	for _, e := range last.GetHistory().GetEvents() {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			return firstLine(e.GetWorkflowTaskFailedEventAttributes().GetFailure())
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			return ""
		}
	}
	return ""
}

// firstLine returns the first line of a failure's message, shortened.
func firstLine(f *failurepb.Failure) string {
	line, _, _ := strings.Cut(f.GetMessage(), "\n")
	return wire.Cut(line, 200)
}

func activityOf(p *workflowpb.PendingActivityInfo) Activity {
	a := Activity{
		ID: p.GetActivityId(), Type: p.GetActivityType().GetName(), Attempt: p.GetAttempt(), Since: timeOf(p.GetScheduledTime()), State: "scheduled",
		Worker: p.GetLastWorkerIdentity(), Failure: firstLine(p.GetLastFailure()), Waits: p.GetActivityType().GetName() == wire.ActivityWait,
		maxAttempts: p.GetMaximumAttempts(), isBusy: p.GetLastFailure().GetApplicationFailureInfo().GetType() == wire.FailureBusy,
	}
	next := timeOf(p.GetNextAttemptScheduleTime())
	switch {
	case p.GetPaused():
		a.State = "paused"
	case p.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED || p.GetState() == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED:
		a.State, a.Since = "running", timeOf(p.GetLastStartedTime())
	case p.GetAttempt() > 1 && next.After(time.Now()):
		a.State, a.Next = "in back-off", next
	}
	return a
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
