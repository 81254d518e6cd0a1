package run

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

// lacks tells whether locks around code were held by the run before a reset, and are not yet by this one.
func (s *State) lacks() bool {
	return slices.ContainsFunc(s.open, func(c *Scope) bool { return c.lock != nil && len(c.lacks) > 0 })
}

// retake takes anew the locks around code that the run before a reset held, the outermost first.
func (s *State) retake(ctx workflow.Context) error {
	s.look()
	for _, c := range slices.Clone(s.open) {
		if c.lock == nil {
			continue
		}
		if err := c.lock.retake(ctx); err != nil {
			return err
		}
	}
	return nil
}

// retake waits for them as the first acquire did, once for all steps that need them. What it may have got where it fails,
// the next step asks for again, and the lock's release lets go of. On ctx something may run that undoes others: it must run.
func (l *Lock) retake(ctx workflow.Context) error {
	if len(l.step.scope.lacks) == 0 {
		return nil
	}
	if err := l.retaking.Lock(ctx); err != nil {
		return err
	}
	var err error
	if scope := l.step.scope; !scope.closed && len(scope.lacks) > 0 {
		before, maxWait := *l.step.Guard, l.step.maxWait
		l.step.Guard.Reacquire, l.step.waiting = l.reacquire, time.Time{}
		if isCompensating(ctx) {
			l.step.Guard.Reacquire, l.step.Guard.NeverVictim, l.step.Guard.Try, l.step.maxWait = true, true, false, 0
		}
		err = l.take(ctx, before.Resources, false)
		l.step.Guard.NeverVictim, l.step.Guard.Try, l.step.maxWait = before.NeverVictim, before.Try, maxWait
		if scope.closed { // then nothing is under it any more
			err = nil
		}
	}
	l.retaking.Unlock()
	return err
}

// Lacks tells that the step is under locks around code that are to be taken anew before it runs; see [Step.Under].
func (t *Step) Lacks() bool { return t.lacks }

// Under takes them, and then runs the step.
func (t *Step) Under(ctx workflow.Context, step func(ctx workflow.Context) workflow.Future) workflow.Future {
	outer, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "lockstep-retake", func(ctx workflow.Context) {
		if err := t.scope.state.retake(ctx); err != nil {
			settable.SetError(err)
			return
		}
		if t.Guard != nil {
			t.renumber(ctx)
		}
		inner := step(ctx)
		_ = inner.Get(ctx, nil) // chained below
		settable.Chain(inner)
	})
	return outer
}
