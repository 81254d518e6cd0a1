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
)

// Wait waits until scheduling the step again is worthwhile, in an activity that takes no slot and adds no history as
// long as it waits. failure is what the step found busy. The other ways in which it ends:
//
//  1. ctx is cancelled: the queue is left, and the error is a *temporal.CanceledError;
//  2. the step has waited for its MaxWait: the queue is left, and the error matches *lockcore.BusyError;
//  3. the request was given up to end a deadlock, and the wait itself found out: the error matches *lockcore.DeadlockError;
//  4. the step's saga ends: the queue is left, and the error matches lockcore.ErrEnded.
func (t *Step) Wait(ctx workflow.Context, busy protocol.BusyDetails, failure error) error {
	state, now := t.scope.state, workflow.Now(ctx)
	t.used = now.Sub(t.scheduled)
	t.ran = t.ran || busy.Again || busy.Attempt > 1 // what an earlier attempt came to is not known
	if t.over() {
		t.leaveQueue(ctx, busy)
		return protocol.NewWaitEnded(!t.ran)
	}
	if t.waiting.IsZero() {
		t.waiting = now
	}
	var left time.Duration
	if t.maxWait > 0 {
		if left = t.maxWait - now.Sub(t.waiting); left <= 0 {
			t.leaveQueue(ctx, busy)
			return protocol.NewWaitError(protocol.LockError(failure), !t.ran)
		}
	}
	note := state.notes.add(ctx, message(failure))
	params := t.waitParams(ctx, busy)
	params.MaxWait = protocol.Duration(left)
	waiting, parking := t.park(ctx, busy)
	err := workflow.ExecuteActivity(t.waitOptions(waiting, busy, left), protocol.ActivityWait, params).Get(ctx, nil)
	state.notes.remove(ctx, note)
	err = t.waited(ctx, busy, err, failure)
	parking.unpark()
	return err
}

// waited is what became of a wait. Whatever it was granted, it gives up where the step is not to run.
func (t *Step) waited(ctx workflow.Context, busy protocol.BusyDetails, err, failure error) error {
	switch {
	case t.over():
		t.leaveQueue(ctx, busy)
		return protocol.NewWaitEnded(!t.ran)
	case err == nil: // the next scheduling is told what became of the request
		return nil
	case temporal.IsCanceledError(err):
		t.leaveQueue(ctx, busy)
		return protocol.NewWaitCanceled(!t.ran)
	default: // its time is over, and the error says who is in the way now; or it was given up to end a deadlock
		t.leaveQueue(ctx, busy)
		lock := protocol.LockError(err)
		if timeout := new(temporal.TimeoutError); lock == nil && errors.As(err, &timeout) {
			lock = protocol.LockError(failure) // no worker came to say who is in the way now
		}
		if lock != nil {
			return protocol.NewWaitError(lock, !t.ran)
		}
		return err
	}
}

// triesOnce tells that the step's retry policy names the failure of a step that finds its lock busy as one that is not
// to be retried.
func triesOnce(ctx workflow.Context) bool {
	policy := workflow.GetActivityOptions(ctx).RetryPolicy
	return policy != nil && slices.Contains(policy.NonRetryableErrorTypes, protocol.FailureBusy)
}

func (t *Step) order(busy protocol.BusyDetails) lockcore.Order {
	return lockcore.Order{Schedule: t.Guard.Schedule, Attempt: busy.Attempt}
}

func (t *Step) waitParams(ctx workflow.Context, busy protocol.BusyDetails) protocol.WaitParams {
	g := t.Guard
	p := protocol.WaitParams{
		Part: g.Part, Order: t.order(busy), Owner: g.Owner, Started: g.Started, NeverVictim: g.NeverVictim,
		Run: runID(ctx), Collection: g.Collection, Ancestors: g.Ancestors,
	}
	held := t.scope.state.held(busy.Resource)
	for _, r := range g.Resources {
		switch {
		case r.Name == busy.Resource:
			p.Resource = r
		case r.Name < busy.Resource && g.Scope != protocol.ScopeStep: // taken before this one was found busy, and kept
			held.add(r.Name)
		}
	}
	p.Held = held
	return p
}

// waitOptions are those of the activity that waits, on the step's task queue, where Lockstep is installed. Every option
// that matters is given: where one is not, the step's own would be taken.
func (t *Step) waitOptions(ctx workflow.Context, busy protocol.BusyDetails, left time.Duration) workflow.Context {
	queue := t.taskQueue(ctx)
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
		Summary:                protocol.Cut("wait for "+busy.Resource, 120),
	})
}

func (t *Step) taskQueue(ctx workflow.Context) string {
	if own := workflow.GetActivityOptions(ctx).TaskQueue; own != "" && !t.noActivity {
		return own
	}
	return workflow.GetInfo(ctx).TaskQueueName
}

// leaveQueue gives up the place in the queue, or what was granted for it meanwhile. Where that fails the release at
// the end of the scope does it.
func (t *Step) leaveQueue(ctx workflow.Context, busy protocol.BusyDetails) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	place := protocol.LeaveParams{Leases: []protocol.Lease{t.place(runID(ctx), busy)}}
	if err := locally(ctx, protocol.ActivityLeave, "leave the queue of "+busy.Resource, place); err != nil {
		t.scope.traces.add(busy.Resource)
	}
}

// place names the request of the step that waits in a run.
func (t *Step) place(run string, busy protocol.BusyDetails) protocol.Lease {
	part := protocol.Run{RunID: run}.Part(t.Guard.Part)
	return protocol.Lease{Resource: busy.Resource, LockID: busy.LockID, Run: run, Part: part, Order: t.order(busy)}
}

func runID(ctx workflow.Context) string { return workflow.GetInfo(ctx).WorkflowExecution.RunID }

// Again numbers the next scheduling of a step that has waited, and says with what options: those of ctx, less the attempts
// and the time that the step itself has used.
func (t *Step) Again(ctx workflow.Context, busy protocol.BusyDetails) workflow.Context {
	t.renumber(ctx)
	t.Guard.Waited = busy.Resource
	opts := workflow.GetActivityOptions(ctx)
	opts.RetryPolicy, opts.ScheduleToCloseTimeout = t.left(opts.RetryPolicy, busy, opts.ScheduleToCloseTimeout)
	return workflow.WithActivityOptions(ctx, opts)
}

func (t *Step) left(policy *temporal.RetryPolicy, busy protocol.BusyDetails, timeout time.Duration) (*temporal.RetryPolicy, time.Duration) {
	used := int32(busy.Attempt) - 1 //nolint:gosec // an attempt's number, which is an int32
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
