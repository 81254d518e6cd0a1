package run

import (
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// Around takes a step's locks in the workflow, runs the step, and lets them go, or leaves them to the step's scope. So the
// worker that runs the step need not know of locks.
func (t *Step) Around(ctx workflow.Context, step func(ctx workflow.Context) workflow.Future) workflow.Future {
	outer, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "lockstep-step", func(ctx workflow.Context) {
		lock := t.scope.state.NewLock(ctx, t.around)
		if err := lock.Acquire(ctx); err != nil {
			settable.SetError(err)
			return
		}
		if t.around.Scope == protocol.ScopeSaga && !t.scope.closed {
			t.scope.want(t.around.Resources)
			t.scope.hold(t.around.Resources, lock.others)
			lock.Release(ctx, ReleaseOptions{}) // nothing, since the scope wants it all
		}
		// The locks must not go while an attempt goes on that does not know of them.
		if opts := workflow.GetActivityOptions(ctx); !t.local {
			opts.WaitForCancellation = true
			ctx = workflow.WithActivityOptions(ctx, opts)
		}
		inner := step(ctx)
		_ = inner.Get(ctx, nil) // chained below
		lock.Release(ctx, ReleaseOptions{})
		settable.Chain(inner)
	})
	return outer
}

// IsAround tells whether the step is one for [Step.Around].
func (t *Step) IsAround() bool { return t.around != nil }
