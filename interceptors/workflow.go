package interceptors

import (
	"fmt"
	"strings"
	"sync"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// workflowInbound gives a run its state. There is one for each run in the worker's cache. If the run is replayed, there is a new one, and
// the replay fills its state.
type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	state    *runstate.State
	unlocked *unlockedCalls
}

// Init installs the outbound side.
func (w *workflowInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&workflowOutbound{
		WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, unlocked: w.unlocked,
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
	unlocked *unlockedCalls
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

// ExecuteLocalActivity refuses a guarded one.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if !wire.IsNeverGuarded(activityType) {
		if err := runstate.RefuseLocal(ctx, activityType); err != nil {
			return runstate.Failed(ctx, err)
		}
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
	w.unlocked.check(ctx, "child workflow", childType)
	return w.Next.ExecuteChildWorkflow(ctx, childType, args...)
}

// ExecuteNexusOperation logs a guard, which locks nothing around an operation.
func (w *workflowOutbound) ExecuteNexusOperation(ctx workflow.Context, in interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	w.unlocked.check(ctx, "Nexus operation", nexusName(in))
	return w.Next.ExecuteNexusOperation(ctx, in)
}

// NewContinueAsNewError lets the next run keep the owner that this one inherited.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	if state := runstate.StateFrom(ctx); state != nil {
		state.Continue(interceptor.WorkflowHeader(ctx))
	}
	return w.Next.NewContinueAsNewError(ctx, fn, args...)
}

// unlockedCalls logs calls under a guard that a guard cannot lock, once for each type. They are not refused, because one context often
// serves several calls.
type unlockedCalls struct{ logged sync.Map }

// check logs an error if steps under ctx take locks. what names the kind of the call.
func (u *unlockedCalls) check(ctx workflow.Context, what, name string) {
	if !runstate.GuardsSteps(ctx) || workflow.IsReplaying(ctx) {
		return
	}
	if _, logged := u.logged.LoadOrStore(what+" "+name, true); !logged {
		workflow.GetLogger(ctx).Error(fmt.Sprintf("lockstep: a guard around a %s locks nothing while that runs: take the locks by workflows.Lock, "+
			"or call it under workflows.Unguarded", what), "type", name)
	}
}

// nexusName returns the name of a Nexus operation, which is its reference or a text.
func nexusName(in interceptor.ExecuteNexusOperationInput) string {
	if operation, ok := in.Operation.(interface{ Name() string }); ok {
		return operation.Name()
	}
	return fmt.Sprint(in.Operation)
}
