package interceptors

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// hasCurrent is a client that reports a run as the current one of every workflow.
type hasCurrent struct {
	client.Client
	run string
}

func (c hasCurrent) WorkflowService() workflowservice.WorkflowServiceClient {
	return describes{run: c.run}
}

type describes struct {
	workflowservice.WorkflowServiceClient
	run string
}

func (c describes) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{RunId: c.run}},
	}, nil
}

// A run that continues as new without handing over releases what it had inherited. The next run may hold locks by then, which are its own.
func TestCloser_NextRunHolds_ReleasesOnlyWhatWasInherited(t *testing.T) {
	t.Parallel()
	for current, want := range map[string][]string{"one": {"zero"}, "two": {"zero"}, "three": nil} {
		locker := &fakeLocker{held: []lockcore.Status{
			{Resource: "inherited", Holder: lockcore.Holder{Run: "zero", State: lockcore.StateHolding}},
			{Resource: "own", Holder: lockcore.Holder{Run: "one", State: lockcore.StateHolding}},
			{Resource: "next", Holder: lockcore.Holder{Run: "two", State: lockcore.StateHolding}},
		}}
		if current == "one" {
			locker.held = locker.held[:2]
		}
		last := &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
				WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{NewExecutionRunId: "two"},
			},
		}
		err := with(locker).closer.end(t.Context(), Connection{Client: hasCurrent{run: current}, Namespace: "n", NamespaceID: "id"},
			runstate.Closing{WorkflowID: "w", RunID: "one", Releases: []wire.ReleaseParams{{Inherits: true, All: true}}}, last)
		require.NoError(t, err)
		var runs []string
		for _, r := range locker.released {
			runs = append(runs, r.Run)
		}
		require.Equal(t, want, runs, "the current run is %s", current)
	}
}

// neverCloses is a client whose runs stay open until a caller's time is over, or of which the server then reports an error.
type neverCloses struct {
	client.Client
	err error
}

func (c neverCloses) GetWorkflowHistory(ctx context.Context, _, _ string, _ bool, _ enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	<-ctx.Done()
	return failsWith{c.err}
}

type failsWith struct{ err error }

func (i failsWith) HasNext() bool { return i.err != nil }

func (i failsWith) Next() (*historypb.HistoryEvent, error) { return nil, i.err }

// A run that is still open keeps its locks, and that is normal. If the server did not answer in all that time, an operator reads about it.
func TestCloser_RunDoesNotClose_OnlyAnOutageIsLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		logs int
	}{
		"it is open":                   {nil, 0},
		"the call was cut off":         {context.DeadlineExceeded, 0},
		"the server cut the call off":  {serviceerror.NewDeadlineExceeded("late"), 0},
		"the server was never there":   {serviceerror.NewUnavailable("away"), 1},
		"the server refused all calls": {serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "busy"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				logs := &strings.Builder{}
				to := Connection{Client: neverCloses{err: c.err}, Logger: log.NewStructuredLogger(slog.New(slog.NewTextHandler(logs, nil)))}
				closer := with(&fakeLocker{}).closer
				require.True(t, closer.waits.begin(mostClosing))
				closer.await([]Connection{to}, "one")
				require.Equal(t, c.logs, strings.Count(logs.String(), "were not released"), logs)
			})
		})
	}
}

// The server refused the task whose Closing this is, and has recorded that another one hands the locks over: what it hands over is not known
// here. Locks of single steps are never handed over.
func TestCloser_AnotherTaskHandedOver_ReleasesNothingOfTheRun(t *testing.T) {
	t.Parallel()
	mark, err := wire.EncodeHandover(wire.Handover{From: "one"})
	require.NoError(t, err)
	last := &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
			WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{
				Header: &commonpb.Header{Fields: map[string]*commonpb.Payload{wire.HandoverKey: mark}},
			},
		},
	}
	locker := &fakeLocker{}
	require.NoError(t, with(locker).closer.end(t.Context(), Connection{Namespace: "n", NamespaceID: "id"}, runstate.Closing{
		WorkflowID: "w", RunID: "one",
		Releases: []wire.ReleaseParams{{Resources: []string{"own"}, Schedule: 2}, {Resources: []string{"step"}, Schedule: 2, Step: "1/Debit"}},
	}, last))
	require.Len(t, locker.released, 1)
	require.Equal(t, []string{"step"}, locker.released[0].Resources)
}
