package inspect

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// advise returns what to do about a root blocker.
func (s *Site) advise(n *Node) string {
	h := n.Hold
	switch {
	case n.Deadlock && n.Children != nil:
		waits := n.Children[len(n.Children)-1]
		return s.adviseFamily("its child workflow "+waits, waits)
	case n.relative != "":
		return s.adviseFamily("workflow "+n.relative+", which has the same owner,", n.relative)
	case n.Deadlock:
		return "a deadlock: it is found within seconds, and the party that started last gives up; see " + s.command("deadlocks")
	case h == nil && n.Doing != nil && n.Doing.open:
		return s.adviseOpen(n.Doing, nil, n.Party.Workflow)
	case h == nil:
		return ""
	case h.State == lockcore.StateDraining:
		return fmt.Sprintf("a part of it was cut off and may still work: it keeps others out %s%s", untilLeft(h.ExpiresIn, "for another %s at most"), ifDead(h))
	case h.State == lockcore.StateClaimed:
		return fmt.Sprintf("it was granted the lock and must confirm that within %s; otherwise the next waiter gets it", Short(h.ExpiresIn))
	case h.State == lockcore.StateWaiting:
		return "it is next in the queue"
	case h.LockID == Maintenance:
		return fmt.Sprintf("for maintenance: %s; it ends by %s", h.Comment, h.End)
	case h.ExpiresIn <= 0:
		return "it has expired: any party may acquire it"
	case n.Party.Activity != "" && n.Party.Namespace == s.Temporal.NamespaceID:
		return fmt.Sprintf("%s: %s shows what it does%s", h.process(),
			s.temporalCommand("activity", "describe", "--activity-id", n.Party.Activity, "--run-id", h.Run), ifDead(h))
	case n.Party.Workflow == "":
		return h.process() + ": ask its operators what it does" + ifDead(h)
	case n.Doing == nil:
		return fmt.Sprintf("ask its operators what %q does%s", n.Party.Name, ifDead(h))
	case n.Doing.Reason != "":
		return "Temporal gave no answer about this workflow run: " + n.Doing.Reason + ifDead(h)
	case n.Doing.Status == Unknown:
		return "Temporal does not know this workflow run" + ifDead(h)
	case !n.Doing.open:
		return s.adviseClosed(n.Doing, h)
	}
	return s.adviseOpen(n.Doing, h, n.Party.Workflow)
}

// earlierAttempt describes an attempt that drains while its party holds the lock, or returns the empty string.
func (n *Node) earlierAttempt() string {
	if n.draining == nil || n.draining == n.Hold {
		return ""
	}
	return fmt.Sprintf("; attempt %d was cut off and keeps others out %s", n.draining.Order.Attempt, untilLeft(n.draining.ExpiresIn, "for another %s at most"))
}

// process describes the holder of a hold that is not a workflow's.
func (e *Entry) process() string {
	if e.LockID == Maintenance {
		return "for maintenance: " + e.Comment
	}
	host := cmp.Or(e.Host, "an unknown host")
	if e.Party.Activity != "" {
		return "it is an activity without a workflow, on " + host
	}
	return "it is a process on " + host + ", not a workflow"
}

// ifDead returns the command that ends a hold at once, with its condition.
func ifDead(h *Entry) string {
	if h.endNow == "" {
		return ""
	}
	return "; if it is known to be dead: " + h.endNow
}

// adviseClosed returns the advice about a hold of a closed run.
func (s *Site) adviseClosed(d *Doing, h *Entry) string {
	over := fmt.Sprintf("its run is over (%s)", d.Status)
	switch {
	case d.heir != "":
		return fmt.Sprintf("%s, and run %s continues it: that takes over the locks that it needs, and a janitor releases the rest", over, d.heir)
	case !h.Kept:
		return fmt.Sprintf("%s, and one of its steps may still work: its lock ends %s%s", over, ending(h.ExpiresIn, " by itself unless it is renewed"), ifDead(h))
	}
	return fmt.Sprintf("%s: a janitor releases its locks within a minute; %s does now", over, s.command("janitor", "--once"))
}

// adviseOpen returns the advice about an open run, and its hold, which may be nil.
func (s *Site) adviseOpen(d *Doing, h *Entry, workflowID string) string {
	switch {
	case d.Status == "Paused":
		return "its workflow is paused: " + s.temporalCommand("workflow", "unpause", "--workflow-id", workflowID)
	case d.TaskFailures > 0:
		return fmt.Sprintf("its workflow task has failed %s: %s", table.Count(d.TaskFailures, "time"), cmp.Or(d.TaskFailure, "its workers' logs say why"))
	case !d.taskSince.IsZero() && time.Since(d.taskSince) > 2*pickUp: // another worker gets a task that was meant for a dead one after 5 s
		return fmt.Sprintf("its workflow task was scheduled %s ago and no worker has taken it: is one running for its task queue?", Short(time.Since(d.taskSince)))
	}
	// If it waited for a lock, it would be no root. An activity that waits for locks is then itself in the way.
	for _, waits := range []bool{false, true} {
		for i := range d.Activities {
			if a := &d.Activities[i]; a.Waits == waits {
				return s.adviseActivity(a, h, workflowID)
			}
		}
	}
	switch {
	case len(d.children) > 0:
		return s.adviseParent(d.children)
	case h == nil:
		return "it runs no activity: it waits for a timer, a signal or its next workflow task"
	}
	return "it runs no activity: it waits for a timer, a signal or its next workflow task, and keeps the lock until then"
}

// adviseActivity returns the advice about a hold of a workflow with a pending activity.
func (s *Site) adviseActivity(a *Activity, h *Entry, workflowID string) string {
	switch a.State {
	case "paused":
		return fmt.Sprintf("its activity %s is paused: %s", a.Type, s.temporalCommand("activity", "unpause", "--workflow-id", workflowID, "--activity-id", a.ID))
	case "in back-off":
		if a.Waits && (a.isBusy || a.Failure == "") {
			return fmt.Sprintf("it checks the queue again in %s", Short(time.Until(a.Next)))
		}
		failed := ""
		if a.Failure != "" {
			failed = " (" + a.Failure + ")"
		}
		if isUnknown := strings.Contains(a.Failure, "unable to find activityType"); isUnknown && strings.HasPrefix(a.Type, wire.ActivityPrefix) {
			failed += ": a worker of its task queue does not have the plugin"
		}
		return fmt.Sprintf("its activity %s has failed%s, attempt %d comes in %s", a.Type, failed, a.Attempt, Short(time.Until(a.Next)))
	case "running":
	default:
		if time.Since(a.Since) < pickUp {
			return fmt.Sprintf("its activity %s was scheduled %s ago and waits for a worker", a.Type, Short(time.Since(a.Since)))
		}
		return fmt.Sprintf("its activity %s was scheduled %s ago and no worker has taken it: is one running for its task queue?", a.Type, Short(time.Since(a.Since)))
	}
	for _, step := range runningIn(h) {
		if step.Silent <= usualSilence(step) {
			continue
		}
		ends := fmt.Sprintf("its lock ends %s, or now: %s", ending(step.ExpiresIn, " by itself"), h.endNow)
		if h.Kept {
			ends = "the workflow continues when the activity's timeout has ended that attempt, and keeps the lock until then; or end it: " + h.endNow
		}
		return fmt.Sprintf("nothing was heard of its worker %s for %s: if that is dead, %s", a.Worker, Short(step.Silent), ends)
	}
	return fmt.Sprintf("it is at work: %s has been running for %s", a.Type, Short(time.Since(a.Since)))
}

// runningIn returns the running parts of a hold, which may be nil.
func runningIn(h *Entry) []lockcore.Running {
	if h == nil {
		return nil
	}
	return h.Running
}

// pickUp is the time in which a worker usually takes an activity.
const pickUp = 5 * time.Second

// usualSilence returns the time without a renewal from which on a step is suspicious. It renews after a third of its TTL.
func usualSilence(r lockcore.Running) time.Duration {
	if r.ExpiresIn == lockcore.Forever {
		return time.Minute
	}
	return max(10*time.Second, (r.Silent+r.ExpiresIn)/2)
}

// ending returns when a lease that has d left ends, with the condition of that.
func ending(d time.Duration, condition string) string {
	if d == lockcore.Forever {
		return "when it is released"
	}
	return "in " + Short(d) + condition
}

// untilLeft returns for how long a part that has d left drains, in the format for a limited time.
func untilLeft(d time.Duration, format string) string {
	if d == lockcore.Forever {
		return "until it leaves"
	}
	return fmt.Sprintf(format, Short(d))
}

// Short formats a duration for people, as in "12 s" and "1 h 5 min".
func Short(d time.Duration) string {
	if d == lockcore.Forever {
		return "never"
	}
	d = max(0, d)
	switch {
	case d < 995*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Round(10*time.Millisecond).Milliseconds())
	case d < 10*time.Minute:
		d = d.Round(time.Second)
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Hour)
	}
	const day = 24 * time.Hour
	var text []string
	for _, unit := range []struct {
		name string
		in   time.Duration
		of   time.Duration
	}{{"d", day, math.MaxInt64}, {"h", time.Hour, day}, {"min", time.Minute, time.Hour}, {"s", time.Second, time.Minute}} {
		if n := d % unit.of / unit.in; n > 0 {
			text = append(text, fmt.Sprint(int64(n), " ", unit.name))
		}
	}
	return strings.Join(text, " ")
}
