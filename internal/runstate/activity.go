package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

const (
	// localTimeout bounds the local activity, which delays the workflow task.
	localTimeout = 2 * time.Second
	// attemptTimeout bounds one attempt of an ordinary activity: the database answers within it, or fails.
	attemptTimeout = 10 * time.Second
	// verifyTimeout bounds all attempts to verify, unless the user sets another timeout.
	verifyTimeout = 10 * time.Minute
	// highestPriority is the key of the highest priority of a task.
	highestPriority = 1
)

// runLocalFirst runs an activity that verifies. Because the activity changes nothing for other parties, it may run twice, or in a workflow
// task that is never recorded. It runs as a local activity first, once and briefly: that adds one event, and no signal can arrive in
// between. If the local activity cannot find out what is held, it is repeated as an ordinary one. timeout bounds the ordinary activity with
// all its attempts; 0 means verifyTimeout.
func (s *State) runLocalFirst(ctx workflow.Context, name, summary string, timeout time.Duration, params any) error {
	summary = wire.Cut(summary, 120)
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: localTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                summary,
	}), name, params).Get(ctx, nil)
	if err == nil || ctx.Err() != nil || !isUndecided(err) {
		return err
	}
	o := workflow.ActivityOptions{Summary: summary, StartToCloseTimeout: attemptTimeout, ScheduleToCloseTimeout: cmp.Or(timeout, verifyTimeout)}
	return s.runActivity(ctx, o, name, params, nil, func() bool { return false })
}

// isUndecided reports whether the error of a local activity does not show what is held.
func isUndecided(err error) bool {
	var app *temporal.ApplicationError
	return !temporal.IsCanceledError(err) && (!errors.As(err, &app) || !app.NonRetryable())
}

// runActivity runs an ordinary activity until it ends, ctx is cancelled or mustStop returns true. It has the data converter of ctx, unless
// ctx is in a session.
func (s *State) runActivity(ctx workflow.Context, o workflow.ActivityOptions, name string, params, result any, mustStop func() bool) error {
	ours, cancel := workflow.NewDisconnectedContext(s.outsideSession(ctx))
	defer cancel()
	future := s.schedule(ours, o, name, params)
	if err := workflow.Await(ctx, func() bool { return future.IsReady() || mustStop() }); err != nil || mustStop() {
		cancel()
	}
	return future.Get(ctx, result)
}

// outsideSession returns ctx, or the context of the run if ctx is in a session. The SDK sends all activities of a session to the session's
// worker, which may have no Lockstep.
func (s *State) outsideSession(ctx workflow.Context) workflow.Context {
	if Session(ctx) == nil {
		return ctx
	}
	return s.base
}

// schedule schedules an ordinary activity. It has the highest priority, because others may wait for the locks that it releases, and the
// fairness key of the step that waits.
func (s *State) schedule(ctx workflow.Context, o workflow.ActivityOptions, name string, params any) workflow.Future {
	if o.TaskQueue == "" {
		o.TaskQueue = cmp.Or(s.taskQueue, workflow.GetInfo(ctx).TaskQueueName)
	}
	o.Priority.PriorityKey = highestPriority
	o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, params)
}

// Encode returns the arguments of an activity as they are now, encoded by the data converter of ctx. A later change through a pointer does
// not affect them.
func Encode(ctx workflow.Context, args []any) (encoded []any, err error) {
	defer func() {
		if r := recover(); r != nil { // NewContinueAsNewError panics if it cannot encode an argument
			err = fmt.Errorf("%v", r)
		}
	}()
	for _, arg := range args {
		// The SDK has no other function that encodes a value with the data converter of a context. A future undoes the codec's part,
		// because ExecuteActivity will repeat it.
		var next *workflow.ContinueAsNewError
		errors.As(workflow.NewContinueAsNewError(ctx, "lockstep-arguments", arg), &next)
		future, settable := workflow.NewFuture(ctx)
		settable.SetValue(next.Input)
		var value converter.RawValue
		if err := future.Get(ctx, &value); err != nil {
			return nil, err
		}
		if value.Payload() == nil {
			return nil, errors.New("the data converter does not support converter.RawValue")
		}
		encoded = append(encoded, value)
	}
	return encoded, nil
}
