package interceptors

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// workflowInbound gives a run its state. There is one for each run in the cache, and another one when
// the run is replayed, with a state of its own that the replay fills.
type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	state *runstate.State
}

func newWorkflowInbound(next interceptor.WorkflowInboundInterceptor, state *runstate.State) *workflowInbound {
	return &workflowInbound{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, state: state}
}

// Init puts the outbound side into the chain.
func (w *workflowInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&workflowOutbound{
		WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound},
	})
}

// ExecuteWorkflow runs the workflow function with the state in its context, and has what the run holds
// released once it has closed, or leaves it to the run that continues it. Not in a deferred
// function: those run on eviction too, and after a panic, which must leave the locks to the run that is tried again.
func (w *workflowInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if runstate.StateFrom(ctx) != nil { // installed twice: the outer one does it
		return w.Next.ExecuteWorkflow(ctx, in)
	}
	if err := w.state.Begin(ctx, interceptor.WorkflowHeader(ctx)); err != nil {
		panic(err) // fails the workflow task, and not the workflow, until a worker comes that can read the header
	}
	ctx = runstate.WithState(ctx, w.state)
	result, err := w.Next.ExecuteWorkflow(ctx, in)
	ended := w.state.End(ctx, err)
	if ended != nil {
		result = nil
	}
	return result, wire.Recorded(ended)
}

// ExecuteUpdate runs an update handler, whose context does not derive from the workflow function's,
// with the same state.
func (w *workflowInbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (any, error) {
	if runstate.StateFrom(ctx) == nil {
		ctx = runstate.WithState(ctx, w.state)
	}
	result, err := w.Next.ExecuteUpdate(ctx, in)
	return result, wire.Recorded(err)
}
