package interceptors

import (
	"context"
	"slices"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// firstTimeout bounds the question whether an attempt is the first.
const firstTimeout = 5 * time.Second

// isFirst tells whether an attempt is known to be the first that its step ever had. Its number does not tell: where somebody
// resets the activity the attempts count from 1 again. Temporal is asked, which remembers when the attempt before was over,
// and when the activity was scheduled first. Where it does not answer it is not known. What a run before a reset has scheduled may have
// run there.
func isFirst(ctx context.Context, guard protocol.Guard) bool {
	info := activity.GetInfo(ctx)
	switch c := activity.GetClient(ctx); {
	case info.Attempt != 1 || guard.IsPast(info.WorkflowExecution.RunID):
		return false
	case !protocol.Connects(c): // a test environment, in which nobody resets
		return true
	default:
		ctx, cancel := context.WithTimeout(ctx, firstTimeout)
		defer cancel()
		answer, err := c.DescribeWorkflowExecution(ctx, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
		if err != nil {
			return false
		}
		return slices.ContainsFunc(answer.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityId() == info.ActivityID && a.GetAttempt() == 1 && a.GetLastAttemptCompleteTime() == nil &&
				a.GetScheduledTime().AsTime().Equal(info.ScheduledTime)
		})
	}
}
