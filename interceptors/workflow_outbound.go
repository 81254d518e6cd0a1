package interceptors

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// workflowOutbound writes the guards of steps into their headers.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// guardedKey marks the context of a call that an outer copy of this interceptor has seen already.
type guardedKey struct{}

// ExecuteActivity numbers the step and, if its context asks for locks, writes its guard. It never blocks, and
// adds no command.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	plain := func(ctx workflow.Context) workflow.Future { return w.Next.ExecuteActivity(ctx, activityType, args...) }
	state := runstate.StateFrom(ctx)
	if state != nil && strings.HasPrefix(activityType, "internalSession") { // by which the SDK begins a session
		state.HasSessions = true
	}
	if state == nil || ctx.Value(guardedKey{}) != nil || wire.IsMachinery(activityType) {
		return plain(ctx)
	}
	step, err := state.Step(ctx, activityType)
	ctx = workflow.WithValue(ctx, guardedKey{}, true)
	switch {
	case err != nil:
		return failed(ctx, err)
	case step == nil:
		return plain(ctx)
	}
	if encoded, err := runstate.Encode(ctx, args); err == nil { // otherwise the SDK reports what it cannot encode
		args = encoded // a step that has waited is scheduled again with the same
	}
	return w.watch(ctx, step, func(ctx workflow.Context) workflow.Future {
		if err := writeGuard(ctx, step, activityType); err != nil {
			return failed(ctx, err)
		}
		return plain(ctx)
	})
}

// ExecuteLocalActivity refuses a guarded one.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if !wire.IsMachinery(activityType) {
		if err := runstate.RefuseLocal(ctx, activityType); err != nil {
			return failed(ctx, err)
		}
	}
	return w.Next.ExecuteLocalActivity(ctx, activityType, args...)
}

// Go tells coroutines apart, so that a step in a saga's function is found whose context comes from
// outside the saga.
func (w *workflowOutbound) Go(ctx workflow.Context, name string, f func(ctx workflow.Context)) workflow.Context {
	return w.Next.Go(ctx, name, runstate.Go(ctx, f))
}

// writeGuard puts the step's guard into the header of its next scheduling.
func writeGuard(ctx workflow.Context, step *runstate.Step, activityType string) error {
	payload, err := wire.EncodeGuard(*step.Guard)
	if err != nil {
		return err
	}
	header := interceptor.WorkflowHeader(ctx)
	if header == nil {
		return fmt.Errorf("lockstep: activity %q has no header to carry its locks: an interceptor dropped it", activityType)
	}
	header[wire.HeaderKey] = payload
	return nil
}

// ExecuteChildWorkflow writes the party that the child inherits, if its context says so, into its header.
func (w *workflowOutbound) ExecuteChildWorkflow(ctx workflow.Context, childType string, args ...any) workflow.ChildWorkflowFuture {
	if err := runstate.Adopt(ctx, interceptor.WorkflowHeader(ctx)); err != nil {
		panic(err) // a text that cannot be written as JSON
	}
	return w.Next.ExecuteChildWorkflow(ctx, childType, args...)
}

// NewContinueAsNewError lets the next run keep the party that this one inherited.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	if state := runstate.StateFrom(ctx); state != nil {
		if err := state.Continue(interceptor.WorkflowHeader(ctx)); err != nil {
			panic(err) // a text that cannot be written as JSON
		}
	}
	return w.Next.NewContinueAsNewError(ctx, fn, args...)
}

// watch schedules a step, and again after each wait for its locks. It returns a future that
// completes as the step does, after what became of it was noted, and whose error matches lockcore's
// if a lock was the reason. A struct around the future would do for Get, but not for selectors,
// which take only the SDK's own.
func (w *workflowOutbound) watch(ctx workflow.Context, step *runstate.Step, schedule func(workflow.Context) workflow.Future) workflow.Future {
	inner := schedule(ctx)
	if inner.IsReady() { // it was refused, and not scheduled
		return inner
	}
	step.Scheduled()
	outer, settable := workflow.NewFuture(ctx)
	run := func(own workflow.Context) {
		err := step.Enter(own, func(own workflow.Context) error {
			if inner == nil {
				inner = schedule(own)
			}
			this := inner
			err := this.Get(own, nil)
			if _, parked := wire.Parked(err); parked {
				inner = nil
			}
			return err
		})
		if err != nil {
			settable.SetError(err)
			return
		}
		w.pass(own, ctx, inner, settable)
	}
	runstate.StateFrom(ctx).When(inner, func(own workflow.Context) {
		if runstate.IsOver(inner.Get(own, nil)) {
			run(own)
			return
		}
		workflow.GoNamed(ctx, "lockstep-step", run)
	})
	return outer
}

// pass hands the result of a step on. A future that is chained to another decodes with the
// workflow's data converter. One that looks at what the payload belongs to may have made it with
// the step's: the future of the step undoes that, and the result is made for the workflow, as the
// input of a run that continues this one is, which no run becomes. own is the context of the
// coroutine that calls, and ctx that of the step.
func (w *workflowOutbound) pass(own, ctx workflow.Context, from workflow.Future, to workflow.Settable) {
	var raw converter.RawValue
	if from.Get(own, &raw) != nil || raw.Payload() == nil {
		to.Chain(from)
		return
	}
	var anew *workflow.ContinueAsNewError
	if !errors.As(w.Next.NewContinueAsNewError(ctx, "lockstep-result", raw), &anew) {
		to.Chain(from)
		return
	}
	to.SetValue(anew.Input)
}

func failed(ctx workflow.Context, err error) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	settable.SetError(err)
	return future
}
