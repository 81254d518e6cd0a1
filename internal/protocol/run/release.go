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

// ordinarily runs an activity of ours as an ordinary one.
func (s *State) ordinarily(ctx workflow.Context, name, summary string, timeout time.Duration, params any) error {
	// Every option that matters is given: where one is not, the caller's own would be taken.
	ours, _ := s.apart(ctx)
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ours, workflow.ActivityOptions{
		TaskQueue:              workflow.GetInfo(ctx).TaskQueueName,
		StartToCloseTimeout:    min(releaseAttempt, timeout),
		ScheduleToCloseTimeout: timeout,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second},
		Summary:                summary,
	}), name, params).Get(ctx, nil)
}

// release lets go of names, of which steps are known to have left those in held. all says that whatever a run before this one
// has left goes too.
func (o ReleaseOptions) release(ctx workflow.Context, s *State, names []string, held names, all bool) {
	if len(names) == 0 && !all {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	params := protocol.ReleaseParams{Resources: names, Schedule: s.schedule, Inherits: s.wasReset || s.continues, All: all}
	if !s.wasReset {
		params.Held = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !held.has(name) })
	}
	what := "what the run before has left"
	if len(names) > 0 {
		what = strings.Join(names, ", ")
	}
	summary := protocol.Cut("release "+what, 120)
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
	if err := s.ordinarily(ctx, protocol.ActivityRelease, summary, timeout, params); err != nil {
		workflow.GetLogger(ctx).Error("lockstep: locks were not released and stand until they expire",
			"resources", names, "error", err)
	}
}
