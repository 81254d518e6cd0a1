package interceptors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Rule names the locks that every activity of one type takes while it runs. Package worker makes rules.
type Rule struct {
	// Activity is the type's name.
	Activity string
	// Resources returns the resources of an activity with these arguments; none means no locks.
	Resources func(args []any) ([]lockcore.Resource, error)
}

// resourcesByRule returns the resources that a rule names for an attempt, each name once.
func (a *activityInbound) resourcesByRule(ctx context.Context, args []any) ([]lockcore.Resource, error) {
	info := activity.GetInfo(ctx)
	rule, ok := a.rules[info.ActivityType.Name]
	if !ok {
		return nil, nil
	}
	resources, err := rule.Resources(args)
	if err != nil && !errors.Is(err, lockcore.ErrInvalid) {
		return nil, err
	}
	if err == nil && len(resources) > 0 && info.IsLocalActivity {
		err = &lockcore.InvalidError{
			Field: "worker.Options.Rules", Value: fmt.Sprintf("the local activity %q", wire.Cut(info.ActivityType.Name, 128)),
			Bound: "an ordinary activity, by workflow.ExecuteActivity: a rule cannot guard a local one",
		}
	}
	return wire.Merge(nil, resources...), wire.Failure(err)
}

// addRule adds the requests of a rule to those of the guard with the same names, and returns the rest, which the step takes in addition.
func addRule(guard *wire.Guard, byRule []lockcore.Resource) (rest []lockcore.Resource) {
	if guard == nil {
		return byRule
	}
	guard.Resources = slices.Clone(guard.Resources)
	for _, r := range byRule {
		i := slices.IndexFunc(guard.Resources, func(own wire.Resource) bool { return own.Name == r.Name })
		if i < 0 {
			rest = append(rest, r)
			continue
		}
		guard.Resources[i].Resource = wire.Stronger(guard.Resources[i].Resource, r)
	}
	return rest
}

// rulePrefix begins the names of the parts of rules. The names of guarded steps begin with a number.
const rulePrefix = "rule/"

// isRules reports whether a wake-up is for a request of a rule.
func isRules(u lockcore.Wakeup) bool { return strings.HasPrefix(u.Part, u.Run+"/"+rulePrefix) }

// callerByRule returns the caller of a step that a rule locks. run is the run of its workflow, or only has a namespace.
//
// An operator's reset restarts the attempts of an activity at 1. A workflow can allow any number of attempts. For an activity without a
// workflow, the order of an attempt begins with the tenth of a second in which it started, so that none is refused after a reset.
func callerByRule(info activity.Info, run wire.Run) lockcore.Caller {
	order := lockcore.Order{Schedule: 1, Attempt: uint32(max(info.Attempt, 0))}
	if info.IsWorkflowActivity() {
		step := wire.RuleStep(info.ActivityID, info.ActivityType.Name, info.ScheduledTime)
		return lockcore.Caller{LockID: run.StepLockID(step), Within: run.LockID(), Run: run.RunID, Part: run.Part(rulePrefix + info.ActivityType.Name), Order: order}
	}
	run.RunID = info.ActivityRunID
	order.Schedule += uint32(max(info.StartedTime.Sub(info.ScheduledTime), 0) / (time.Second / 10)) //nolint:gosec // for 6 years
	own := wire.Standalone{Namespace: run.Namespace, ActivityID: info.ActivityID, ActivityType: info.ActivityType.Name, RunID: info.ActivityRunID}
	return lockcore.Caller{LockID: own.LockID(), Run: run.RunID, Part: run.Part(rulePrefix + info.ActivityType.Name), Order: order}
}

// enterRule takes the locks of a rule, under a lock ID of the step's own, so that the locks of its workflow do not block it. The step waits and
// holds as the owner of its guard, or of the workflow code that scheduled it, so that a deadlock through the rule is found. An activity without
// a workflow is an owner of its own.
func (a *activityInbound) enterRule(ctx context.Context, run wire.Run, guard *wire.Guard, resources []lockcore.Resource, held []lockcore.Lease) ([]lockcore.Lease, error) {
	info := activity.GetInfo(ctx)
	facts, err := wire.DecodeRuleFacts(interceptor.Header(ctx)[wire.RuleFactsKey])
	if guard != nil {
		facts, err = guard.RuleFacts(), nil
	}
	if err != nil {
		return nil, wire.Failure(err)
	}
	req := lockcore.StepRequest{
		Caller: callerByRule(info, run), Resources: resources,
		Owner: facts.Owner.Of(run), NeverVictim: facts.NeverVictim, Started: info.ScheduledTime, MaxWait: currentrun.InlineWait(info), Priority: info.Priority.PriorityKey,
		Comment: wire.Cut("rule of "+currentrun.AttemptName(info), 1024),
	}
	if !info.IsWorkflowActivity() {
		req.Owner = req.LockID
	}
	for _, lease := range held { // which nothing renews during the entry
		req.MaxWait = min(req.MaxWait, max(lease.Left/2, time.Millisecond))
	}
	if guard != nil {
		req.Started = guard.Started
	}
	if !facts.NeverVictim { // the saga's bar refuses its late steps, and must not refuse its compensations: a rule's orders are not the workflow's
		req.Saga = facts.Saga
	}
	leases, err := currentrun.Enter(ctx, a.locker, false, run, req)
	if err == nil {
		return leases, nil
	}
	a.warnCannotWait(ctx, err)
	if isLast(ctx) && !errors.Is(err, lockcore.ErrSuperseded) { // if it was superseded, the request belongs to another attempt
		a.withdraw(ctx, req)
	}
	if ctx.Err() != nil && wire.LockError(err) == nil {
		return nil, fmt.Errorf("lockstep: enter by the rule of %q: %w", info.ActivityType.Name, ctx.Err())
	}
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return nil, wire.WaitingFailure(busy, retryDelay(busy, info, rand.N[time.Duration]))
	}
	return nil, wire.Failure(wire.RewriteField(err, fmt.Sprintf("what the rule of %q returns: ", info.ActivityType.Name)))
}

// warnCannotWait logs a warning, once for each activity type, if err is that of a busy attempt and the step cannot wait for its locks.
func (a *activityInbound) warnCannotWait(ctx context.Context, err error) {
	info := activity.GetInfo(ctx)
	why := cannotWait(info)
	if why == "" || !errors.Is(err, lockcore.ErrBusy) || !a.isFirst("rule", info.ActivityType.Name) {
		return
	}
	activity.GetLogger(ctx).Warn("lockstep: a step with a rule found its lock busy and cannot wait for it: let the rule's activities be retried, "+
		"or guard them by workflows.Guard, with which the workflow waits", "why", why)
}

// cannotWait returns why a busy attempt of a step with a rule is not retried until it gets its locks; "" if it is retried.
func cannotWait(info activity.Info) string {
	why := noRetry(info)
	if why == "" && info.ScheduleToCloseTimeout > 0 && info.ScheduleToCloseTimeout < longestPause {
		why = fmt.Sprintf("its ScheduleToCloseTimeout is %v, and the pause between two attempts can be %v", info.ScheduleToCloseTimeout, longestPause)
	}
	return why
}

const (
	// firstPause and longestStep bound the pause of the head of a queue, which doubles with each attempt. Every other waiter multiplies
	// it by its position. longestPause is shorter than the time for which a claim is valid.
	firstPause   = 100 * time.Millisecond
	longestStep  = 5 * time.Second
	longestPause = 20 * time.Second
)

// retryDelay returns the delay before a busy attempt is retried. It is shorter near the head of the queue, and jittered. It always ends
// before the activity's timeout: the server fails an activity at once if its next attempt would come later.
func retryDelay(busy *lockcore.BusyError, info activity.Info, random func(time.Duration) time.Duration) time.Duration {
	step := pace.Backoff(firstPause, longestStep, int(info.Attempt))
	pause := pace.Jitter(wire.QueuePause(busy, step, longestPause), random)
	if info.ScheduleToCloseTimeout > 0 {
		left := info.ScheduleToCloseTimeout - info.StartedTime.Sub(info.ScheduledTime)
		pause = max(time.Millisecond, min(pause, left/2))
	}
	return pause
}
