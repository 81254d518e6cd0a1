package runstate

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// waitAttempt bounds one look at the queue.
	waitAttempt = 30 * time.Second
	// waitSlack is how long after MaxWait the wait ends if no worker takes it, to say who is in the
	// way by then.
	waitSlack = 10 * time.Second
)

// wait waits until scheduling the step again is worthwhile, in an activity that takes no slot and
// adds no history as long as it waits. failure is what the step found, and parked are its details.
// The other ways in which it ends:
//
//  1. the step's saga or run ends: the error matches lockcore.ErrEnded;
//  2. ctx is cancelled: the error is a *temporal.CanceledError;
//  3. the step has waited for its MaxWait: the error matches *lockcore.BusyError, unless the database does not answer;
//  4. the request was given up to end a deadlock, and the wait itself found out: the error matches *lockcore.DeadlockError.
//
// In each of them the step's place is given up, and what it was granted and does not keep for its
// saga, once that is recorded.
func (t *Step) wait(ctx workflow.Context, parked wire.ParkedDetails, failure error) error {
	now := workflow.Now(ctx)
	t.note(parked, now)
	t.text = message(failure)
	t.scope.parked = append(t.scope.parked, t)
	t.scope.state.showWaits(ctx)
	defer func() {
		t.scope.parked = slices.DeleteFunc(t.scope.parked, func(o *Step) bool { return o == t })
		t.scope.state.showWaits(ctx)
	}()
	left := t.maxWait - now.Sub(t.waiting)
	late := t.maxWait > 0 && left <= 0
	var err error
	if !late && !t.over() {
		err = t.park(ctx, left)
	}
	switch {
	case t.over():
		err = wire.NewWaitEnded(!t.ran)
	case temporal.IsCanceledError(err), ctx.Err() != nil: // it may have been granted the lock in the same workflow task
		err = wire.NewWaitCanceled(!t.ran)
	case err == nil && !late: // the next scheduling is told what became of the request
		return nil
	default:
		err = t.timeIsOver(err, failure)
	}
	t.giveUp()
	return err
}

// note takes in what an attempt found that did not get the locks.
func (t *Step) note(parked wire.ParkedDetails, now time.Time) {
	t.used = 0 // waiting uses no time of the step
	if parked.Attempt > 1 {
		t.used = now.Sub(t.scheduled)
	}
	switch {
	case t.waiting.IsZero():
		t.waiting = now
	default:
		t.waiting = t.waiting.Add(t.used)
	}
	t.vain++
	if !parked.Full && !parked.Unavailable {
		t.vain = 0
	}
	t.parked, t.parkedAs = &parked, t.Guard.Schedule
	t.ran = t.ran || parked.NeverRan == ""
}

// over reports whether the step must not run any more: the run or its saga has ended, or the saga
// is being undone and the step does not undo it.
func (t *Step) over() bool {
	return t.scope.state.ended || t.scope.closed || t.saga.Undoing() && !t.Guard.NeverVictim
}

// park runs the activity that waits, on the step's task queue, whose workers have Lockstep.
func (t *Step) park(ctx workflow.Context, left time.Duration) error {
	g := t.Guard
	p := wire.WaitParams{
		Part: g.Part, Order: t.order(), Owner: g.Owner, Started: g.Started, NeverVictim: g.NeverVictim,
		Run: g.Run, Vain: t.vain, Collection: g.Collection, Ancestors: g.Ancestors,
	}
	o := workflow.ActivityOptions{
		ActivityID:          wire.WaitID(g.Schedule),
		TaskQueue:           t.queue,
		StartToCloseTimeout: waitAttempt,
		Priority:            t.priority,
		Summary:             wire.Cut("wait for "+t.parked.Resource, 120),
	}
	if t.maxWait > 0 {
		p.MaxWait, o.ScheduleToCloseTimeout = wire.Duration(left), left+waitSlack
	}
	if t.parked.Full {
		p.Full = t.parked.Waiting
	}
	if g.Scope == wire.ScopeStep {
		p.Step = g.Part
	}
	if i := slices.IndexFunc(g.Resources, func(r lockcore.Resource) bool { return r.Name == t.parked.Resource }); i >= 0 {
		p.Resource = g.Resources[i]
	}
	return t.scope.state.ordinary(ctx, o, wire.ActivityWait, p, nil, t.over)
}

// order is that of the attempt that did not get the locks.
func (t *Step) order() party.Order {
	return party.Order{Schedule: t.parkedAs, Attempt: t.parked.Attempt}
}

// timeIsOver is the error of a step that has waited for its MaxWait, or was given up. err is that
// of the wait; if it does not say who is in the way, since no worker came, the failure of the
// step's last attempt does.
func (t *Step) timeIsOver(err, failure error) error {
	lock, timeout := wire.LockError(err), new(temporal.TimeoutError)
	if lock == nil && (err == nil || errors.As(err, &timeout)) {
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

// giveUp gives up what the attempts up to the one that did not get the locks have left: the place
// in the queue, or what was granted for it meanwhile; and in scope step what the step kept.
func (t *Step) giveUp() {
	switch {
	case t.Guard.Scope == wire.ScopeStep:
		t.release(t.parkedAs)
	case !t.parked.Full: // else it has no place
		t.scope.state.end(wire.ActivityLeave, "leave the queue of "+t.parked.Resource, wire.LeaveParams{Leases: t.places()})
	}
}

// places name the request of the step that waits. It stands in the queue of the resource that was
// busy, and may stand in those after it, where it waited before it came back to this one. If the
// database did not answer, that is any.
func (t *Step) places() (places []wire.Lease) {
	own := wire.Run{RunID: t.Guard.Run}
	for _, name := range names(t.Guard.Resources) {
		if t.parked.Unavailable || name >= t.parked.Resource {
			places = append(places, wire.Lease{
				Resource: name, LockID: t.parked.LockID, Run: own.RunID, Part: own.Part(t.Guard.Part), Order: t.order(),
			})
		}
	}
	return places
}

// release gives up what a step of scope step has, up to a number of its schedulings.
func (t *Step) release(schedule uint32) {
	all := names(t.Guard.Resources)
	t.scope.state.end(wire.ActivityRelease, "release "+strings.Join(all, ", "),
		wire.ReleaseParams{Step: t.Guard.Part, Resources: all, Schedule: schedule})
}

// details are what Temporal's own UI shows of the run: shown is what was set, and before what the
// workflow itself had set.
type details struct{ shown, before string }

// showWaits tells people what the run waits for, below what the workflow itself has set.
func (s *State) showWaits(ctx workflow.Context) {
	d := &s.details
	if now := workflow.GetCurrentDetails(ctx); d.shown == "" || now != d.shown {
		d.before = now
	}
	lines := []string{d.before}
	if d.before == "" {
		lines = nil
	}
	waits := 0
	for _, c := range s.open {
		for _, t := range c.parked {
			if t.text == "" { // a Lock: its pending activity shows why it waits
				continue
			}
			waits++
			lines = append(lines, "Waiting for a lock: "+t.text)
		}
	}
	d.shown = strings.Join(lines, "\n\n")
	workflow.SetCurrentDetails(ctx, d.shown)
	if waits == 0 {
		d.shown = ""
	}
}

func message(failure error) string {
	var app *temporal.ApplicationError
	if errors.As(failure, &app) {
		return app.Message()
	}
	return failure.Error()
}
