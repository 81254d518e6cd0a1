package run

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
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
// names, no event.
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

// letGo is what an end lets go of.
type letGo struct {
	// names are the resources, and used what must be held on them.
	names []string
	used  uses
	// all says that whatever a run before this one has left goes too.
	all bool
}

// release verifies that what was used is held, and then lets go. If something was lost the error matches lockcore.ErrLost, and
// nothing was let go. After another error, which is logged, the run's end tries once more.
func (o ReleaseOptions) release(ctx workflow.Context, s *State, what letGo) error {
	if len(what.names) == 0 && len(what.used) == 0 && !what.all {
		return nil
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	params := protocol.ReleaseParams{
		Resources: what.names, Schedule: s.schedule, Used: what.used, Inherits: s.wasReset || s.continues, All: what.all, Before: s.before(ctx), Collection: s.collection.Known(),
	}
	title := "what the run before has left"
	if len(what.names)+len(what.used) > 0 {
		title = strings.Join(append(slices.Clone(what.names), what.used.besides(what.names)...), ", ")
	}
	summary := protocol.Cut("release "+title, 120)
	err := locally(ctx, protocol.ActivityRelease, summary, params)
	if err != nil && askAgain(err) {
		err = s.ordinarily(ctx, protocol.ActivityRelease, summary, cmp.Or(o.Timeout, releaseTimeout), params)
	}
	lock := protocol.LockError(err)
	switch {
	case err == nil:
	case errors.Is(lock, lockcore.ErrLost):
		return protocol.NewWaitError(lock, false)
	default:
		workflow.GetLogger(ctx).Error("lockstep: it is not known whether locks were lost, and they were not released: they stand until the workflow "+
			"ends, and then until the janitor releases them or their HoldTTL is over", "resources", what.names, "error", err)
		for _, name := range what.names {
			s.root.traces.add(name)
		}
	}
	return protocol.TypedError(err)
}

// inTurn runs the ends of scopes one after the other: what one lets go depends on which others are open.
func (s *State) inTurn(ctx workflow.Context, end func() error) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !s.ending }) // nobody cancels it
	s.ending = true
	defer func() { s.ending = false }()
	return end()
}
