package interceptors

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/internal/protocol/run"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// sessionPrefix begins the names of the activities by which the SDK makes and ends sessions.
const sessionPrefix = "internalSession"

// workflowOutbound writes the guards of steps into their headers.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// guardedKey marks the context of a call that an outer copy of this interceptor has seen already.
type guardedKey struct{}

// ExecuteActivity numbers the step and, where its context carries locks, writes its guard. It never
// blocks, and adds no command.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	state := run.StateFrom(ctx)
	if state == nil || ctx.Value(guardedKey{}) != nil || ours(activityType) {
		return w.Next.ExecuteActivity(ctx, activityType, args...)
	}
	step := state.Step(ctx, activityType)
	seen := workflow.WithValue(ctx, guardedKey{}, true)
	if step.Guard == nil {
		return w.Next.ExecuteActivity(seen, activityType, args...)
	}
	payload, err := protocol.EncodeGuard(*step.Guard)
	header := interceptor.WorkflowHeader(ctx)
	if err == nil && header == nil {
		err = fmt.Errorf("lockstep: activity %q has no header to carry its locks: an interceptor dropped it", activityType)
	}
	if err != nil {
		return failed(ctx, err)
	}
	header[protocol.HeaderKey] = payload
	return watch(ctx, step, w.Next.ExecuteActivity(seen, activityType, args...))
}

// ExecuteLocalActivity refuses local activities under locks: no header of theirs reaches the activity side's
// retries and timeouts.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if run.LocksFrom(ctx) != nil && !ours(activityType) {
		return failed(ctx, &lockcore.InvalidError{
			Field: "local activity", Value: fmt.Sprintf("%q", activityType),
			Bound: "an ordinary activity under locks, or a context from workflows.Unguarded",
		})
	}
	return w.Next.ExecuteLocalActivity(ctx, activityType, args...)
}

// ours tells whether an activity is part of the machinery, Lockstep's or the SDK's.
func ours(activityType string) bool {
	return strings.HasPrefix(activityType, protocol.ActivityPrefix) || strings.HasPrefix(activityType, sessionPrefix)
}

// watch returns a future that completes as step's does, after what became of it was noted, and whose
// error matches lockcore's where a lock was the reason. A struct around the future would do for Get,
// but not for selectors, which take only the SDK's own.
func watch(ctx workflow.Context, step *run.Step, inner workflow.Future) workflow.Future {
	outer, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "lockstep-step", func(ctx workflow.Context) {
		err := inner.Get(ctx, nil)
		step.Done(err)
		if typed := protocol.TypedError(err); typed != nil {
			settable.SetError(typed)
			return
		}
		settable.Chain(inner)
	})
	return outer
}

func failed(ctx workflow.Context, err error) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	settable.SetError(err)
	return future
}
