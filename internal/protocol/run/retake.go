package run

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

// lacks tells whether locks around code were held by the run before a reset, and are not yet by this one.
func (s *State) lacks() bool {
	return slices.ContainsFunc(s.open, func(c *Scope) bool { return c.lock != nil && !c.closed && len(c.lacks) > 0 })
}

// versionAnew is the change ID of taking locks around code anew at once after a reset, and of what others see waiting for that: child
// workflows and signals. It is asked for at the first of these, in a run that was reset under such a lock.
const versionAnew = "lockstep.anew"

// takesAnew tells whether this run does so.
func takesAnew(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, versionAnew, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// mustRetake tells whether what comes next has to wait until locks around code are taken anew.
func (s *State) mustRetake(ctx workflow.Context) bool {
	s.look()
	return s.lacks() && takesAnew(ctx)
}

// watch takes locks around code anew as soon as a reset is noticed, whatever the workflow waits for: what a coroutine waits for is
// looked at in every workflow task, the first after a reset too.
func (s *State) watch() {
	if s.watching {
		return
	}
	s.watching = true
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	workflow.GoNamed(ctx, "lockstep-anew", func(ctx workflow.Context) {
		for {
			until(ctx, func() bool {
				s.look()
				return s.lacks()
			})
			afterOthers(ctx)
			switch {
			case !s.lacks():
				continue // they were taken, released, or are known to be lost
			case !takesAnew(ctx):
				return
			}
			if err := s.retake(ctx); err != nil {
				workflow.GetLogger(ctx).Warn("lockstep: a lock was not taken anew after a reset, and is asked for again by what needs it next", "error", err)
				until(ctx, func() bool { return !s.lacks() })
			}
		}
	})
}

// until waits, on a context that nobody cancels.
func until(ctx workflow.Context, is func() bool) { _ = workflow.Await(ctx, is) }

// afterOthers lets all other coroutines go on first: they may be about to learn of a loss from what the run before has left
// to be dealt with.
func afterOthers(ctx workflow.Context) {
	last := false
	workflow.GoNamed(ctx, "lockstep-last", func(workflow.Context) { last = true })
	until(ctx, func() bool { return last })
}

// Behind does what others see, after the locks around code were taken anew that a run before a reset held. It does not block.
func (s *State) Behind(ctx workflow.Context, do func(ctx workflow.Context) workflow.Future) workflow.Future {
	if !s.mustRetake(ctx) {
		return do(ctx)
	}
	outer, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "lockstep-retake", func(ctx workflow.Context) {
		if err := s.retake(ctx); err != nil {
			settable.SetError(err)
			return
		}
		settable.Chain(do(ctx))
	})
	return outer
}

// Retaken blocks until those locks were taken anew, and returns the context for what comes behind them: ctx, or one that has
// ended with the reason why they cannot be had. It is for what returns a future that only the SDK can make.
func (s *State) Retaken(ctx workflow.Context) workflow.Context {
	if !s.mustRetake(ctx) {
		return ctx
	}
	if err := s.retake(ctx); err != nil {
		return failedContext{ctx, err}
	}
	return ctx
}

// failedContext has ended with an error. The SDK starts nothing under it, and the error is the future's.
type failedContext struct {
	workflow.Context
	err error
}

func (c failedContext) Err() error { return c.err }

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
