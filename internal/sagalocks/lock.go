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
	scope.Release(ctx, 0)
	return nil, err
}

// Release makes sure that the locks were held, and lets go of them, but for what another open scope
// uses too. If one was lost, the error matches lockcore.ErrLost, and the others are let go.
// Releasing again gives the same answer.
func (l *Lock) Release(ctx workflow.Context) error {
	scope := l.step.scope
	if l.ended {
		return l.released
	}
	l.ended = true
	if l.released = scope.Commit(ctx, 0); errors.Is(l.released, lockcore.ErrLost) {
		scope.Release(ctx, 0)
	} else if l.released != nil {
		scope.drop()
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
	return scope.state.letGo(ctx, 0, nil, scope.uses.held(), false)
}

// Leases are what the acquire got.
func (l *Lock) Leases() []protocol.Lease { return l.leases }

// ask makes one request.
func (l *Lock) ask(ctx workflow.Context) error {
	var result protocol.AcquireResult
	t := l.step
	err := t.scope.state.run(ctx, task{
		name: protocol.ActivityAcquire, summary: "lock " + strings.Join(names(t.Guard.Resources), ", "),
		params: l.params(ctx), timeout: l.left(ctx), again: func() any {
			if t.scope.closed {
				return nil
			}
			t.number(ctx)
			return l.params(ctx)
		},
	}, &result)
	if t.scope.closed || t.scope.state.ended { // the run's end has released it
		return protocol.NewWaitEnded(true)
	}
	l.leases = result.Leases
	return err
}

// left is what is left of MaxWait.
func (l *Lock) left(ctx workflow.Context) time.Duration {
	if l.step.maxWait <= 0 {
		return forEver
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
