package interceptors

import (
	"fmt"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/internal/protocol/run"
)

// sessionPrefix begins the names of the activities by which the SDK makes and ends sessions.
const sessionPrefix = "internalSession"

// workflowOutbound writes the guards of steps into their headers.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// guardedKey marks the context of a call that an outer copy of this interceptor has seen already.
type guardedKey struct{}

// ExecuteActivity numbers the step and, where its context or a rule asks for locks, writes its guard. It never blocks, and
// adds no command.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	plain := func(ctx workflow.Context) workflow.Future { return w.Next.ExecuteActivity(ctx, activityType, args...) }
	state := run.StateFrom(ctx)
	if state == nil || ctx.Value(guardedKey{}) != nil || ours(activityType) {
		return plain(ctx)
	}
	return guard(ctx, state.Step(ctx, activityType, args...), activityType, plain)
}

// ExecuteLocalActivity does the same for a local activity.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	plain := func(ctx workflow.Context) workflow.Future {
		return w.Next.ExecuteLocalActivity(ctx, activityType, args...)
	}
	state := run.StateFrom(ctx)
	if state == nil || ctx.Value(guardedKey{}) != nil || ours(activityType) {
		return plain(ctx)
	}
	return guard(ctx, state.LocalStep(ctx, activityType, args...), activityType, plain)
}

// guard schedules a step under its locks, where it has any.
func guard(ctx workflow.Context, step *run.Step, activityType string, plain func(workflow.Context) workflow.Future) workflow.Future {
	seen := workflow.WithValue(ctx, guardedKey{}, true)
	switch {
	case step.IsAround():
		return step.Around(seen, func(ctx workflow.Context) workflow.Future {
			if err := writeUnder(ctx, activityType); err != nil {
				return failed(ctx, err)
			}
			return plain(ctx)
		})
	case step.Lacks():
		return step.Under(seen, func(ctx workflow.Context) workflow.Future { return enter(ctx, step, activityType, plain) })
	}
	return enter(seen, step, activityType, plain)
}

// enter schedules a step with its guard, where it has one.
func enter(ctx workflow.Context, step *run.Step, activityType string, plain func(workflow.Context) workflow.Future) workflow.Future {
	if step.Guard == nil {
		return plain(ctx)
	}
	return watch(ctx, step, func(ctx workflow.Context) workflow.Future {
		if step.Retired() {
			return plain(ctx)
		}
		if err := writeGuard(ctx, step, activityType); err != nil {
			return failed(ctx, err)
		}
		return plain(ctx)
	})
}

// writeGuard puts the step's guard into the header of its next scheduling.
func writeGuard(ctx workflow.Context, step *run.Step, activityType string) error {
	payload, err := protocol.EncodeGuard(*step.Guard)
	if err != nil {
		return err
	}
	return writeHeader(ctx, activityType, protocol.HeaderKey, payload)
}

// writeUnder says in the header of a step, whose locks the workflow has taken, which run has them.
func writeUnder(ctx workflow.Context, activityType string) error {
	payload, err := protocol.EncodeUnder(workflow.GetInfo(ctx).WorkflowExecution.RunID)
	if err != nil {
		return err
	}
	return writeHeader(ctx, activityType, protocol.UnderKey, payload)
}

func writeHeader(ctx workflow.Context, activityType, key string, payload *commonpb.Payload) error {
	header := interceptor.WorkflowHeader(ctx)
	if header == nil {
		return fmt.Errorf("lockstep: activity %q has no header to carry its locks: an interceptor dropped it", activityType)
	}
	header[key] = payload
	return nil
}

// ExecuteChildWorkflow writes the party that the child inherits, where its context says so, into its header. After a reset it
// blocks until locks around code were taken anew: the SDK's selectors take no future for a child but its own.
func (w *workflowOutbound) ExecuteChildWorkflow(ctx workflow.Context, childType string, args ...any) workflow.ChildWorkflowFuture {
	if err := run.Adopt(ctx, interceptor.WorkflowHeader(ctx)); err != nil {
		panic(err) // a text that cannot be written as JSON
	}
	loose(ctx)
	return w.Next.ExecuteChildWorkflow(retaken(ctx), childType, args...)
}

// ExecuteNexusOperation blocks likewise.
func (w *workflowOutbound) ExecuteNexusOperation(ctx workflow.Context, in interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	loose(ctx)
	return w.Next.ExecuteNexusOperation(retaken(ctx), in)
}

// retaken is the context for what comes behind locks around code, see [run.State.Retaken].
func retaken(ctx workflow.Context) workflow.Context {
	state := run.StateFrom(ctx)
	if state == nil || ctx.Value(guardedKey{}) != nil {
		return ctx
	}
	return state.Retaken(workflow.WithValue(ctx, guardedKey{}, true))
}

// SignalExternalWorkflow signals after a reset when locks around code were taken anew. It does not block.
func (w *workflowOutbound) SignalExternalWorkflow(ctx workflow.Context, workflowID, runID, name string, arg any) workflow.Future {
	loose(ctx)
	return behind(ctx, func(ctx workflow.Context) workflow.Future {
		return w.Next.SignalExternalWorkflow(ctx, workflowID, runID, name, arg)
	})
}

// SignalChildWorkflow does the same for a child.
func (w *workflowOutbound) SignalChildWorkflow(ctx workflow.Context, workflowID, name string, arg any) workflow.Future {
	loose(ctx)
	return behind(ctx, func(ctx workflow.Context) workflow.Future {
		return w.Next.SignalChildWorkflow(ctx, workflowID, name, arg)
	})
}

// RequestCancelExternalWorkflow notes that something was sent out.
func (w *workflowOutbound) RequestCancelExternalWorkflow(ctx workflow.Context, workflowID, runID string) workflow.Future {
	loose(ctx)
	return w.Next.RequestCancelExternalWorkflow(ctx, workflowID, runID)
}

// loose notes that something was sent out which has no guard.
func loose(ctx workflow.Context) {
	if state := run.StateFrom(ctx); state != nil {
		state.Loose(ctx)
	}
}

func behind(ctx workflow.Context, do func(workflow.Context) workflow.Future) workflow.Future {
	state := run.StateFrom(ctx)
	if state == nil || ctx.Value(guardedKey{}) != nil {
		return do(ctx)
	}
	return state.Behind(workflow.WithValue(ctx, guardedKey{}, true), do)
}

// NewContinueAsNewError lets the next run keep the party that this one inherited.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	if state := run.StateFrom(ctx); state != nil {
		if err := state.Continue(interceptor.WorkflowHeader(ctx)); err != nil {
			panic(err) // a text that cannot be written as JSON
		}
	}
	return w.Next.NewContinueAsNewError(ctx, fn, args...)
}

// GetLogger returns the logger of the next one, but where nothing is to be logged.
func (w *workflowOutbound) GetLogger(ctx workflow.Context) log.Logger {
	return run.Logger(ctx, w.Next.GetLogger(ctx))
}

// ours tells whether an activity is part of the machinery, Lockstep's or the SDK's.
func ours(activityType string) bool {
	return strings.HasPrefix(activityType, protocol.ActivityPrefix) || strings.HasPrefix(activityType, sessionPrefix)
}

// watch schedules a step, waits for its locks where they are busy, and schedules it again. It returns a future that
// completes as the step does, after what became of it was noted, and whose error matches lockcore's where a lock was the
// reason. A struct around the future would do for Get, but not for selectors, which take only the SDK's own. Where the step
// does not have to wait the run's first coroutine settles the future, see [run.Step.Follow]; else one of the step's own.
func watch(ctx workflow.Context, step *run.Step, schedule func(workflow.Context) workflow.Future) workflow.Future {
	inner := schedule(ctx)
	outer, settable := workflow.NewFuture(ctx)
	settle := func(ctx workflow.Context, err error) {
		if outer.IsReady() {
			return
		}
		step.Done(ctx, err)
		if typed := protocol.TypedError(err); typed != nil {
			settable.SetError(step.Ended(step.Failed(typed)))
			return
		}
		settable.Chain(inner)
	}
	step.Follow(ctx, inner, settle)
	workflow.GoNamed(ctx, "lockstep-step", func(ctx workflow.Context) {
		err := inner.Get(ctx, nil)
		for busy, waits := run.Waits(ctx, err); waits; busy, waits = run.Waits(ctx, err) {
			if err := step.Wait(ctx, busy, err); err != nil {
				settable.SetError(step.Ended(err))
				return
			}
			ctx = step.Again(ctx, busy)
			inner = schedule(ctx)
			err = inner.Get(ctx, nil)
		}
		settle(ctx, err)
	})
	return outer
}

func failed(ctx workflow.Context, err error) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	settable.SetError(err)
	return future
}
