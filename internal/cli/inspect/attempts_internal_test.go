package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// pendingActivity is Temporal's answer about each workflow: one activity. asked counts the questions.
type pendingActivity struct {
	Frontend
	maximum int32
	failure string
	asked   map[string]int
}

func (p pendingActivity) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	p.asked[in.GetExecution().GetWorkflowId()]++
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Execution: in.GetExecution()},
		PendingActivities: []*workflowpb.PendingActivityInfo{{
			ActivityId: "7", ActivityType: &commonpb.ActivityType{Name: "Debit"}, Attempt: 2, MaximumAttempts: p.maximum,
			LastFailure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: p.failure},
			}},
		}},
	}, nil
}

// Only an activity that waits for a lock and has a limit of attempts is named. Holders, and workflows of other namespaces, are not asked about.
func TestAttempts_PendingActivities_AreJudged(t *testing.T) {
	t.Parallel()
	const here, elsewhere = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11", "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60"
	for name, c := range map[string]struct {
		maximum int32
		failure string
		waiters int
		want    string
	}{
		"waits with a limit":     {3, wire.FailureBusy, 1, `1 activity that may be attempted only a few times waits for a lock, such as Debit (7) of "waiter-000", in attempt 2 of 3`},
		"waits without a limit":  {0, wire.FailureBusy, 1, "no activity uses up its attempts by waiting"},
		"fails by itself":        {3, "NoSuchAccount", 1, "no activity uses up its attempts by waiting"},
		"no waiter":              {3, wire.FailureBusy, 0, "no activity uses up its attempts by waiting"},
		"too many to ask about":  {0, wire.FailureBusy, maxAsked + 1, fmt.Sprintf("no activity among the first %d of %d waiting workflows uses up its attempts by waiting", maxAsked, maxAsked+1)},
		"several of the waiters": {3, wire.FailureBusy, 2, `2 activities that may be attempted only a few times wait for a lock, such as Debit (7) of "waiter-000", in attempt 2 of 3`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
			ask := func(namespace, workflow string, schedule uint32) error {
				of := wire.Run{Namespace: namespace, WorkflowID: workflow, RunID: "run"}
				_, err := l.Steps().Enter(t.Context(), lockcore.StepRequest{
					Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: "p", Order: lockcore.Order{Schedule: schedule, Attempt: 1}}, TTL: time.Hour,
					Resources: []lockcore.Resource{lockcore.Exclusive("account/1")},
				})
				return err
			}
			require.NoError(t, ask(here, "holder", 1))
			require.ErrorIs(t, ask(elsewhere, "stranger", 1), lockcore.ErrBusy)
			for i := range c.waiters {
				require.ErrorIs(t, ask(here, fmt.Sprintf("waiter-%03d", i), 1), lockcore.ErrBusy)
			}
			service := pendingActivity{maximum: c.maximum, failure: c.failure, asked: map[string]int{}}
			d := Doctor{Site: Site{Locker: l.Steps(), Temporal: Temporal{Service: service, Namespace: "default", NamespaceID: here}}}
			found, err := d.attempts(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, found.What)
			require.Equal(t, found.Advice != "", found.State == Warning)
			require.Len(t, service.asked, min(c.waiters, maxAsked))
			require.NotContains(t, service.asked, "holder")
			require.NotContains(t, service.asked, "stranger")
		})
	}
}
