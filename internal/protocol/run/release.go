package run

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

const (
	// releaseLocally is how long the local activity may take: it holds up the workflow task.
	releaseLocally = 2 * time.Second
	// releaseAttempt is how long one attempt of the ordinary activity may take.
	releaseAttempt = 10 * time.Second
	// releaseTimeout is how long all attempts may take together: lockcore's default HoldTTL, after
	// which the locks may be displaced anyhow.
	releaseTimeout = 10 * time.Minute
)

// ReleaseOptions is how locks are let go: by a local activity, which is one event, tried once and
// briefly, else by an ordinary activity. Both run on a context that is not cancelled with the caller's. No
// names, no event. What could not be released is logged.
type ReleaseOptions struct {
	// Timeout bounds the ordinary activity with all its attempts. Defaults to 10 min.
	Timeout time.Duration
}

// locally runs an activity of ours as a local one, once and briefly, since it holds up the workflow task.
func locally(ctx workflow.Context, name, summary string, params any) error {
	return startLocally(ctx, name, summary, params).Get(ctx, nil)
}

func startLocally(ctx workflow.Context, name, summary string, params any) workflow.Future {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: releaseLocally,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                protocol.Cut(summary, 120),
	}), name, params)
}

// release lets go of names, of which steps are known to have left those in held.
func (o ReleaseOptions) release(ctx workflow.Context, s *State, names []string, held names) {
	if len(names) == 0 {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	s.look()
	params := protocol.ReleaseParams{
		Resources: names, Held: slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !held.has(name) }),
		Schedule: s.schedule, LockRun: s.lockRun, Former: s.former,
	}
	summary := protocol.Cut("release "+strings.Join(names, ", "), 120)
	var result protocol.ReleaseResult
	err := startLocally(ctx, protocol.ActivityRelease, summary, params).Get(ctx, &result)
	if err == nil {
		if len(result.Missing) > 0 {
			workflow.GetLogger(ctx).Error("lockstep: steps completed under locks that are not held at the end: either they were lost after the last step, "+
				"or a worker without Lockstep's interceptor ran the steps, and nobody was kept out", "resources", result.Missing)
		}
		return
	}
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = releaseTimeout
	}
	// Every option that matters is given: where one is not, the caller's own would be taken.
	ours, _ := s.apart(ctx)
	err = workflow.ExecuteActivity(workflow.WithActivityOptions(ours, workflow.ActivityOptions{
		TaskQueue:              workflow.GetInfo(ctx).TaskQueueName,
		StartToCloseTimeout:    min(releaseAttempt, timeout),
		ScheduleToCloseTimeout: timeout,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second},
		Summary:                summary,
	}), protocol.ActivityRelease, params).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("lockstep: locks were not released and stand until they expire",
			"resources", names, "error", err)
	}
}
