package runstate

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

const (
	// localTimeout bounds the local activity, which holds up the workflow task.
	localTimeout = 2 * time.Second
	// attemptTimeout bounds one attempt of the ordinary activity: the database answers within it,
	// or fails.
	attemptTimeout = 10 * time.Second
	// verifyTimeout bounds all attempts to verify, unless the user says otherwise.
	verifyTimeout = 10 * time.Minute
)

// task is an activity that verifies. It changes nothing for other parties, so it may run twice, or in a
// workflow task that is never recorded. First it is a local activity, tried once and briefly: that adds
// one event, and no signal can arrive in between. If the local activity cannot tell what is held, it is
// repeated as an ordinary one.
type task struct {
	name, summary string
	params        any
	// timeout bounds the ordinary activity with all its attempts. Defaults to verifyTimeout.
	timeout time.Duration
}

func (s *State) run(ctx workflow.Context, t task) error {
	summary := wire.Cut(t.summary, 120)
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: localTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                summary,
	}), t.name, t.params).Get(ctx, nil)
	if err == nil || ctx.Err() != nil || !isOpen(err) {
		return err
	}
	o := workflow.ActivityOptions{Summary: summary, StartToCloseTimeout: attemptTimeout, ScheduleToCloseTimeout: cmp.Or(t.timeout, verifyTimeout)}
	return s.ordinary(ctx, o, t.name, t.params, nil, func() bool { return false })
}

// ordinary runs an ordinary activity until it ends, ctx is cancelled or over says so. It has the data
// converter of ctx, unless ctx is in a session.
func (s *State) ordinary(ctx workflow.Context, o workflow.ActivityOptions, name string, params, result any, over func() bool) error {
	ours, cancel := workflow.NewDisconnectedContext(s.outside(ctx))
	defer cancel()
	future := s.schedule(ours, o, name, params)
	if err := workflow.Await(ctx, func() bool { return future.IsReady() || over() }); err != nil || over() {
		cancel()
	}
	return future.Get(ctx, result)
}

// outside returns ctx, or the context of the run if ctx is in a session: the SDK sends all activities
// of a session to the session's worker, which need not know of locks.
func (s *State) outside(ctx workflow.Context) workflow.Context {
	if Session(ctx) == nil {
		return ctx
	}
	return s.base
}

// highest is the key of the highest priority of a task.
const highest = 1

// schedule schedules an ordinary activity. It has the highest priority, since others may wait for what
// it releases, and has the fairness key of the step for which it waits.
func (s *State) schedule(ctx workflow.Context, o workflow.ActivityOptions, name string, params any) workflow.Future {
	if o.TaskQueue == "" {
		o.TaskQueue = cmp.Or(s.taskQueue, workflow.GetInfo(ctx).TaskQueueName)
	}
	o.Priority.PriorityKey = highest
	o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, params)
}

// isOpen reports whether a local activity that failed so leaves it open what is held.
func isOpen(err error) bool {
	var app *temporal.ApplicationError
	return !temporal.IsCanceledError(err) && (!errors.As(err, &app) || !app.NonRetryable())
}
