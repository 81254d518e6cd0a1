package inspect

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Commands in the advice have the flags of the site. The advice promises that a lock ends by itself only if it does.
func TestAdvise_RootBlocker_ByStateOfItsWorkflow(t *testing.T) {
	t.Parallel()
	site := &Site{Temporal: Temporal{Namespace: "prod"}, Flags: []string{"--database", "d"}}
	step := func(change func(*Entry)) *Entry {
		e := &Entry{endNow: "lockstep release --now r w", Status: lockcore.Status{Holder: lockcore.Holder{
			State: lockcore.StateHolding, Kept: true, ExpiresIn: time.Hour,
		}, Running: []lockcore.Running{{Part: "1/Debit", Silent: 2 * time.Second, ExpiresIn: 28 * time.Second}}}}
		change(e)
		return e
	}
	asIs := func(*Entry) {}
	silent := func(e *Entry) {
		e.Running[0].Silent, e.Running[0].ExpiresIn = 22*time.Second, 8*time.Second
	}
	ofAStep := func(e *Entry) { e.Kept, e.ExpiresIn = false, 8*time.Second; silent(e) }
	at := func(a Activity) *Doing {
		a.Type, a.ID, a.Attempt, a.Since, a.Worker = "Debit", "7", 3, time.Now().Add(-time.Minute), "worker-2"
		return &Doing{Status: "Running", open: true, Activities: []Activity{{Waits: true}, a}}
	}
	for name, c := range map[string]struct {
		hold  *Entry
		doing *Doing
		want  string
	}{
		"at work":                  {step(asIs), at(Activity{State: "running"}), "it is at work: Debit has been running for 1 min"},
		"its worker is silent":     {step(silent), at(Activity{State: "running"}), "nothing was heard of its worker worker-2 for 22 s: if that is dead, the workflow continues when the activity's timeout has ended that attempt, and keeps the lock until then; or end it: lockstep release --now r w"},
		"a step's is":              {step(ofAStep), at(Activity{State: "running"}), "nothing was heard of its worker worker-2 for 22 s: if that is dead, its lock ends in 8 s by itself, or now: lockstep release --now r w"},
		"paused":                   {step(asIs), at(Activity{State: "paused"}), "its activity Debit is paused: temporal activity unpause --workflow-id w --activity-id 7 --namespace prod"},
		"its workflow is paused":   {step(asIs), &Doing{Status: "Paused", open: true}, "its workflow is paused: temporal workflow unpause --workflow-id w --namespace prod"},
		"scheduled":                {step(asIs), at(Activity{State: "scheduled"}), "its activity Debit was scheduled 1 min ago and no worker has taken it: is one running for its task queue?"},
		"failed":                   {step(asIs), at(Activity{State: "in back-off", Next: time.Now().Add(90 * time.Second), Failure: "no"}), "its activity Debit has failed (no), attempt 3 comes in 1 min 30 s"},
		"failed, and hidden":       {step(asIs), at(Activity{State: "in back-off", Next: time.Now().Add(90 * time.Second)}), "its activity Debit has failed, attempt 3 comes in 1 min 30 s"},
		"its task fails":           {step(asIs), &Doing{Status: "Running", open: true, TaskFailures: 2, TaskFailure: "no such account"}, "its workflow task has failed 2 times: no such account"},
		"its task is too slow":     {step(asIs), &Doing{Status: "Running", open: true, TaskFailures: 2}, "its workflow task has failed 2 times: its workers' logs say why"},
		"over":                     {step(asIs), &Doing{Status: "Failed"}, "its run is over (Failed): a janitor releases its locks within a minute; lockstep janitor --once --namespace prod --database d does now"},
		"over, with an heir":       {step(asIs), &Doing{Status: "ContinuedAsNew", heir: "run-2"}, "its run is over (ContinuedAsNew), and run run-2 continues it: that takes over the locks that it needs, and a janitor releases the rest"},
		"over, in a step":          {step(ofAStep), &Doing{Status: "TimedOut"}, "its run is over (TimedOut), and one of its steps may still work: its lock ends in 8 s by itself unless it is renewed; if it is known to be dead: lockstep release --now r w"},
		"not known":                {step(asIs), &Doing{Status: Unknown}, "Temporal does not know this workflow run; if it is known to be dead: lockstep release --now r w"},
		"no longer renewed":        {step(func(e *Entry) { e.ExpiresIn = 0 }), at(Activity{State: "running"}), "it has expired: any party may acquire it"},
		"just scheduled":           {step(asIs), &Doing{Status: "Running", open: true, Activities: []Activity{{Type: "Debit", State: "scheduled", Since: time.Now().Add(-2 * time.Second)}}}, "its activity Debit was scheduled 2 s ago and waits for a worker"},
		"over, in an endless step": {step(func(e *Entry) { e.Kept, e.ExpiresIn = false, lockcore.Forever }), &Doing{Status: "TimedOut"}, "its run is over (TimedOut), and one of its steps may still work: its lock ends when it is released; if it is known to be dead: lockstep release --now r w"},
		"an endless step is silent": {step(func(e *Entry) {
			e.Kept = false
			e.Running[0].Silent, e.Running[0].ExpiresIn = 2*time.Minute, lockcore.Forever
		}), at(Activity{State: "running"}), "nothing was heard of its worker worker-2 for 2 min: if that is dead, its lock ends when it is released, or now: lockstep release --now r w"},
		"an endless part drains": {step(func(e *Entry) { e.State, e.ExpiresIn = lockcore.StateDraining, lockcore.Forever }), nil, "a part of it was cut off and may still work: it keeps others out until it leaves; if it is known to be dead: lockstep release --now r w"},
		"a part was cut off":     {step(func(e *Entry) { e.State, e.ExpiresIn = lockcore.StateDraining, 8*time.Second }), nil, "a part of it was cut off and may still work: it keeps others out for another 8 s at most; if it is known to be dead: lockstep release --now r w"},
	} {
		require.Equal(t, c.want, site.advise(&Node{Party: Party{Name: "w", Workflow: "w"}, Hold: c.hold, Doing: c.doing}), name)
	}
}

// failing is a Temporal service with one workflow, which has activities in all states and a workflow task that fails. It
// answers with a history that ends with the types of events, or with an error if there are none.
type failing struct {
	Frontend
	last []enumspb.EventType
}

func (f failing) GetWorkflowExecutionHistoryReverse(
	context.Context, *workflowservice.GetWorkflowExecutionHistoryReverseRequest, ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryReverseResponse, error) {
	if f.last == nil {
		return nil, serviceerror.NewPermissionDenied("not the history", "")
	}
	h := &historypb.History{}
	for _, kind := range f.last {
		e := &historypb.HistoryEvent{EventType: kind}
		if kind == enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			e.Attributes = &historypb.HistoryEvent_WorkflowTaskFailedEventAttributes{WorkflowTaskFailedEventAttributes: &historypb.WorkflowTaskFailedEventAttributes{
				Failure: &failurepb.Failure{Message: "no such account"},
			}}
		}
		h.Events = append(h.Events, e)
	}
	return &workflowservice.GetWorkflowExecutionHistoryReverseResponse{History: h}, nil
}

// An earlier failure does not explain why the workflow task fails now.
func TestAsk_FailingWorkflowTask_QuotesItsOwnFailure(t *testing.T) {
	t.Parallel()
	const failed, scheduled = enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
	for name, c := range map[string]struct {
		last []enumspb.EventType
		want string
	}{
		"failed":                       {[]enumspb.EventType{scheduled, failed}, "no such account"},
		"timed out after a failure":    {[]enumspb.EventType{enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, scheduled, failed}, ""},
		"completed after a failure":    {[]enumspb.EventType{scheduled, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, failed}, ""},
		"the history must not be read": {nil, ""},
	} {
		site := &Site{Temporal: Temporal{Service: failing{last: c.last}}}
		d, err := site.Describe(t.Context(), "w", "")
		require.NoError(t, err, name)
		require.Empty(t, d.TaskFailure, "%s: a list of types needs no history", name)
		d, err = site.ask(t.Context(), "w", "")
		require.NoError(t, err, name)
		require.Equal(t, int32(2), d.TaskFailures, name)
		require.Equal(t, c.want, d.TaskFailure, name)
	}
}

func (failing) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{PendingWorkflowTask: &workflowpb.PendingWorkflowTaskInfo{Attempt: 3}, PendingActivities: []*workflowpb.PendingActivityInfo{
		{LastFailure: &failurepb.Failure{Message: `"account/7" is held by …`}},
		{Attempt: 2, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(time.Hour))},
		{Attempt: 2, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(-time.Hour))},
		{State: enumspb.PENDING_ACTIVITY_STATE_STARTED},
		{State: enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED},
		{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Paused: true},
	}}, nil
}

func TestDescribe_PendingActivities_StatesAndFailures(t *testing.T) {
	t.Parallel()
	for discreet, want := range map[bool]string{true: "", false: `"account/7" is held by …`} {
		d, err := (&Site{Discreet: discreet, Temporal: Temporal{Service: failing{}}}).ask(t.Context(), "w", "")
		require.NoError(t, err)
		require.Equal(t, want, d.Activities[0].Failure)
		var states []string
		for _, a := range d.Activities {
			states = append(states, a.State)
		}
		require.Equal(t, []string{"scheduled", "in back-off", "scheduled", "running", "running", "paused"}, states)
	}
}

func TestShort_Durations_HaveUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 344 * time.Millisecond: "340 ms", 994 * time.Millisecond: "990 ms", 997 * time.Millisecond: "1 s", 12*time.Second + 4e8: "12 s", 5 * time.Minute: "5 min", 70 * time.Second: "1 min 10 s",
		25*time.Minute + 31*time.Second: "26 min", time.Hour: "1 h", 65 * time.Minute: "1 h 5 min", 50*time.Hour + 20*time.Minute: "2 d 2 h",
		lockcore.Forever: "never",
	} {
		require.Equal(t, want, Short(d))
	}
}

func TestPrint_ControlCharacters_AreReplaced(t *testing.T) {
	t.Parallel()
	const name = "a\x1b[2J\nb\tc\u202e"
	e := Entry{Party: Party{Name: name, Step: name, Workflow: name}, Status: lockcore.Status{Resource: name, Holder: lockcore.Holder{
		LockID: name, Host: name, Comment: name, State: lockcore.StateHolding, Kept: true,
	}, Running: []lockcore.Running{{Part: name}}}, End: name}
	wait := e
	wait.State = lockcore.StateWaiting
	r := Resource{Name: name, Holders: []Entry{e}, Waiters: []Entry{wait}}
	why := Why{Party: e.Party, Waits: []Entry{wait}, Roots: []*Node{{
		Party: e.Party, Hold: &e, Waiting: []*Node{{Party: e.Party, Wait: &wait}}, Advice: name,
		Doing: &Doing{Activities: []Activity{{Type: name, ID: name, Worker: name, Failure: name}}},
	}}}
	var b strings.Builder
	require.NoError(t, PrintResources(&b, []Resource{r}, 100))
	require.NoError(t, r.Print(&b))
	require.NoError(t, why.Print(&b))
	require.NoError(t, PrintOrphans(&b, []Orphan{{Party: e.Party, Resource: name, Reason: name}}))
	b.WriteString((&Site{}).DeadlockText(lockcore.Deadlock{Waits: []lockcore.Wait{{Owner: name, For: name, Resource: name}}}))
	for _, bad := range []string{"\x1b", "a\n", "\tc", "\u202e", "�\nb"} {
		require.NotContains(t, b.String(), bad)
	}
}

func TestPrintResources_LongNames_AreShortenedInTheMiddle(t *testing.T) {
	t.Parallel()
	held := func(resource, by string) Resource {
		return Resource{
			Name:    resource,
			Holders: []Entry{{Party: Party{Name: by}, For: 75 * time.Minute, Status: lockcore.Status{Holder: lockcore.Holder{State: lockcore.StateDraining, ExpiresIn: time.Second}}}},
			Waiters: make([]Entry, 2000), LongestWait: 61 * time.Minute,
		}
	}
	long := held("account/"+strings.Repeat("é", 40)+"/main", "transfer-6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	long.Holders = append(long.Holders, Entry{Party: Party{Name: "another"}}, long.Holders[0]) // its own other part is not counted
	var out strings.Builder
	expired := held("printer", "job-3")
	expired.Holders[0].Status = lockcore.Status{Holder: lockcore.Holder{State: lockcore.StateHolding, Mode: lockcore.ModeShared, Limit: 3, ExpiresIn: -time.Minute}}
	forever := held("store", "maintenance")
	forever.Holders[0].State, forever.Holders[0].ExpiresIn = lockcore.StateHolding, lockcore.Forever
	require.NoError(t, PrintResources(&out, []Resource{long, held("account/1", "transfer-2"), expired, forever}, 100))
	require.Equal(t, `RESOURCE      HELD BY                   MODE                 FOR         ENDS     WAITING  LONGEST
acco…éé/main  trans…fd430c8 and 1 more  exclusive, draining  1 h 15 min  in 1 s   2000     1 h 1 min
account/1     transfer-2                exclusive, draining  1 h 15 min  in 1 s   2000     1 h 1 min
printer       job-3                     shared with limit 3  1 h 15 min  expired  2000     1 h 1 min
store         maintenance               exclusive            1 h 15 min  never    2000     1 h 1 min
`, out.String())

	out.Reset()
	require.NoError(t, PrintResources(&out, []Resource{long, expired}, 70))
	require.Equal(t, `RESOURCE       HELD BY                    FOR         ENDS     WAITING
accou…éé/main  trans…4fd430c8 and 1 more  1 h 15 min  in 1 s   2000
printer        job-3                      1 h 15 min  expired  2000
`, out.String())
	for width := 46; width < 200; width++ {
		out.Reset()
		require.NoError(t, PrintResources(&out, []Resource{long, expired}, width))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width)
		}
	}

	out.Reset()
	require.NoError(t, PrintResources(&out, []Resource{long}, 0))
	require.Contains(t, out.String(), long.Name+"  transfer-6ba7b810-9dad-11d1-80b4-00c04fd430c8 and 1 more  ")
}

// A standalone MongoDB and FerretDB both answer hello without the name of a replica set.
func TestDoctor_ReplicaSet_SeverityByKindOfServer(t *testing.T) {
	t.Parallel()
	const mongoDB, ferretDB = `{"version": "8.0.4"}`, `{"version": "7.0.77", "ferretdb": {"version": "v2.7.0"}}`
	for name, c := range map[string]struct{ answer, buildInfo, want string }{
		"Standalone":          {`{"isWritablePrimary": true}`, mongoDB, Broken},
		"FerretDB":            {`{"isWritablePrimary": true}`, ferretDB, Warning},
		"FerretDBWithSetName": {`{"setName": "rs0", "hosts": ["a:27017"]}`, ferretDB, Warning},
		"OneMember":           {`{"setName": "rs0", "hosts": ["a:27017"]}`, mongoDB, Warning},
		"ThreeMembers":        {`{"setName": "rs0", "hosts": ["a:27017", "b:27017", "c:27017"]}`, mongoDB, OK},
		"ShardedCluster":      {`{"msg": "isdbgrid"}`, mongoDB, OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h hello
			var b build
			require.NoError(t, bson.UnmarshalExtJSON([]byte(c.answer), false, &h))
			require.NoError(t, bson.UnmarshalExtJSON([]byte(c.buildInfo), false, &b))
			found, err := replicaSetFinding(h, b)
			require.NoError(t, err)
			require.Equal(t, c.want, found.State, found.What)
			require.Equal(t, c.want == OK, found.Advice == "")
		})
	}
}
