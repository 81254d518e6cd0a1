package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// ReapName is the name under which [Reap] is registered.
const ReapName = protocol.WorkflowReap

// The reaper's activity is tried until it succeeds: where the database or all workers are away, one reap waits for
// them, and the schedule skips the others. The heartbeat finds a worker that was killed long before the attempt's time is over.
var reapOptions = workflow.ActivityOptions{
	StartToCloseTimeout: 10 * time.Minute,
	HeartbeatTimeout:    30 * time.Second,
	RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 10 * time.Second},
}

// Reap is the orphan reaper's workflow: it releases once what closed workflow runs of the worker's namespace have left, and
// returns what it counted. See [activities.Activities.Reap], its only activity. A schedule starts it, which
// worker.CreateReaper makes. When it is cancelled it stops where it is; the next one goes on.
func Reap(ctx workflow.Context, p activities.ReapParams) (activities.ReapResult, error) {
	var result activities.ReapResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, reapOptions), protocol.ActivityReap, p).Get(ctx, &result)
	return result, err
}
