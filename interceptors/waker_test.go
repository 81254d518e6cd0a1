package interceptors

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// completions is a client that records which activities it completes.
type completions struct {
	client.Client
	err error
	// status is the status of the current run of every workflow.
	status enumspb.WorkflowExecutionStatus

	mu        sync.Mutex
	completed []completion
}

type completion struct {
	run, activity string
	result        *commonpb.Payloads
}

func (d described) RespondActivityTaskCompletedById( //nolint:staticcheck // gRPC names it
	_ context.Context, in *workflowservice.RespondActivityTaskCompletedByIdRequest, _ ...grpc.CallOption,
) (*workflowservice.RespondActivityTaskCompletedByIdResponse, error) {
	c := d.of
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed = append(c.completed, completion{in.GetRunId(), in.GetActivityId(), in.GetResult()})
	return nil, c.err
}

func (c *completions) seen() []completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]completion(nil), c.completed...)
}

func (c *completions) WorkflowService() workflowservice.WorkflowServiceClient {
	return described{status: c.status, of: c}
}

type described struct {
	workflowservice.WorkflowServiceClient
	status enumspb.WorkflowExecutionStatus
	of     *completions
}

func (d described) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	status := d.status
	if in.GetExecution().GetRunId() != "" { // one that was reset
		status = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{RunId: "current"}, Status: status,
	}}, nil
}

// waitsForAHold queues a request of a workflow, grants its hold, and returns the Locker that granted it.
func waitsForAHold(t *testing.T, c *completions) *lockcore.Steps {
	t.Helper()
	return waitsForAHoldWith(t, c, lockcore.Config{})
}

func waitsForAHoldWith(t *testing.T, c *completions, cfg lockcore.Config) *lockcore.Steps {
	t.Helper()
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
	New(Options{Locker: l}).Connect(Connection{
		Client: c, Namespace: "name", NamespaceID: "n", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	holds, err := l.Steps().TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "holder"}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err)
	_, err = l.Steps().Enter(t.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "n/w", Run: "run", Part: "lock/1", Order: lockcore.Order{Schedule: 4, Attempt: 2}}, Resources: []lockcore.Resource{lockcore.Exclusive("r")},
		Keep: true, HoldOnly: true,
	})
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.NoError(t, l.Leave(t.Context(), holds...))
	return l.Steps()
}

func holdersOf(t *testing.T, l *lockcore.Steps) (names []string) {
	t.Helper()
	for s, err := range l.Status(t.Context(), lockcore.Filter{Resource: "r", States: []lockcore.State{lockcore.StateHolding}}) {
		require.NoError(t, err)
		names = append(names, s.LockID)
	}
	return names
}

func TestWake_GrantedHold_CompletesTheActivityWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &completions{}
		l := waitsForAHold(t, c)
		synctest.Wait()
		seen := c.seen()
		require.Len(t, seen, 1)
		require.Equal(t, []string{"run", wire.WaitID(4)}, []string{seen[0].run, seen[0].activity})
		require.Equal(t, "json/plain", string(seen[0].result.GetPayloads()[0].GetMetadata()["encoding"]), "every worker can read it")
		var result wire.AcquireResult
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(seen[0].result, &result))
		require.Len(t, result.Leases, 1)
		require.Positive(t, result.Leases[0].FirstFence)
		require.Empty(t, result.LockID+result.Leases[0].Resource+result.Leases[0].LockID, "it names nothing")
		<-time.After(30 * time.Second) // in virtual time
		l.WatchFor("r")                // the next check reports the grant again
		<-time.After(time.Second)
		require.Len(t, c.seen(), 1)
		require.Equal(t, []string{"n/w"}, holdersOf(t, l))
	})
}

// The next request learns the outcome of a claim.
func TestWake_Claim_CompletesTheActivityWithoutAResult(t *testing.T) {
	t.Parallel()
	require.Nil(t, resultOf(lockcore.Wakeup{Resource: "r"}))
	require.Nil(t, resultOf(lockcore.Wakeup{Resource: "r", Cycle: "a cycle"}))
}

func TestWake_WorkflowEnded_HoldIsReleased(t *testing.T) {
	t.Parallel()
	for status, want := range map[enumspb.WorkflowExecutionStatus][]string{
		enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:        nil,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:       nil,
		enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:          {"n/w"}, // also a run that a reset made: it continues with the hold
		enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: {"n/w"}, // it may have handed the hold over
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &completions{err: serviceerror.NewNotFound("no such activity"), status: status}
			l := waitsForAHold(t, c)
			synctest.Wait()
			require.Len(t, c.seen(), 1)
			require.Equal(t, want, holdersOf(t, l), status)
		})
	}
}

// Temporal is asked after the grant. The workflow may have ended between the two, so the reason must not say that it had ended before.
func TestWake_WorkflowEnded_ReasonClaimsNoOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		c := &completions{err: serviceerror.NewNotFound("no such activity"), status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED}
		waitsForAHoldWith(t, c, lockcore.Config{TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
		synctest.Wait()
		var reasons []string
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if s.Name() == telemetry.SpanHold && string(a.Key) == telemetry.Reason {
					reasons = append(reasons, a.Value.AsString())
				}
			}
		}
		require.Equal(t, []string{"its workflow has ended"}, reasons)
	})
}

// A claim lapses if its workflow is not woken, but a hold does not.
func TestWake_ServerIsAway_HoldIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &completions{err: serviceerror.NewUnavailable("away")}
		waitsForAHold(t, c)
		synctest.Wait()
		require.Len(t, c.seen(), 1)
		<-time.After(11 * time.Second) // in virtual time
		require.Len(t, c.seen(), 3)
		<-time.After(time.Hour)
		n := len(c.seen())
		require.InDelta(t, 120, n, 15, "for ten minutes")
		<-time.After(time.Hour)
		require.Len(t, c.seen(), n)
	})
}
