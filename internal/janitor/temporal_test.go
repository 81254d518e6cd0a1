package janitor

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// within bounds waits of tests, and lookEvery is their polling interval.
const (
	within    = 2 * time.Minute
	lookEvery = 20 * time.Millisecond
)

// servers is the fixture of tests on real servers: a database of its own, and a worker with one workflow.
type servers struct {
	*lockcore.Locker
	client             client.Client
	queue, namespaceID string
}

func newServers(t *testing.T) *servers {
	t.Helper()
	l, err := lockcore.New(testenv.Mongo(t).Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	c := testenv.Temporal(t)
	answer, err := c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	require.NoError(t, err)
	s := &servers{Locker: l, client: c, queue: testenv.TaskQueue(t), namespaceID: answer.GetNamespaceInfo().GetId()}
	w := sdkworker.New(c, s.queue, sdkworker.Options{DeadlockDetectionTimeout: within})
	w.RegisterWorkflowWithOptions(obey, workflow.RegisterOptions{Name: "obey"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return s
}

// obey ends in the way that a signal names.
func obey(ctx workflow.Context) error {
	var how string
	workflow.GetSignalChannel(ctx, "end").Receive(ctx, &how)
	mark := wire.Handover{From: workflow.GetInfo(ctx).WorkflowExecution.RunID, Started: workflow.GetInfo(ctx).WorkflowStartTime}
	switch how {
	case "continue":
		return workflow.NewContinueAsNewError(ctx, "obey")
	case "hand over":
		next := workflow.NewContinueAsNewError(ctx, "obey")
		mark, err := wire.EncodeHandover(mark)
		if err != nil {
			return err
		}
		var continued *workflow.ContinueAsNewError
		errors.As(next, &continued)
		continued.Header = &commonpb.Header{Fields: map[string]*commonpb.Payload{wire.HandoverKey: mark}}
		return next
	case "fail":
		return temporal.NewApplicationError("for the test", "test")
	default:
		return nil
	}
}

// start starts a workflow, and waits until its first task is done.
func (s *servers) start(t *testing.T) *commonpb.WorkflowExecution {
	t.Helper()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "a/b%" + rand.Text(), TaskQueue: s.queue, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
	}, "obey")
	require.NoError(t, err)
	return s.ready(t, &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()})
}

// ready waits until the first task of a run is done.
func (s *servers) ready(t *testing.T, run *commonpb.WorkflowExecution) *commonpb.WorkflowExecution {
	t.Helper()
	require.Eventually(t, func() bool {
		events := s.client.GetWorkflowHistory(t.Context(), run.GetWorkflowId(), run.GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			if err == nil && event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
				return true
			}
		}
		return false
	}, within, lookEvery, "no task was done")
	return run
}

// end ends a run, waits for the end, and returns the workflow's current run.
func (s *servers) end(t *testing.T, run *commonpb.WorkflowExecution, how string) *commonpb.WorkflowExecution {
	t.Helper()
	require.NoError(t, s.client.SignalWorkflow(t.Context(), run.GetWorkflowId(), run.GetRunId(), "end", how))
	require.Eventually(t, func() bool {
		found, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetWorkflowId(), run.GetRunId())
		return err == nil && found.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}, within, lookEvery, "the run did not end")
	found, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetWorkflowId(), "")
	require.NoError(t, err)
	return found.GetWorkflowExecutionInfo().GetExecution()
}

func (s *servers) terminate(t *testing.T, run *commonpb.WorkflowExecution) {
	t.Helper()
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetWorkflowId(), run.GetRunId(), "for the test"))
}

// reset makes a new run out of the first task of a run.
func (s *servers) reset(t *testing.T, run *commonpb.WorkflowExecution) *commonpb.WorkflowExecution {
	t.Helper()
	answer, err := s.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: run, Reason: "for the test", RequestId: rand.Text(), WorkflowTaskFinishEventId: 4,
		ResetReapplyType: enumspb.RESET_REAPPLY_TYPE_NONE, //nolint:staticcheck // the newer field says what to leave out, one by one
	})
	require.NoError(t, err)
	return s.ready(t, &commonpb.WorkflowExecution{WorkflowId: run.GetWorkflowId(), RunId: answer.GetRunId()})
}

// verdictCase makes a run to ask about, and has the expected answer.
type verdictCase struct {
	make func(t *testing.T) *commonpb.WorkflowExecution
	want answer
}

func TestAsk_RealRuns_GivesVerdict(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	cases := s.endedRuns()
	maps.Copy(cases, s.resetRuns())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			run := c.make(t)
			j := New(s.options())
			found, err := j.ask(t.Context(), run.GetWorkflowId(), run.GetRunId())
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		})
	}
}

// endedRuns returns cases without a reset.
func (s *servers) endedRuns() map[string]verdictCase {
	return map[string]verdictCase{
		"open, and nothing is pending": {s.start, answer{verdict: open, settled: true}},
		"terminated": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.terminate(t, run)
			return run
		}, answer{verdict: closed, why: "Terminated"}},
		"completed": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, run, "complete")
			return run
		}, answer{verdict: closed, why: "Completed"}},
		"failed, and retried": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			require.NotEqual(t, run.GetRunId(), s.end(t, run, "fail").GetRunId())
			return run
		}, answer{verdict: closed, why: "Failed"}},
		"continued as new": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, run, "continue")
			return run
		}, answer{verdict: closed, why: "ContinuedAsNew, and the current run inherits nothing"}},
		"continued as new, and handed over": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, run, "hand over")
			return run
		}, answer{verdict: inherited}},
		"continued as new without a hand-over, before a run that handed over": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, s.ready(t, s.end(t, run, "continue")), "hand over")
			return run
		}, answer{verdict: closed, why: "ContinuedAsNew, and the current run inherits nothing"}},
		"continued as new, and then terminated": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.terminate(t, s.end(t, run, "continue"))
			return run
		}, answer{verdict: closed, why: "ContinuedAsNew"}},
		"continued as new, and another workflow has the ID": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.terminate(t, s.end(t, run, "continue"))
			_, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: run.GetWorkflowId(), TaskQueue: s.queue}, "obey")
			require.NoError(t, err)
			return run
		}, answer{verdict: closed, why: "ContinuedAsNew, and another chain of runs began"}},
		"of a workflow that is not known": {func(*testing.T) *commonpb.WorkflowExecution {
			return &commonpb.WorkflowExecution{WorkflowId: "unknown-" + rand.Text(), RunId: "0198c2a4-0000-7000-8000-000000000000"}
		}, answer{}},
		"with a name that no run has": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			run.RunId = "by hand"
			return run
		}, answer{}},
	}
}

// resetRuns returns cases with a reset.
func (s *servers) resetRuns() map[string]verdictCase {
	return map[string]verdictCase{
		"reset": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.reset(t, run)
			return run
		}, answer{verdict: inherited}},
		"reset when it had completed": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, run, "complete")
			s.reset(t, run)
			return run
		}, answer{verdict: inherited}},
		"reset twice": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.reset(t, s.reset(t, run))
			return run
		}, answer{verdict: inherited}},
		"current when an earlier run was reset": {func(t *testing.T) *commonpb.WorkflowExecution {
			first := s.start(t)
			run := s.ready(t, s.end(t, first, "continue"))
			s.reset(t, first)
			return run
		}, answer{verdict: inherited}},
		"current when an earlier run was reset, which then continued as new": {func(t *testing.T) *commonpb.WorkflowExecution {
			first := s.start(t)
			run := s.ready(t, s.end(t, first, "continue"))
			s.end(t, s.reset(t, first), "continue")
			return run
		}, answer{verdict: closed, why: "Terminated, and the current run inherits nothing"}},
		"reset, and then continued as new": {func(t *testing.T) *commonpb.WorkflowExecution {
			run := s.start(t)
			s.end(t, s.reset(t, run), "continue")
			return run
		}, answer{verdict: closed, why: "Terminated, and the current run inherits nothing"}},
	}
}

func (s *servers) options() Options {
	return Options{Locker: s.Locker.Steps(), Temporal: s.client.WorkflowService(), Namespace: "default", NamespaceID: s.namespaceID, Interval: time.Second, Logger: logger()}
}
