package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
)

const (
	// longToEnter is how long an attempt may take to get its locks before it asks whether it still counts.
	longToEnter = 10 * time.Second
	// pendingTimeout bounds the question.
	pendingTimeout = 5 * time.Second
)

// errNotPending is the failure of an attempt that Temporal has given up. No caller hears of it.
var errNotPending = errors.New("lockstep: Temporal has given up this attempt while it took its locks")

// stillPending returns an error if an attempt took long to get its locks, and Temporal does not say that it is the one which it
// waits for. The process may have been suspended, and another attempt may run or have run. The longer one of the times counts
// that the two clocks of the process show: a suspended machine stops one of them.
func stillPending(ctx context.Context, received time.Time) error {
	elapsed := max(time.Since(received), time.Now().Round(0).Sub(received.Round(0)))
	c := activity.GetClient(ctx)
	if elapsed <= longToEnter || !currentrun.Connects(c) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	info := activity.GetInfo(ctx)
	answer, err := c.DescribeWorkflowExecution(ctx, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	if err != nil {
		return fmt.Errorf("lockstep: ask whether an attempt is still pending that took %v to get its locks: %w", elapsed.Round(time.Second), err)
	}
	if slices.ContainsFunc(answer.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityId() == info.ActivityID && a.GetAttempt() == info.Attempt && a.GetLastStartedTime().AsTime().Equal(info.StartedTime)
	}) {
		return nil
	}
	return errNotPending
}
