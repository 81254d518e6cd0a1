package workflows

import (
	"fmt"
	"reflect"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// compensation undoes one step.
type compensation struct {
	number   int
	activity string
	// undoes is the future of the step that it undoes, or nil.
	undoes workflow.Future
	// ctx is the context of the registration. Its options and locks are the compensation's.
	ctx workflow.Context
	fn  func(ctx workflow.Context) error
	// done is the future of its result, once it has started.
	done workflow.Future
}

// add registers a compensation, unless the saga has ended: then it would never run.
func (s *Saga) add(ctx workflow.Context, activity string, fn func(ctx workflow.Context) error) (*compensation, error) {
	if s.ended {
		return nil, ended("Compensate")
	}
	s.registered++
	c := &compensation{number: s.registered, activity: activity, ctx: ctx, fn: fn}
	s.pending = append(s.pending, c)
	return c, nil
}

// compensate runs the pending compensations, in reverse order, and the compensations that sagas inside them hand over. It returns the
// failures, and the number of compensations that ran. Before each, and before it returns, it waits for sagas inside this one that are being undone.
// If a saga begins to be undone later, both run at the same time, because a compensation may wait for it.
func (s *Saga) compensate(ctx workflow.Context) (failed []*CompensationError, ran int) {
	for s.nested.AwaitInner(ctx); len(s.pending) > 0; s.nested.AwaitInner(ctx) {
		batch := s.next(ctx, s.parallel)
		for _, c := range batch {
			c.start(ctx)
		}
		for _, c := range batch {
			ran++
			if err := c.done.Get(ctx, nil); err != nil {
				failed = append(failed, &CompensationError{Number: c.number, Activity: c.activity, Err: err})
			}
		}
	}
	return failed, ran
}

// next takes the compensations that run next from the pending ones: all of them in reverse order, or only the last. It drops those whose
// step is known never to have run.
func (s *Saga) next(ctx workflow.Context, all bool) []*compensation {
	from := len(s.pending) - 1
	if all {
		from = 0
	}
	next := slices.DeleteFunc(slices.Clone(s.pending[from:]), func(c *compensation) bool { return c.isVoid(ctx) })
	slices.Reverse(next)
	s.pending = s.pending[:from]
	return next
}

// isVoid reports whether the step that the compensation undoes is known never to have run.
func (c *compensation) isVoid(ctx workflow.Context) bool {
	return c.undoes != nil && c.undoes.IsReady() && wire.NeverRan(c.undoes.Get(ctx, nil))
}

// start runs the compensation in a coroutine of its own: the context of its registration may belong to a coroutine that has ended, and a
// context can block only in its own coroutine.
func (c *compensation) start(ctx workflow.Context) {
	future, settable := workflow.NewFuture(ctx)
	c.done = future
	uncancelled, _ := workflow.NewDisconnectedContext(c.ctx)
	workflow.GoNamed(runstate.WithCompensating(uncancelled), fmt.Sprintf("compensation-%d", c.number), func(ctx workflow.Context) {
		settable.Set(nil, c.fn(ctx))
	})
}

// runUndo runs an activity that undoes a step, in the worker session of ctx unless that has failed.
func runUndo(ctx workflow.Context, activity any, args []any) error {
	options := workflow.GetActivityOptions(ctx)
	options.ActivityID = "" // which is the step's
	ctx = workflow.WithActivityOptions(ctx, options)
	session := runstate.Session(ctx)
	if !hasFailed(session) {
		inSession, cancel := workflow.WithCancel(ctx)
		defer cancel()
		future := workflow.ExecuteActivity(inSession, activity, args...)
		_ = workflow.Await(ctx, func() bool { return future.IsReady() || hasFailed(session) }) // ctx is disconnected: no error
		if !hasFailed(session) {
			return future.Get(ctx, nil)
		}
	}
	return workflow.ExecuteActivity(runstate.OutsideSession(ctx), activity, args...).Get(ctx, nil)
}

func hasFailed(session *workflow.SessionInfo) bool {
	return session != nil && session.SessionState == workflow.SessionStateFailed
}

// activityName returns the display name of an activity that is given as a string or a function; "" for anything else.
func activityName(activity any) string {
	if name, ok := activity.(string); ok {
		return name
	}
	v := reflect.ValueOf(activity)
	if v.Kind() != reflect.Func {
		return ""
	}
	return wire.FuncName(v)
}
