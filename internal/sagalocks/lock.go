package sagalocks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Lock is locks around code, with a scope of its own.
type Lock struct {
	step *Step
	// leases are what the acquire got.
	leases []protocol.Lease
	// ended says that Release was called, and released what became of it.
	ended    bool
	released error
}

// Lock takes locks around code, all or none, and waits while they are busy. What it may have left
// if it fails, it releases.
func (s *State) Lock(ctx workflow.Context, locks *Locks) (*Lock, error) {
	s.locks++
	scope := s.newScope()
	l := &Lock{}
	scope.lock = l
	l.step = s.newStep(ctx, fmt.Sprintf("lock/%d", s.locks), locks, scope)
	g := l.step.Guard
	// A first acquire takes the locks again; they are lost only if the run is known to hold them.
	g.Reacquire = g.NeverVictim || !slices.ContainsFunc(g.Resources, func(r lockcore.Resource) bool { return s.knows(scope, r.Name) })
	l.step.waiting = l.step.scheduled // its MaxWait bounds all of it
	err := l.step.Enter(ctx, l.ask)
	if err == nil {
		return l, nil
	}
	if errors.Is(err, lockcore.ErrInvalid) || g.Try && errors.Is(err, lockcore.ErrBusy) { // it has left nothing
		scope.uses = nil
	}
	scope.Release()
	return nil, err
}

// Release verifies the locks, and releases them after Temporal has recorded the workflow task. A
// resource that another open scope uses is released with that scope. If a lock was lost, the error
// matches lockcore.ErrLost. A second call returns the same error.
func (l *Lock) Release(ctx workflow.Context) error {
	if l.ended {
		return l.released
	}
	l.ended = true
	scope := l.step.scope
	if l.released = scope.Commit(ctx, 0); l.released != nil {
		scope.Release()
	}
	return l.released
}

// Check makes sure that the locks are held, and have been held since they were taken. It releases
// nothing. After Release it gives the same answer.
func (l *Lock) Check(ctx workflow.Context) error {
	scope := l.step.scope
	if l.ended {
		return l.released
	}
	return scope.state.verify(ctx, 0, scope.uses.held())
}

// Leases are what the acquire got.
func (l *Lock) Leases() []protocol.Lease { return l.leases }

// ask makes one request, by an ordinary activity. If a local activity acquired the lock and its workflow
// task was lost, the workflow would not know that it holds the lock.
func (l *Lock) ask(ctx workflow.Context) error {
	var result protocol.AcquireResult
	t := l.step
	over := func() bool { return t.scope.closed || t.scope.state.ended }
	err := t.scope.state.ordinary(ctx, workflow.ActivityOptions{
		Summary:             protocol.Cut("lock "+strings.Join(names(t.Guard.Resources), ", "), 120),
		StartToCloseTimeout: attemptTimeout, ScheduleToCloseTimeout: l.left(ctx),
	}, protocol.ActivityAcquire, l.params(ctx), &result, over)
	if over() { // the scope releases what the request may have acquired
		return protocol.NewWaitEnded(true)
	}
	l.leases = result.Leases
	return err
}

// left returns the rest of MaxWait, or 0 if MaxWait has no end.
func (l *Lock) left(ctx workflow.Context) time.Duration {
	if l.step.maxWait <= 0 {
		return 0
	}
	return max(time.Second, l.step.maxWait-workflow.Now(ctx).Sub(l.step.waiting))
}

func (l *Lock) params(ctx workflow.Context) protocol.AcquireParams {
	g := l.step.Guard
	return protocol.AcquireParams{
		Resources: g.Resources, Part: g.Part, Schedule: g.Schedule, TTL: g.TTL, HoldTTL: g.HoldTTL, HoldOnly: true,
		Reacquire: g.Reacquire, NewFence: g.NewFence, Owner: g.Owner, Park: !g.Try, Try: g.Try,
		Comment: protocol.Cut(fmt.Sprintf("%s, %s", workflow.GetInfo(ctx).WorkflowType.Name, g.Part), 1024),
		Started: g.Started, NeverVictim: g.NeverVictim, Collection: g.Collection, Ancestors: g.Ancestors,
	}
}
