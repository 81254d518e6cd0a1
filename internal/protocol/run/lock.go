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
	// reacquire is what the caller said; a first acquire always may.
	reacquire bool
	leases    []protocol.Lease
	// others says that they are those of the run before a reset.
	others bool
	// adopts says that it takes over what such locks of the run before have handed over.
	adopts bool
	// retaking is held by who takes them anew after a reset.
	retaking  workflow.Mutex
	keepAlive keepAlive
}

// NewLock numbers locks around code; [Lock.Acquire] takes them.
func (s *State) NewLock(ctx workflow.Context, locks *Locks) *Lock {
	s.locks++
	scope := s.newScope()
	compensating := isCompensating(ctx)
	step := &Step{scope: scope, local: true, maxWait: locks.MaxWait, Guard: &protocol.Guard{
		Part:      fmt.Sprintf("lock/%d", s.locks),
		Scope:     protocol.ScopeSaga,
		Resources: slices.Clone(locks.Resources),
		TTL:       protocol.Duration(locks.TTL),
		HoldTTL:   protocol.Duration(locks.HoldTTL),
		NewFence:  compensating,
		Owner:     cmp.Or(locks.Owner, ownerFrom(ctx), s.owner),
		Try:       locks.Try,
		Started:   s.begun(ctx),
		// What undoes others must run, and its saga cannot be undone to let another go first.
		NeverVictim: compensating,
	}}
	lock := &Lock{
		step: step, asked: slices.Clone(locks.Resources), reacquire: locks.Reacquire || compensating,
		keepAlive: newKeepAlive(ctx), adopts: !locks.FromWorkflow, retaking: workflow.NewMutex(ctx),
	}
	scope.lock = lock
	s.watch()
	return lock
}

// Acquire takes the locks, all or none, and waits where they are busy. What it may have left, where it fails, it
// releases.
func (l *Lock) Acquire(ctx workflow.Context) error {
	scope := l.step.scope
	if err := scope.state.retake(ctx); err != nil {
		scope.close()
		return err
	}
	l.step.Guard.Reacquire = l.reacquire || !slices.ContainsFunc(l.asked, func(r lockcore.Resource) bool { return scope.state.knows(scope, r.Name) })
	scope.want(l.asked)
	err := l.take(ctx, l.asked, false)
	if err == nil {
		if l.adopts {
			scope.state.adopted(ctx, l.asked)
		}
		return nil
	}
	var lost *lockcore.LostError
	if l.adopts && errors.As(err, &lost) { // it has been told; who asks again begins anew
		scope.state.adopted(ctx, []lockcore.Resource{{Name: lost.Resource}})
	}
	names := scope.close()
	if !leavesNothing(err, l.step.Guard.Try) {
		ReleaseOptions{}.release(ctx, scope.state, names, nil)
	}
	return err
}

// leavesNothing tells whether an acquire that failed so is known to have taken nothing, and to wait nowhere.
func leavesNothing(err error, try bool) bool {
	return errors.Is(err, lockcore.ErrInvalid) || try && errors.Is(err, lockcore.ErrBusy)
}

// Upgrade takes exclusively what is held in shared mode, and waits where others share it. Where it fails the locks are
// as they were before.
func (l *Lock) Upgrade(ctx workflow.Context) error { return l.change(ctx, l.upgrade) }

// Downgrade makes shared what is held exclusively.
func (l *Lock) Downgrade(ctx workflow.Context) error { return l.change(ctx, l.downgrade) }

// change changes the mode of what is held, which is taken anew first where a reset came in between, and alone: what runs beside
// it and needs the lock waits for it.
func (l *Lock) change(ctx workflow.Context, how func(ctx workflow.Context) error) error {
	if l.step.scope.closed {
		return lockcore.ErrEnded
	}
	if err := l.step.scope.state.retake(ctx); err != nil {
		return err
	}
	if err := l.retaking.Lock(ctx); err != nil {
		return err
	}
	err := lockcore.ErrEnded
	if !l.step.scope.closed {
		err = how(ctx)
	}
	l.retaking.Unlock()
	return err
}

func (l *Lock) upgrade(ctx workflow.Context) error {
	before := slices.Clone(l.step.Guard.Resources)
	l.step.Guard.Reacquire, l.step.waiting = l.reacquire, time.Time{}
	want := slices.Clone(before)
	for i := range want {
		want[i].Mode, want[i].Limit = lockcore.ModeExclusive, 0
	}
	err := l.take(ctx, want, false)
	if err != nil && !l.step.scope.closed && len(l.step.scope.lacks) == 0 { // else they are taken anew as they were
		// The same request under a greater number, in the mode that is held: it takes the place of the one that waits, or
		// that comes late.
		l.step.Guard.Reacquire, l.step.waiting = false, time.Time{}
		apart, _ := workflow.NewDisconnectedContext(ctx)
		if err := l.take(apart, before, true); err != nil {
			workflow.GetLogger(ctx).Warn("lockstep: an upgrade that failed may have left locks exclusive", "error", err)
		}
	}
	return err
}

func (l *Lock) downgrade(ctx workflow.Context) error {
	l.step.Guard.Reacquire, l.step.waiting = false, time.Time{}
	want := slices.Clone(l.asked)
	for i := range want {
		want[i].Mode = lockcore.ModeShared
	}
	if err := l.take(ctx, want, true); err != nil {
		return err
	}
	for _, lease := range l.leases {
		if lease.Mode == lockcore.ModeExclusive {
			return &lockcore.BusyError{Resource: lease.Resource, LockID: lease.LockID}
		}
	}
	return nil
}

// Release lets go of the locks, but for what another scope in progress holds too.
func (l *Lock) Release(ctx workflow.Context, o ReleaseOptions) {
	if l.step.scope.closed {
		return
	}
	l.keepAlive.end()
	l.step.scope.Release(ctx, o)
}

// Leases are what the last acquire got.
func (l *Lock) Leases() []protocol.Lease { return l.leases }

// take asks for the resources in some mode until it has them.
func (l *Lock) take(ctx workflow.Context, resources []lockcore.Resource, downgrade bool) error {
	step := l.step
	step.Guard.Resources = slices.Clone(resources)
	if step.waiting.IsZero() {
		step.waiting = workflow.Now(ctx)
	}
	for {
		result, err := l.ask(ctx, downgrade)
		busy, parked := protocol.Parked(err)
		switch {
		case step.scope.closed:
			return lockcore.ErrEnded
		case err == nil:
			l.leases = result.Leases
			step.scope.state.look()
			anew := len(step.scope.lacks) > 0
			l.others = !step.scope.state.learn(result.LockID)
			step.scope.hold(resources, l.others)
			if anew && len(step.scope.lacks) == 0 && l.keepAlive.stop != nil {
				l.KeepAlive(ctx) // that of the run before has ended
			}
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
func (l *Lock) ask(ctx workflow.Context, downgrade bool) (result protocol.AcquireResult, err error) {
	summary := "lock " + strings.Join(resourceNames(l.step.Guard.Resources), ", ")
	l.step.renumber(ctx)
	err = startLocally(ctx, protocol.ActivityAcquire, summary, l.params(ctx, downgrade)).Get(ctx, &result)
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
	err = workflow.ExecuteActivity(ours, protocol.ActivityAcquire, l.params(ctx, downgrade)).Get(ctx, &result)
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
	switch {
	case temporal.IsCanceledError(err):
		return false
	case !errors.As(err, &app):
		return true
	default:
		return !app.NonRetryable() || app.Type() == protocol.FailureSuperseded
	}
}

func (l *Lock) params(ctx workflow.Context, downgrade bool) protocol.AcquireParams {
	g := l.step.Guard
	return protocol.AcquireParams{
		LockRun: g.LockRun, Resources: g.Resources, Part: g.Part, Schedule: g.Schedule, TTL: g.TTL, HoldTTL: g.HoldTTL, HoldOnly: true,
		Reacquire: g.Reacquire, NewFence: g.NewFence, Owner: g.Owner, Park: !g.Try, Try: g.Try, Downgrade: downgrade,
		Comment: protocol.Cut(fmt.Sprintf("%s, %s", workflow.GetInfo(ctx).WorkflowType.Name, g.Part), 1024),
		Started: g.Started, NeverVictim: g.NeverVictim, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID, Former: g.Former,
	}
}

func resourceNames(resources []lockcore.Resource) []string {
	var all names
	for _, r := range resources {
		all.add(r.Name)
	}
	return all
}
