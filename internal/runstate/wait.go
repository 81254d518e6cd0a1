package runstate

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// waitAttempt bounds one attempt of the activity that waits.
	waitAttempt = 30 * time.Second
	// waitSlack is the time after MaxWait at which the wait ends if no worker takes it. A worker that takes it before then reports who
	// holds the lock.
	waitSlack = 10 * time.Second
)

// wait waits until it is worth scheduling the step again, in an activity that uses no slot and adds no history while it waits. failure is
// the error of the step, and parked are its details. If the step's saga or run ends, ctx is cancelled, the step has waited for its MaxWait, or its
// request was withdrawn to end a deadlock, wait returns the error. Then the step's request is withdrawn, and what it was granted but does not keep
// for its saga is released, after Temporal has recorded the workflow task.
func (t *Step) wait(ctx workflow.Context, parked wire.ParkedDetails, failure error) error {
	now := workflow.Now(ctx)
	t.recordBusy(parked, now)
	t.scope.parked = append(t.scope.parked, t)
	defer func() {
		t.scope.parked = slices.DeleteFunc(t.scope.parked, func(o *Step) bool { return o == t })
	}()
	left := t.maxWait - now.Sub(t.waitingSince)
	late := t.maxWait > 0 && left <= 0
	var err error
	if !late && !t.mustStop() {
		err = t.park(ctx, left)
	}
	if err == nil && !late { // many steps may be woken in one workflow task
		err = workflow.Await(ctx, func() bool { return t.mustStop() || t.scope.state.admitsGuard(ctx, t.guard.Resources) })
	}
	switch {
	case t.mustStop():
		err = wire.NewWaitEnded(!t.ran)
	case temporal.IsCanceledError(err), ctx.Err() != nil: // it may have been granted the lock in the same workflow task
		err = wire.NewWaitCanceled(!t.ran)
	case err == nil && !late: // the next scheduling learns the outcome of the request
		return nil
	default:
		err = t.waitError(err, failure)
	}
	t.withdraw(ctx)
	return err
}

// recordBusy stores the details of an attempt that did not get its locks.
func (t *Step) recordBusy(parked wire.ParkedDetails, now time.Time) {
	t.used = 0 // waiting uses no time of the step
	if parked.Attempt > 1 {
		t.used = now.Sub(t.scheduled)
	}
	switch {
	case t.waitingSince.IsZero():
		t.waitingSince = now
	default:
		t.waitingSince = t.waitingSince.Add(t.used)
	}
	t.fullRetries++
	if !parked.Full && !parked.Unavailable {
		t.fullRetries = 0
	}
	t.parked, t.parkedAs = &parked, t.guard.Schedule
	t.ran = t.ran || parked.NeverRan == ""
}

// mustStop reports whether the step must not run: the run or its saga has ended, or the saga is being undone and the step is not a
// compensation.
func (t *Step) mustStop() bool {
	return t.scope.state.ended || !t.scope.admits(t.guard.NeverVictim) || t.saga.IsUndoing() && !t.guard.NeverVictim
}

// priorityKey returns the priority of the step's activity, which is that of the workflow if it has none of its own.
func (t *Step) priorityKey(ctx workflow.Context) int {
	return cmp.Or(t.priority.PriorityKey, workflow.GetInfo(ctx).Priority.PriorityKey, defaultPriority)
}

// park runs the activity that waits, on the step's task queue, whose workers have Lockstep.
func (t *Step) park(ctx workflow.Context, left time.Duration) error {
	g := t.guard
	p := wire.WaitParams{
		Part: g.Part, Order: t.parkedOrder(), Owner: g.Owner, Started: g.Started, NeverVictim: g.NeverVictim,
		Run: g.Run, FullRetries: t.fullRetries, Collection: g.Collection, Ancestors: g.Ancestors,
		Reacquire: g.Reacquires(), Priority: t.priorityKey(ctx),
	}
	o := own{
		name: wire.ActivityWait, purpose: "wait for ", resources: []string{t.parked.Resource}, id: wire.WaitID(g.Schedule), queue: t.queue, priority: t.priority,
		attempt: waitAttempt, once: true,
	}
	if t.maxWait > 0 {
		p.MaxWait, o.total = wire.Duration(left), left+waitSlack
	}
	if t.parked.Full {
		p.Full = t.parked.Waiting
	}
	if g.Scope == wire.ScopeStep {
		p.Step = g.Part
	}
	if i := slices.IndexFunc(g.Resources, func(r wire.Resource) bool { return r.Name == t.parked.Resource }); i >= 0 {
		p.Resource = g.Resources[i]
	}
	o.params = p
	return t.scope.state.await(ctx, ctx, o, nil, t.mustStop)
}

// parkedOrder returns the order of the attempt that did not get the locks.
func (t *Step) parkedOrder() lockcore.Order {
	return lockcore.Order{Schedule: t.parkedAs, Attempt: t.parked.Attempt}
}

// waitError returns the error of a step that has waited for its MaxWait, or was the victim of a deadlock. err is the error of the wait. If
// it does not name the holders, because no worker took the activity, the failure of the step's latest attempt does.
func (t *Step) waitError(err, failure error) error {
	lock := wire.LockError(err)
	if lock == nil && !t.parked.Unavailable && (err == nil || isTimeout(err)) {
		lock = wire.LockError(failure)
	}
	switch {
	case lock != nil:
		return wire.NewWaitError(lock, !t.ran)
	case t.parked.Unavailable:
		return wire.NewWaitUnavailable(message(failure), !t.ran)
	default:
		return err
	}
}

// withdraw ends what the attempts of the step have left, up to the attempt that did not get the locks: the request in the queue, or a
// grant; in scope step also the locks that the step kept.
func (t *Step) withdraw(ctx workflow.Context) {
	switch {
	case t.guard.Scope == wire.ScopeStep:
		t.release(ctx, t.parkedAs)
	case !t.parked.Full: // otherwise it is in no queue
		t.leaveQueues(ctx)
	}
}

// leaveQueues withdraws the step's requests. One is in the queue of the resource that was busy. Others may be in the queues of later resources,
// where the step waited before. If the database did not answer, they may be in any of the queues.
func (t *Step) leaveQueues(ctx workflow.Context) {
	var queues uses
	queues.addAll(slices.DeleteFunc(slices.Clone(t.guard.Resources), func(r wire.Resource) bool {
		return !t.parked.Unavailable && r.Name < t.parked.Resource
	}))
	part := wire.Run{RunID: t.guard.Run}.Part(t.guard.Part)
	leave := own{name: wire.ActivityLeave, purpose: "leave the queue of ", overhead: len(t.parked.LockID) + len(t.guard.Run) + len(part) + 64}
	for _, o := range split(queues, leave, func(piece uses) any {
		var leases []lockcore.Lease
		for _, name := range piece.names() {
			leases = append(leases, lockcore.Lease{Resource: name, LockID: t.parked.LockID, Run: t.guard.Run, Part: part, Order: t.parkedOrder()})
		}
		return wire.LeaveParams{Leases: wire.Leases(leases)}
	}) {
		t.scope.state.addEnding(ctx, o)
	}
}

// release ends everything that a step of scope step has, up to a schedule number.
func (t *Step) release(ctx workflow.Context, schedule uint32) {
	all := names(t.guard.Resources)
	t.scope.state.addEnding(ctx, own{
		name: wire.ActivityRelease, purpose: "release ", resources: all,
		params: wire.ReleaseParams{Step: t.guard.Part, Resources: all, Schedule: schedule, Run: t.guard.Run},
	})
}

func message(failure error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](failure); ok {
		return app.Message()
	}
	return failure.Error()
}
