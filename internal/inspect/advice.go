package inspect

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// adviceFor is what to do about a root blocker.
func adviceFor(n *Node) string {
	h, name := n.Hold, n.Party.Name
	switch {
	case n.Deadlock:
		return "a deadlock: it is found within seconds, and the party that started last is told; see lockstep deadlocks"
	case h == nil:
		return ""
	case h.State == lockcore.StateDraining:
		return fmt.Sprintf("its hold has ended, and a part of it may still work: it keeps others out for another %s at most", Short(h.ExpiresIn))
	case h.State == lockcore.StateClaimed:
		return fmt.Sprintf("it was granted the lock and has to take it up within %s; then the next is served", Short(h.ExpiresIn))
	case h.State == lockcore.StateWaiting:
		return "its turn is next"
	case h.LockID == Maintenance:
		return fmt.Sprintf("for maintenance: %s; it ends by %s", h.Comment, h.End)
	case n.Doing == nil:
		return fmt.Sprintf("ask whoever runs %q; if it is known to be dead: %s", name, h.End)
	}
	return n.Doing.advice(n)
}

func (d *Doing) advice(n *Node) string {
	h, name := n.Hold, n.Party.Name
	switch {
	case d.Status == Unknown:
		return "Temporal does not know this workflow run; if nobody works in its name: " + h.End
	case !d.open:
		return fmt.Sprintf("its run is over (%s): a janitor releases its locks within a minute; lockstep janitor --once does now", d.Status)
	case d.Status == "Paused":
		return "its workflow is paused: " + shellLine("temporal", "workflow", "unpause", "--workflow-id", name)
	case d.TaskFailures > 0:
		return fmt.Sprintf("its workflow task has failed %d times: its workers' logs say why", d.TaskFailures)
	}
	for _, a := range d.Activities {
		switch {
		case a.Waits:
		case a.State == "paused":
			return fmt.Sprintf("its activity %s is paused: %s", a.Type, shellLine("temporal", "activity", "unpause", "--workflow-id", name, "--activity-id", a.ID))
		case a.State == "in back-off":
			return fmt.Sprintf("its activity %s has failed (%s), attempt %d comes in %s", a.Type, a.Failure, a.Attempt, Short(time.Until(a.Next)))
		case a.State == "running" && h.Silent > silentFor(h):
			return fmt.Sprintf("nothing was heard of its worker %s for %s: if that is dead, its lock ends in %s by itself, or now: %s", a.Worker, Short(h.Silent), Short(h.ExpiresIn), h.End)
		case a.State == "running":
			return fmt.Sprintf("it is at work: %s has been running for %s", a.Type, Short(time.Since(a.Since)))
		default:
			return fmt.Sprintf("its activity %s was scheduled %s ago and no worker has taken it: is one running for its task queue?", a.Type, Short(time.Since(a.Since)))
		}
	}
	if d.Children > 0 {
		return "it waits for a child workflow"
	}
	return "it runs no activity: it waits for a timer, a signal or its next workflow task, and keeps the lock meanwhile"
}

// Short is a duration for people.
func Short(d time.Duration) string {
	switch {
	case d == lockcore.Forever:
		return "ever"
	case d >= 10*time.Minute:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return max(0, d).Round(10 * time.Millisecond).String()
}
