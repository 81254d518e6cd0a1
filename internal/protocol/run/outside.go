package run

import (
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"
)

// quietKey marks a context on which nothing is logged.
type quietKey struct{}

// silence is a logger that drops everything.
type silence struct{}

func (silence) Debug(string, ...any) {}
func (silence) Info(string, ...any)  {}
func (silence) Warn(string, ...any)  {}
func (silence) Error(string, ...any) {}

// Logger is the logger for what is logged under ctx: logger, or one that drops it.
func Logger(ctx workflow.Context, logger log.Logger) log.Logger {
	if ctx.Value(quietKey{}) != nil {
		return silence{}
	}
	return logger
}

// inSession tells whether ctx is within a session. The SDK warns where it is not, as if it had to be.
func inSession(ctx workflow.Context) bool {
	return workflow.GetSessionInfo(workflow.WithValue(ctx, quietKey{}, true)) != nil
}

// outside returns ctx for an activity of ours that goes to the workflow's own workers. Within a session it is another one,
// that is cancelled with ctx: the SDK sends all activities in a session to the session's worker, which need not know of
// locks, and refuses them where that worker is gone.
func (s *State) outside(ctx workflow.Context) workflow.Context {
	if !inSession(ctx) {
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
	if inSession(ctx) {
		ctx = s.base
	}
	return workflow.NewDisconnectedContext(ctx)
}
