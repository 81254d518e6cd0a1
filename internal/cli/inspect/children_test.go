package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// family is a Temporal service whose workflows are open, by ID. The current run of workflow "w" is "w-1", as that of a scene's steps.
type family struct {
	inspect.Frontend
	workflows map[string]*workflowservice.DescribeWorkflowExecutionResponse
	asked     map[string]int
}

func (f family) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	id := in.GetExecution().GetWorkflowId()
	f.asked[id+" "+in.GetExecution().GetRunId()]++
	found := f.workflows[id]
	if found == nil {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return found, nil
}

func (family) GetWorkflowExecutionHistoryReverse(
	context.Context, *workflowservice.GetWorkflowExecutionHistoryReverseRequest, ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryReverseResponse, error) {
	return nil, serviceerror.NewPermissionDenied("not the history", "")
}

// parentOf returns an open workflow with open child workflows.
func parentOf(children ...string) *workflowservice.DescribeWorkflowExecutionResponse {
	d := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}}
	for _, id := range children {
		d.PendingChildren = append(d.PendingChildren, &workflowpb.PendingChildExecutionInfo{WorkflowId: id, RunId: id + "-1"})
	}
	return d
}

// withActivity adds a pending activity to a workflow.
func withActivity(d *workflowservice.DescribeWorkflowExecutionResponse, a *workflowpb.PendingActivityInfo) *workflowservice.DescribeWorkflowExecutionResponse {
	d.PendingActivities = append(d.PendingActivities, a)
	return d
}

type workflowsByID map[string]*workflowservice.DescribeWorkflowExecutionResponse

// explained returns the text of Why about a party.
func (s *scene) explained(workflows workflowsByID, name string) string {
	s.Helper()
	f := family{workflows: workflows, asked: map[string]int{}}
	site := s.site()
	site.Temporal = inspect.Temporal{Service: f, Namespace: "default", NamespaceID: ns}
	why, err := site.Why(s.Context(), name)
	require.NoError(s, err)
	var b strings.Builder
	require.NoError(s, why.Print(&b))
	for run, times := range f.asked {
		require.Equal(s, 1, times, "%s: it is asked about once", run)
	}
	return b.String()
}

// A parent that waits for its child waits for no lock, so that no search of locks finds this circle. Asked about either of the two, why draws it.
func TestWhy_ChildWaitsForItsParentsLock_DrawsTheCircle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workflows workflowsByID
		arrange   func(s *scene)
		waits     string
		circle    string
	}{
		"a child": {workflowsByID{"parent": parentOf("child"), "child": parentOf()}, func(s *scene) {
			s.stepWaits("child", "", lockcore.Exclusive("1"))
		}, "child", "and waits for its child workflow child, below: a deadlock"},
		"a child of a child": {workflowsByID{"parent": parentOf("other", "middle"), "middle": parentOf("child"), "child": parentOf(), "other": parentOf()}, func(s *scene) {
			s.stepWaits("child", "", lockcore.Exclusive("1"))
		}, "child", "and waits for its child workflow middle, which waits for its child workflow child, below: a deadlock"},
		"a step of a child": {workflowsByID{"parent": parentOf("child"), "child": parentOf()}, func(s *scene) {
			s.stepWaits("child", "a", lockcore.Exclusive("1"))
		}, "child", "and waits for its child workflow child, below: a deadlock"},
		"behind another": {workflowsByID{"parent": parentOf("child"), "child": parentOf(), "other": parentOf()}, func(s *scene) {
			s.stepWaits("other", "", lockcore.Exclusive("1"))
			s.stepWaits("child", "", lockcore.Exclusive("1"))
		}, "child", "and waits for its child workflow child, below: a deadlock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.stepHolds("parent", "", lockcore.Exclusive("1"))
			s.stepEnds("parent", "1")
			c.arrange(s)
			const advice = "→ its child workflow child waits for its lock, perhaps behind others: if it waits for that workflow, neither can continue, and no search for deadlocks finds it. " +
				"Release the lock before the other workflow starts, or leave it out of that. To end it now: temporal workflow cancel --workflow-id child\n"
			for _, asked := range []string{"parent", c.waits} {
				text := s.explained(c.workflows, asked)
				require.Regexp(t, `(?m)^parent holds 1 \(exclusive\) for \S+ \S+, `+c.circle+`$`, text, asked)
				require.Regexp(t, `(?m)^ *└─ child waits for 1 `, text, asked)
				require.Contains(t, text, advice, asked)
				require.Equal(t, 1, strings.Count(text, "→"), "%s:\n%s", asked, text)
			}
		})
	}
}

// The root blocker of a workflow whose child waits for another party's lock is that party.
func TestWhy_ChildWaitsForAnother_LeadsToThatOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("parent", "", lockcore.Exclusive("1"))
	s.stepEnds("parent", "1")
	s.stepWaits("first", "", lockcore.Exclusive("1"))
	s.stepHolds("stuck", "", lockcore.Exclusive("2"))
	s.stepEnds("stuck", "2")
	s.stepWaits("child", "", lockcore.Exclusive("2"))
	workflows := workflowsByID{"first": parentOf(), "parent": parentOf("child"), "child": parentOf(), "stuck": parentOf()}
	const about = "→ it runs no activity: it waits for a timer, a signal or its next workflow task, and keeps the lock until then\n"
	const duration = ` \(exclusive\) for \S+ \S+`
	require.Regexp(t, `^first waits for 1`+duration+`, position 1

stuck holds 2`+duration+`
   workflow  Running
└─ child waits for 2`+duration+`, position 1
   └─ parent waits for its child workflow child; holds 1`+duration+`
      └─ first waits for 1`+duration+`, position 1
`+about+`$`, s.explained(workflows, "first"))
	require.Regexp(t, `^parent waits for no lock
parent holds 1`+duration+`
   workflow  Running

stuck holds 2`+duration+`
   workflow  Running
└─ child waits for 2`+duration+`, position 1
   └─ parent waits for its child workflow child
`+about+`$`, s.explained(workflows, "parent"))
}

// A parent that does something else than to wait for its child may release its lock. Two workflows that have one owner, one party in the search
// for deadlocks, wait for each other unseen too.
func TestWhy_FamilyWithoutACircle_IsNotOne(t *testing.T) {
	t.Parallel()
	running := &workflowpb.PendingActivityInfo{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, LastStartedTime: timestamppb.New(time.Now())}
	failing := parentOf("child")
	failing.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: 2}
	for name, c := range map[string]struct {
		parent *workflowservice.DescribeWorkflowExecutionResponse
		want   string
	}{
		"an activity runs":     {withActivity(parentOf("child"), running), "→ it is at work: "},
		"its task fails":       {failing, "→ its workflow task has failed 1 time: its workers' logs say why"},
		"other child":          {parentOf("other"), "→ it waits for its child workflow other: lockstep why other --database d\n"},
		"several children":     {parentOf("other", "-x", "y"), "→ it waits for its child workflow other and 2 more: lockstep why other --database d\n"},
		"a child of that name": {parentOf("child/1"), "→ it waits for its child workflow child/1: lockstep why child/1 --database d\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.stepHolds("parent", "", lockcore.Exclusive("1"))
			s.stepEnds("parent", "1")
			s.stepWaits("child", "", lockcore.Exclusive("1"))
			workflows := workflowsByID{"parent": c.parent, "child": parentOf(), "other": parentOf()}
			for _, asked := range []string{"parent", "child"} {
				text := s.explained(workflows, asked)
				require.Contains(t, text, c.want, asked)
				require.NotContains(t, text, "deadlock", asked)
			}
		})
	}
	s := newScene(t)
	s.stepHolds("parent", "", lockcore.Exclusive("1"))
	s.stepWaits("child", "", lockcore.Exclusive("1"), func(r *lockcore.StepRequest) { r.Owner = ns + "/parent" })
	text := s.explained(workflowsByID{"parent": parentOf(), "child": parentOf()}, "child")
	require.Contains(t, text, "→ workflow child, which has the same owner, waits for its lock, perhaps behind others: if it waits for that workflow, ")
}

// Asked about a stuck workflow, why says of it what it says of it to the parties that wait for its lock, and as much if it has none.
func TestWhy_StuckWorkflow_IsExplainedLikeToItsWaiter(t *testing.T) {
	t.Parallel()
	long := timestamppb.New(time.Now().Add(-time.Minute))
	task := func(p *workflowpb.PendingWorkflowTaskInfo) *workflowservice.DescribeWorkflowExecutionResponse {
		d := parentOf()
		d.PendingWorkflowTask = p
		return d
	}
	for name, c := range map[string]struct {
		stuck *workflowservice.DescribeWorkflowExecutionResponse
		want  string
	}{
		"its task panics": {task(&workflowpb.PendingWorkflowTaskInfo{Attempt: 4}), "its workflow task has failed 3 times: its workers' logs say why"},
		"no worker for its task": {task(&workflowpb.PendingWorkflowTaskInfo{Attempt: 1, State: enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED, ScheduledTime: long}),
			"its workflow task was scheduled 1 min .*ago and no worker has taken it: is one running for its task queue\\?"},
		"its worker has no plugin": {withActivity(parentOf(), &workflowpb.PendingActivityInfo{
			ActivityType: nameOf("lockstep.Acquire"), Attempt: 3, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(time.Minute)),
			LastFailure: &failurepb.Failure{Message: "unable to find activityType=lockstep.Acquire. Supported types: [Debit]"},
		}), "its activity lockstep.Acquire has failed \\(unable to find activityType=lockstep.Acquire. Supported types: \\[Debit\\]\\): a worker of its task queue does not have the plugin, attempt 3 comes in .*"},
		"no worker for its activity": {withActivity(parentOf(), &workflowpb.PendingActivityInfo{ActivityType: nameOf("Debit"), ScheduledTime: long}),
			"its activity Debit was scheduled 1 min .*ago and no worker has taken it: is one running for its task queue\\?"},
		"no worker for its wait": {withActivity(parentOf(), &workflowpb.PendingActivityInfo{ActivityType: nameOf("lockstep.Wait"), ScheduledTime: long}),
			"its activity lockstep.Wait was scheduled 1 min .*ago and no worker has taken it: is one running for its task queue\\?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			workflows := workflowsByID{"stuck": c.stuck, "waiter": parentOf()}
			without := s.explained(workflows, "stuck")
			require.Contains(t, without, "stuck holds no lock and waits for none\n   workflow  Running\n")
			require.Regexp(t, "→ "+c.want+"\n", without)
			s.stepHolds("stuck", "", lockcore.Exclusive("1"))
			s.stepEnds("stuck", "1")
			s.stepWaits("waiter", "", lockcore.Exclusive("1"))
			for _, asked := range []string{"stuck", "waiter"} {
				require.Regexp(t, "→ "+c.want+"\n", s.explained(workflows, asked), asked)
			}
		})
	}
}

// A workflow that no party blocks and that still waits is overdue: the reason is in the workflow.
func TestWhy_NothingBlocksTheWait_ExplainsTheWorkflow(t *testing.T) {
	t.Parallel()
	me := parentOf()
	me.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: 3}
	site := newScene(t).site()
	site.Temporal = inspect.Temporal{Service: family{workflows: workflowsByID{"me": me}, asked: map[string]int{}}, Namespace: "default", NamespaceID: ns}
	waits := inspect.Entry{Party: inspect.Party{Name: "me", Workflow: "me", Namespace: ns, Owner: ns + "/me"}, Status: lockcore.Status{
		Resource: "1", Position: 1, Overdue: true, Holder: lockcore.Holder{LockID: ns + "/me", Run: "me-1", State: lockcore.StateWaiting},
	}}
	why, err := site.WhyIn(t.Context(), "me", []inspect.Resource{{Name: "1", Waiters: []inspect.Entry{waits}}})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, why.Print(&b))
	require.Regexp(t, `^me waits for 1 .*\n   workflow  Running\n→ its workflow task has failed 2 times: its workers' logs say why\n$`, b.String())
}

// A wrong --namespace is answered with the namespace in which a workflow of that name has locks.
func TestWhy_WorkflowOfAnotherNamespace_IsPointedOut(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("me", "", lockcore.Exclusive("1"))
	site := s.site()
	site.Temporal = inspect.Temporal{Service: family{asked: map[string]int{}}, Namespace: "other", NamespaceID: "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60"}
	why, err := site.Why(t.Context(), "me")
	require.NoError(t, err)
	require.False(t, why.Known())
	require.Equal(t, ", but a workflow of that name does in the namespace with the ID "+ns+": is --namespace right?", why.Temporal())
	why, err = site.Why(t.Context(), "nobody")
	require.NoError(t, err)
	require.Equal(t, ", and Temporal knows no such workflow", why.Temporal())
}

func nameOf(activity string) *commonpb.ActivityType { return &commonpb.ActivityType{Name: activity} }

// Its worker has the locks in another database or collection than this command.
func TestWhy_WaitIsInAnotherCollection_SaysSo(t *testing.T) {
	t.Parallel()
	wait := &workflowpb.PendingActivityInfo{
		ActivityType: nameOf("lockstep.Wait"), Attempt: 3, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(time.Minute)),
	}
	text := newScene(t).explained(workflowsByID{"me": withActivity(parentOf(), wait)}, "me")
	require.Contains(t, text, "→ it waits for a lock that is not in this collection: name the one of its workers by --database and --collection\n")
}

// Two holders of a resource wait for child workflows, and not for locks. Both are listed between the root blocker and the resource's waiter.
func TestGroups_HoldersWaitForChildren_ListEach(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("root", "", lockcore.Exclusive("1"))
	for _, parent := range []string{"parent-1", "parent-2"} {
		s.stepHolds(parent, "", lockcore.Shared("2"))
		s.stepEnds(parent, "2")
		s.stepWaits("child of "+parent, "", lockcore.Exclusive("1"))
	}
	s.stepWaits("waiter", "", lockcore.Exclusive("2"))
	site := s.site()
	site.Temporal = inspect.Temporal{Namespace: "default", NamespaceID: ns, Service: family{asked: map[string]int{}, workflows: workflowsByID{
		"root": parentOf(), "waiter": parentOf(), "parent-1": parentOf("child of parent-1"), "parent-2": parentOf("child of parent-2"),
		"child of parent-1": parentOf(), "child of parent-2": parentOf(),
	}}}
	resources, err := site.Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	why, err := site.WhyIn(t.Context(), "waiter", resources)
	require.NoError(t, err)
	require.Equal(t, []string{"child of parent-1", "parent-1", "waiter", "child of parent-2", "parent-2", "and 1 elsewhere"}, listed(site.Groups(why.Roots)))

	i := slices.IndexFunc(resources, func(r inspect.Resource) bool { return r.Name == "2" })
	holders, above, err := site.HoldersIn(t.Context(), &resources[i], resources)
	require.NoError(t, err)
	require.Len(t, holders, 2)
	for _, h := range holders {
		require.Empty(t, h.Advice, "%s is not in the way by itself", h.Party.Name)
	}
	require.Equal(t, []string{"child of parent-1", "parent-1", "child of parent-2", "parent-2"}, listed(site.Groups(above)))
}

// listed returns the names of what groups list below their root blockers.
func listed(groups []inspect.Group) (names []string) {
	var add func(nodes []*inspect.Node)
	add = func(nodes []*inspect.Node) {
		for _, n := range nodes {
			names = append(names, n.Party.Name)
			add(n.Waiting)
			if n.Elsewhere > 0 {
				names = append(names, fmt.Sprintf("and %d elsewhere", n.Elsewhere))
			}
		}
	}
	for _, g := range groups {
		add(g.Waiting)
	}
	return names
}
