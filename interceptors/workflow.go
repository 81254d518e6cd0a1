package interceptors

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// workflowInbound gives a run its state. There is one for each run in the worker's cache. If the run is replayed, there is a new one, and
// the replay fills its state.
type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	state   *runstate.State
	isFirst func(kind, name string) bool
}

// Init installs the outbound side.
func (w *workflowInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&workflowOutbound{
		WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, isFirst: w.isFirst,
	})
}

// ExecuteWorkflow runs the workflow function with the state in its context. The state ends when the function has returned, and not in a deferred
// function: these also run when the workflow is evicted from the cache, and after a panic, after which the run continues and needs its locks.
func (w *workflowInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if runstate.StateFrom(ctx) != nil { // installed twice: the outer one does it
		return w.Next.ExecuteWorkflow(ctx, in)
	}
	if err := w.state.Begin(ctx, interceptor.WorkflowHeader(ctx)); err != nil {
		panic(err) // fails the workflow task, and not the workflow, until a worker that can read the header takes it
	}
	ctx = runstate.WithState(ctx, w.state)
	result, err := w.Next.ExecuteWorkflow(ctx, in)
	w.state.End(ctx, err)
	return result, wire.Recorded(err)
}

// ExecuteUpdate runs an update handler with the same state. Its context does not derive from that of the workflow function.
func (w *workflowInbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (any, error) {
	if runstate.StateFrom(ctx) == nil {
		ctx = runstate.WithState(ctx, w.state)
	}
	result, err := w.Next.ExecuteUpdate(ctx, in)
	return result, wire.Recorded(err)
}

// workflowOutbound writes the guards of steps into their headers.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	isFirst func(kind, name string) bool
}

// guardedKey marks the context of a call that an outer copy of this interceptor has handled already.
type guardedKey struct{}

// ExecuteActivity numbers the step and, if its context asks for locks, writes its guard. It never blocks, and adds no command but that of the step.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	state := runstate.StateFrom(ctx)
	if state != nil && strings.HasPrefix(activityType, "internalSession") { // the SDK begins or ends a session
		state.HasSessions = true
	}
	if state == nil || ctx.Value(guardedKey{}) != nil || wire.IsNeverGuarded(activityType) {
		return w.Next.ExecuteActivity(ctx, activityType, args...)
	}
	step, err := state.Step(ctx, activityType)
	ctx = workflow.WithValue(ctx, guardedKey{}, true)
	switch {
	case err != nil:
		return runstate.Failed(ctx, err)
	case step == nil:
		state.WriteRuleFacts(ctx, interceptor.WorkflowHeader(ctx))
		return w.Next.ExecuteActivity(ctx, activityType, args...)
	}
	return step.Run(ctx, w.Next.ExecuteActivity, activityType, args)
}

// ExecuteLocalActivity refuses a guarded one. The worker and not the server counts its attempts and sets their times, so they cannot be ordered.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if runstate.GuardsSteps(ctx) && !wire.IsNeverGuarded(activityType) {
		return runstate.Failed(ctx, runstate.Invalid("workflows.Guard", fmt.Sprintf("around the local activity %q", wire.Cut(activityType, 128)),
			"an ordinary activity, by workflow.ExecuteActivity; or workflows.Lock, and the local activity under workflows.Unguarded"))
	}
	return w.Next.ExecuteLocalActivity(ctx, activityType, args...)
}

// Go tracks coroutines, so that a step in a saga's function is recognised as the saga's even if its context comes from outside the saga.
func (w *workflowOutbound) Go(ctx workflow.Context, name string, f func(ctx workflow.Context)) workflow.Context {
	return w.Next.Go(ctx, name, runstate.TrackCoroutine(ctx, f))
}

// ExecuteChildWorkflow writes the owner that the child inherits into its header, if the context has one.
func (w *workflowOutbound) ExecuteChildWorkflow(ctx workflow.Context, childType string, args ...any) workflow.ChildWorkflowFuture {
	runstate.WriteOwner(ctx, interceptor.WorkflowHeader(ctx))
	w.logUnlocked(ctx, "child workflow", childType)
	return w.Next.ExecuteChildWorkflow(ctx, childType, args...)
}

// ExecuteNexusOperation logs a guard, which locks nothing around an operation.
func (w *workflowOutbound) ExecuteNexusOperation(ctx workflow.Context, in interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	name := fmt.Sprint(in.Operation)
	if reference, ok := in.Operation.(interface{ Name() string }); ok {
		name = reference.Name()
	}
	w.logUnlocked(ctx, "Nexus operation", name)
	return w.Next.ExecuteNexusOperation(ctx, in)
}

// NewContinueAsNewError lets the next run keep the owner that this one inherited.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	if state := runstate.StateFrom(ctx); state != nil {
		state.Continue(interceptor.WorkflowHeader(ctx))
	}
	return w.Next.NewContinueAsNewError(ctx, fn, args...)
}

// logUnlocked logs an error, once for each type, if ctx has a guard, which cannot lock a call of this kind. The call is not refused, because one
// context often serves several calls.
func (w *workflowOutbound) logUnlocked(ctx workflow.Context, kind, name string) {
	if runstate.GuardsSteps(ctx) && !workflow.IsReplaying(ctx) && w.isFirst(kind, name) {
		workflow.GetLogger(ctx).Error(fmt.Sprintf("lockstep: a guard around a %s locks nothing while that runs: take the locks by workflows.Lock, "+
			"or call it under workflows.Unguarded", kind), "type", name)
	}
}
