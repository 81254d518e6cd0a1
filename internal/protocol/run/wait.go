package run

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// waitAttempt is how long one look may take.
	waitAttempt = 30 * time.Second
	// waitSlack is how long after MaxWait the wait ends also where no worker takes it, to say who is in the way by then.
	waitSlack = 10 * time.Second
	// giveUpTimeout bounds how long the end of a wait waits for a database that does not answer.
	giveUpTimeout = 10 * time.Second
)

// Wait waits until scheduling the step again is worthwhile, in an activity that takes no slot and adds no history as
// long as it waits. failure is what the step found, and parked are its details. The other ways in which it ends:
//
//  1. ctx is cancelled: the error is a *temporal.CanceledError;
//  2. the step has waited for its MaxWait: the error matches *lockcore.BusyError, unless the database does not answer;
//  3. the request was given up to end a deadlock, and the wait itself found out: the error matches *lockcore.DeadlockError;
//  4. the step's saga ends: the error matches lockcore.ErrEnded.
//
// In each of them the step has given up its place by then, and what it was granted and does not keep for its saga.
func (t *Step) Wait(ctx workflow.Context, parked protocol.ParkedDetails, failure error) error {
	now := workflow.Now(ctx)
	t.note(parked, now)
	if t.over() {
		t.giveUp(ctx)
		return protocol.NewWaitEnded(!t.ran)
	}
	var left time.Duration
	if t.maxWait > 0 {
		if left = t.maxWait - now.Sub(t.waiting); left <= 0 {
			t.giveUp(ctx)
			return t.timeIsOver(nil, failure)
		}
	}
	notes := &t.scope.state.notes
	note := notes.add(ctx, message(failure))
	waiting, parking := t.park(ctx)
	params := t.waitParams(ctx)
	params.MaxWait = protocol.Duration(left)
	err := workflow.ExecuteActivity(t.waitOptions(waiting, left), protocol.ActivityWait, params).Get(ctx, nil)
	notes.remove(ctx, note)
	err = t.waited(ctx, err, failure)
	parking.unpark()
	return err
}

// note takes in what an attempt found that did not get the locks.
func (t *Step) note(parked protocol.ParkedDetails, now time.Time) {
	if t.waiting.IsZero() {
		t.waiting = now
	}
	t.vain++
	if !parked.Full && !parked.Unavailable {
		t.vain = 0
	}
	t.parked, t.parkedAs = &parked, t.Guard.Schedule
	t.ran = t.ran || parked.NeverRan == ""
	t.used = 0 // waiting uses no time of the step
	if parked.Attempt > 1 {
		t.used = now.Sub(t.scheduled)
	}
}

// waited is what became of a wait. What it was granted it gives up if the step is not to run.
func (t *Step) waited(ctx workflow.Context, err, failure error) error {
	switch {
	case t.over():
		t.giveUp(ctx)
		return protocol.NewWaitEnded(!t.ran)
	case temporal.IsCanceledError(err), ctx.Err() != nil: // it may have been granted the lock in the same workflow task
		t.giveUp(ctx)
		return protocol.NewWaitCanceled(!t.ran)
	case err == nil: // the next scheduling is told what became of the request
		return nil
	default: // its time is over, and the error says who is in the way now; or it was given up to end a deadlock
		t.giveUp(ctx)
		return t.timeIsOver(err, failure)
	}
}

// timeIsOver is the error of a step that has waited for its MaxWait. err is that of the wait; if it does not say who is in the
// way, since no worker came, the failure of the step's last attempt does.
func (t *Step) timeIsOver(err, failure error) error {
	lock, timeout := protocol.LockError(err), new(temporal.TimeoutError)
	if lock == nil && (err == nil || errors.As(err, &timeout)) {
		lock = protocol.LockError(failure)
	}
	switch {
	case lock != nil:
		return protocol.NewWaitError(lock, !t.ran)
	case t.parked.Unavailable:
		return protocol.NewWaitUnavailable(failure, !t.ran)
	default:
		return err
	}
}

// triesOnce tells that the step's retry policy names the failure of a step that finds its lock busy as one that is not
// to be retried.
func triesOnce(ctx workflow.Context) bool {
	policy := workflow.GetActivityOptions(ctx).RetryPolicy
	return policy != nil && slices.Contains(policy.NonRetryableErrorTypes, protocol.FailureBusy)
}

// order is that of the attempt that did not get the locks.
func (t *Step) order() lockcore.Order {
	return lockcore.Order{Schedule: t.parkedAs, Attempt: t.parked.Attempt}
}

func (t *Step) waitParams(ctx workflow.Context) protocol.WaitParams {
	g := t.Guard
	p := protocol.WaitParams{
		Part: g.Part, Order: t.order(), Owner: g.Owner, Started: g.Started, NeverVictim: g.NeverVictim,
		Run: runID(ctx), Vain: t.vain, Collection: g.Collection, Ancestors: g.Ancestors,
	}
	if t.parked.Full {
		p.Full = t.parked.Waiting
	}
	if g.Scope == protocol.ScopeStep {
		p.Step = g.Part
	}
	if i := slices.IndexFunc(g.Resources, func(r lockcore.Resource) bool { return r.Name == t.parked.Resource }); i >= 0 {
		p.Resource = g.Resources[i]
	}
	return p
}

// waitOptions are those of the activity that waits, on the step's task queue, where Lockstep is installed. Every option
// that matters is given: where one is not, the step's own would be taken.
func (t *Step) waitOptions(ctx workflow.Context, left time.Duration) workflow.Context {
	queue, priority := t.taskQueue(ctx), workflow.GetActivityOptions(ctx).Priority
	var end time.Duration
	if left > 0 {
		end = left + waitSlack
	}
	if t.noActivity {
		ctx = t.scope.state.outside(ctx)
	}
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID:             protocol.WaitID(t.Guard.Schedule),
		TaskQueue:              queue,
		StartToCloseTimeout:    waitAttempt,
		ScheduleToCloseTimeout: end,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second},
		Priority:               priority,
		Summary:                protocol.Cut("wait for "+t.parked.Resource, 120),
	})
}

func (t *Step) taskQueue(ctx workflow.Context) string {
	if own := workflow.GetActivityOptions(ctx).TaskQueue; own != "" && !t.noActivity {
		return own
	}
	return workflow.GetInfo(ctx).TaskQueueName
}

// giveUp gives up what the attempts up to the one that did not get the locks have left: the place in the queue, or what was
// granted for it meanwhile; and in scope step what the step kept.
func (t *Step) giveUp(ctx workflow.Context) {
	switch g := t.Guard; {
	case g.Scope == protocol.ScopeStep:
		t.giveUpTo(ctx, t.parkedAs)
	case !t.parked.Full: // else it has no place
		params := protocol.LeaveParams{Leases: t.places()}
		if err := t.end(ctx, protocol.ActivityLeave, "leave the queue of "+t.parked.Resource, params); err != nil {
			t.scope.traces.add(t.parked.Resource)
		}
	}
}

// giveUpTo gives up what a step of scope step has, up to a number of its schedulings.
func (t *Step) giveUpTo(ctx workflow.Context, schedule uint32) {
	names := resourceNames(t.Guard.Resources)
	params := protocol.ReleaseParams{Step: t.Guard.Part, Resources: names, Schedule: schedule}
	if err := t.end(ctx, protocol.ActivityRelease, "release "+strings.Join(names, ", "), params); err != nil {
		workflow.GetLogger(ctx).Warn("lockstep: what a step kept was not given up, and stands until it expires", "resources", names, "error", err)
	}
}

// end runs an activity that ends something of the step, and blocks until it is done, or was tried for giveUpTimeout.
func (t *Step) end(ctx workflow.Context, name, summary string, params any) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	err := locally(ctx, name, summary, params)
	if err != nil {
		err = t.scope.state.ordinarily(ctx, name, protocol.Cut(summary, 120), giveUpTimeout, params)
	}
	return err
}

// places name the request of the step that waits: on one resource, or on any of its own if that is not known.
func (t *Step) places() []protocol.Lease {
	own := protocol.Run{RunID: t.Guard.Run}
	place := protocol.Lease{LockID: t.parked.LockID, Run: own.RunID, Part: own.Part(t.Guard.Part), Order: t.order()}
	if !t.parked.Unavailable {
		place.Resource = t.parked.Resource
		return []protocol.Lease{place}
	}
	all := make([]protocol.Lease, 0, len(t.Guard.Resources))
	for _, r := range t.Guard.Resources {
		place.Resource = r.Name
		all = append(all, place)
	}
	return all
}

func runID(ctx workflow.Context) string { return workflow.GetInfo(ctx).WorkflowExecution.RunID }

// Again numbers the next scheduling of a step that has waited, and says with what options: those of ctx, less the attempts
// and the time that the step itself has used.
func (t *Step) Again(ctx workflow.Context) workflow.Context {
	t.renumber(ctx)
	opts := workflow.GetActivityOptions(ctx)
	opts.RetryPolicy, opts.ScheduleToCloseTimeout = t.left(opts.RetryPolicy, opts.ScheduleToCloseTimeout)
	return workflow.WithActivityOptions(ctx, opts)
}

func (t *Step) left(policy *temporal.RetryPolicy, timeout time.Duration) (*temporal.RetryPolicy, time.Duration) {
	used := int32(t.parked.Attempt) - 1 //nolint:gosec // an attempt's number, which is an int32
	if policy != nil && policy.MaximumAttempts > 0 {
		rest := *policy
		rest.MaximumAttempts = max(1, rest.MaximumAttempts-used)
		policy = &rest
	}
	if timeout > 0 {
		timeout = max(time.Second, timeout-t.used)
	}
	return policy, timeout
}

// notes are what a run waits for, as Temporal's own UI shows it.
type notes struct {
	all []*string
	// shown is what was set, and before what stood there before.
	shown, before string
}

func (n *notes) add(ctx workflow.Context, text string) *string {
	n.all = append(n.all, &text)
	n.show(ctx)
	return &text
}

func (n *notes) remove(ctx workflow.Context, note *string) {
	for i, other := range n.all {
		if other == note {
			n.all = append(n.all[:i], n.all[i+1:]...)
			break
		}
	}
	n.show(ctx)
}

// show leaves in place what the workflow itself has set.
func (n *notes) show(ctx workflow.Context) {
	if now := workflow.GetCurrentDetails(ctx); n.shown == "" || now != n.shown {
		n.before = now
	}
	lines := make([]string, 0, len(n.all)+1)
	if n.before != "" {
		lines = append(lines, n.before)
	}
	for _, text := range n.all {
		lines = append(lines, "Waiting for a lock: "+*text)
	}
	n.shown = ""
	if len(n.all) > 0 {
		n.shown = strings.Join(lines, "\n\n")
		workflow.SetCurrentDetails(ctx, n.shown)
		return
	}
	workflow.SetCurrentDetails(ctx, n.before)
}

func message(failure error) string {
	var app *temporal.ApplicationError
	if errors.As(failure, &app) {
		return app.Message()
	}
	return failure.Error()
}
