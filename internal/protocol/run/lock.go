package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// acquireAttempt is how long one attempt of the ordinary activity may take, where the local one failed.
const acquireAttempt = 10 * time.Second

// Lock is locks around code. It is a step without an activity: it has the step's name, numbers and way of waiting, and a
// scope of its own.
type Lock struct {
	step *Step
	// asked are the resources as the caller asked for them.
	asked []lockcore.Resource
	// reacquire says that the locks are taken anew if they were lost; a first acquire always does.
	reacquire bool
	leases    []protocol.Lease
	// released is what became of the release.
	released error
}

// NewLock numbers locks around code; [Lock.Acquire] takes them.
func (s *State) NewLock(ctx workflow.Context, locks *Locks) *Lock {
	s.locks++
	scope := s.Open()
	scope.isLock = true
	compensating := isCompensating(ctx)
	step := &Step{scope: scope, noActivity: true, maxWait: locks.MaxWait, Guard: &protocol.Guard{
		Part:      fmt.Sprintf("lock/%d", s.locks),
		Scope:     protocol.ScopeSaga,
		Resources: slices.Clone(locks.Resources),
		TTL:       protocol.Duration(locks.TTL),
		HoldTTL:   protocol.Duration(locks.HoldTTL),
		NewFence:  compensating,
		Owner:     cmp.Or(locks.Owner, ownerFrom(ctx), s.owner),
		Ancestors: ancestors(ctx),
		Try:       locks.Try,
		Started:   s.begun(ctx),
		// What undoes others must run, and its saga cannot be undone to let another go first.
		NeverVictim: compensating,
	}}
	return &Lock{step: step, asked: slices.Clone(locks.Resources), reacquire: compensating}
}

// Acquire takes the locks, all or none, and waits where they are busy. What it may have left, where it fails, it
// releases.
func (l *Lock) Acquire(ctx workflow.Context) error {
	scope := l.step.scope
	l.step.Guard.Reacquire = l.reacquire || !slices.ContainsFunc(l.asked, func(r lockcore.Resource) bool { return scope.state.knows(scope, r.Name) })
	scope.want(l.asked)
	err := l.take(ctx, l.asked)
	if err == nil {
		return nil
	}
	if leavesNothing(err, l.step.Guard.Try) {
		scope.wanted = nil
	}
	_ = scope.Release(ctx, ReleaseOptions{}) // it is logged
	return err
}

// leavesNothing tells whether an acquire that failed so is known to have taken nothing, and to wait nowhere.
func leavesNothing(err error, try bool) bool {
	return errors.Is(err, lockcore.ErrInvalid) || try && errors.Is(err, lockcore.ErrBusy)
}

// Release makes sure that the locks were held, and lets go of them, but for what another scope in progress holds too. If one was
// lost, the error matches lockcore.ErrLost, and the others are let go. Releasing again gives the same answer.
func (l *Lock) Release(ctx workflow.Context) error {
	scope := l.step.scope
	if scope.closed {
		return l.released
	}
	l.released = scope.Commit(ctx, ReleaseOptions{})
	if errors.Is(l.released, lockcore.ErrLost) {
		_ = scope.Release(ctx, ReleaseOptions{}) // it is logged
	}
	return l.released
}

// Leases are what the last acquire got.
func (l *Lock) Leases() []protocol.Lease { return l.leases }

// take asks for the resources until it has them.
func (l *Lock) take(ctx workflow.Context, resources []lockcore.Resource) error {
	step := l.step
	step.Guard.Resources = slices.Clone(resources)
	if step.waiting.IsZero() {
		step.waiting = workflow.Now(ctx)
	}
	for {
		result, err := l.ask(ctx)
		busy, parked := protocol.Parked(err)
		switch {
		case step.scope.closed:
			return lockcore.ErrEnded
		case err == nil:
			l.leases = result.Leases
			step.scope.hold(step.Guard)
			return nil
		case !parked:
			return protocol.TypedError(err)
		}
		if err := step.Wait(ctx, busy, err); err != nil {
			return err
		}
		if step.scope.closed { // the release ended the place in the queue too
			return lockcore.ErrEnded
		}
	}
}

// ask makes one request: by a local activity, which is one event, tried once and briefly, and where that failed by an
// ordinary one.
func (l *Lock) ask(ctx workflow.Context) (result protocol.AcquireResult, err error) {
	summary := "lock " + strings.Join(resourceNames(l.step.Guard.Resources), ", ")
	l.step.renumber(ctx)
	err = startLocally(ctx, protocol.ActivityAcquire, summary, l.params(ctx)).Get(ctx, &result)
	if err == nil || !askAgain(err) || ctx.Err() != nil || l.step.scope.closed {
		return result, err
	}
	l.step.renumber(ctx)
	ours := workflow.WithActivityOptions(l.step.scope.state.outside(ctx), workflow.ActivityOptions{
		TaskQueue:              workflow.GetInfo(ctx).TaskQueueName,
		StartToCloseTimeout:    acquireAttempt,
		ScheduleToCloseTimeout: l.left(ctx),
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second},
		Summary:                protocol.Cut(summary, 120),
	})
	err = workflow.ExecuteActivity(ours, protocol.ActivityAcquire, l.params(ctx)).Get(ctx, &result)
	return result, err
}

// left is what is left of MaxWait, 0 where it has no end.
func (l *Lock) left(ctx workflow.Context) time.Duration {
	if l.step.maxWait <= 0 {
		return 0
	}
	return max(time.Second, l.step.maxWait-workflow.Now(ctx).Sub(l.step.waiting))
}

// askAgain tells whether a local activity that failed so leaves it open whether the locks can be had. A request that was
// overtaken is one of them: a local activity whose result the worker could not record runs again under the same number,
// and what it asked for was granted and left by then.
func askAgain(err error) bool {
	var app *temporal.ApplicationError
	details, parked := protocol.Parked(err)
	switch {
	case temporal.IsCanceledError(err):
		return false
	case parked: // a worker of activities may reach a database that this one does not
		return details.Unavailable
	case !errors.As(err, &app):
		return true
	default:
		return !app.NonRetryable() || app.Type() == protocol.FailureSuperseded
	}
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

func resourceNames(resources []lockcore.Resource) []string {
	var all names
	for _, r := range resources {
		all.add(r.Name)
	}
	return all
}
