package sagalocks

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

const (
	// localTimeout bounds the local activity, which holds up the workflow task.
	localTimeout = 2 * time.Second
	// attemptTimeout bounds one attempt of the ordinary activity: the database answers within it,
	// or fails.
	attemptTimeout = 10 * time.Second
	// releaseTimeout bounds all attempts to let go.
	releaseTimeout = 10 * time.Minute
	// forEver is a timeout of none.
	forEver = time.Duration(-1)
)

// task is one activity of Lockstep's own: a local one, which is one event, tried once and briefly;
// and if that leaves it open whether it was done, an ordinary one.
type task struct {
	name, summary string
	params        any
	// timeout bounds the ordinary activity with all its attempts. Defaults to releaseTimeout.
	timeout time.Duration
	// again makes the params of the ordinary activity; nil params mean that there is to be none.
	// Defaults to params.
	again func() any
}

func (s *State) run(ctx workflow.Context, t task, result any) error {
	summary := protocol.Cut(t.summary, 120)
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: localTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                summary,
	}), t.name, t.params).Get(ctx, result)
	if err == nil || ctx.Err() != nil || !isOpen(err) {
		return err
	}
	if t.again != nil {
		if t.params = t.again(); t.params == nil {
			return err
		}
	}
	o := workflow.ActivityOptions{Summary: summary, StartToCloseTimeout: attemptTimeout}
	if o.ScheduleToCloseTimeout = cmp.Or(t.timeout, releaseTimeout); t.timeout == forEver {
		o.ScheduleToCloseTimeout = 0
	}
	return s.ordinary(ctx, o, t.name, t.params, result, func() bool { return false })
}

// ordinary runs an ordinary activity until it ends, ctx is cancelled or over says so. It runs on
// the run's own context. The options and the session of ctx are the user's: the SDK sends all
// activities of a session to the session's worker, which need not know of locks.
func (s *State) ordinary(ctx workflow.Context, o workflow.ActivityOptions, name string, params, result any, over func() bool) error {
	ours, cancel := workflow.NewDisconnectedContext(s.base)
	defer cancel()
	if o.TaskQueue == "" {
		o.TaskQueue = workflow.GetInfo(ctx).TaskQueueName
	}
	o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ours, o), name, params)
	if err := workflow.Await(ctx, func() bool { return future.IsReady() || over() }); err != nil || over() {
		cancel()
	}
	return future.Get(ctx, result)
}

// isOpen reports whether a local activity that failed so leaves it open what became of it. A
// request that was overtaken does: a local activity whose result the worker could not record runs
// again under the same number, and what it asked for was granted and left by then.
func isOpen(err error) bool {
	var app *temporal.ApplicationError
	details, parked := protocol.Parked(err)
	switch {
	case temporal.IsCanceledError(err):
		return false
	case parked: // a worker of activities may reach a database that this one does not
		return details.Unavailable
	case !errors.As(err, &app):
		return true
	default:
		return !app.NonRetryable() || app.Type() == protocol.FailureSuperseded
	}
}
