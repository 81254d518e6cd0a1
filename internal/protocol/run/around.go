package run

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// Around takes a step's locks in the workflow, runs the step, and lets them go, or leaves them to the step's scope. So the
// worker that runs the step need not know of locks. One that does refuses a step that a run before a reset has scheduled: then
// they are taken anew, and the step is scheduled again.
func (t *Step) Around(ctx workflow.Context, step func(ctx workflow.Context) workflow.Future) workflow.Future {
	outer, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "lockstep-step", func(ctx workflow.Context) {
		lock, err := t.lockAround(ctx)
		if err != nil {
			settable.SetError(err)
			return
		}
		// The locks must not go while an attempt goes on that does not know of them.
		if opts := workflow.GetActivityOptions(ctx); !t.local {
			opts.WaitForCancellation = true
			ctx = workflow.WithActivityOptions(ctx, opts)
		}
		inner := step(ctx)
		for protocol.WasReset(inner.Get(ctx, nil)) {
			if lock, err = t.lockAgain(ctx, lock); err != nil {
				settable.SetError(err)
				return
			}
			inner = step(ctx)
		}
		lock.Release(ctx, ReleaseOptions{})
		settable.Chain(inner)
	})
	return outer
}

// lockAround takes the locks, and for a saga all that it held before a reset. They are the saga's then, and the Lock is closed.
func (t *Step) lockAround(ctx workflow.Context) (*Lock, error) {
	want := *t.around
	if want.Scope != protocol.ScopeStep {
		want.Resources = append(slices.Clone(want.Resources), t.scope.missing(want.Resources)...)
	}
	lock := t.scope.state.NewLock(ctx, &want)
	lock.step.within = t.scope
	if err := lock.Acquire(ctx); err != nil {
		return nil, err
	}
	if lock.step.over(ctx) {
		lock.Release(ctx, ReleaseOptions{})
		return nil, protocol.NewWaitEnded(true)
	}
	if want.Scope == protocol.ScopeSaga && !t.scope.closed {
		t.scope.want(want.Resources)
		t.scope.hold(want.Resources, lock.others)
		lock.Release(ctx, ReleaseOptions{}) // nothing, since the scope wants it all
	}
	return lock, nil
}

// lockAgain takes them anew after a reset. What it may have got where it fails is released.
func (t *Step) lockAgain(ctx workflow.Context, lock *Lock) (*Lock, error) {
	t.scope.state.look()
	if lock.step.scope.closed {
		return t.lockAround(ctx)
	}
	err := t.scope.state.retake(ctx)
	if err != nil {
		lock.Release(ctx, ReleaseOptions{})
	}
	return lock, err
}

// IsAround tells whether the step is one for [Step.Around].
func (t *Step) IsAround() bool { return t.around != nil }
