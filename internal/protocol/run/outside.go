package run

import "go.temporal.io/sdk/workflow"

// outside returns ctx for an activity of ours that goes to the workflow's own workers. Within a session it is another one,
// that is cancelled with ctx: the SDK sends all activities in a session to the session's worker, which need not know of
// locks, and refuses them where that worker is gone.
func (s *State) outside(ctx workflow.Context) workflow.Context {
	if workflow.GetSessionInfo(ctx) == nil {
		return ctx
	}
	out, cancel := workflow.WithCancel(s.base)
	workflow.GoNamed(ctx, "lockstep-session", func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		cancel()
	})
	return out
}

// apart is the same, and not cancelled with ctx.
func (s *State) apart(ctx workflow.Context) (workflow.Context, workflow.CancelFunc) {
	if workflow.GetSessionInfo(ctx) != nil {
		ctx = s.base
	}
	return workflow.NewDisconnectedContext(ctx)
}
