package contention

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Death is that of a worker that died, or hung, while a step of its own held: the step's attempt
// was never seen to end.
type Death struct {
	Step string `json:"step"`
	Host string `json:"host,omitempty"`
	// From is when the attempt began, and To when the hold was free of it.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Ended is how: "expired", when the hold's promise ended and another took its room, or
	// "retried", when the step's next attempt entered.
	Ended string `json:"ended"`
}

// How a hold is free of an attempt whose worker died.
const (
	deathExpired = telemetry.OutcomeExpired
	deathRetried = "retried"
)

// findDeath finds the death of a worker that explains a hold, the longest of several. Steps stand
// in the order of parts and attempts, see arrangeSteps. A kept hold that expires between two steps
// is none: no worker had it.
func (h *hold) findDeath() {
	for i := range h.Steps {
		s := &h.Steps[i]
		if !s.EndUnseen {
			continue
		}
		d := Death{Step: s.Name, Host: s.Host, From: s.Start, To: s.End, Ended: deathRetried}
		if i+1 == len(h.Steps) || h.Steps[i+1].Part != s.Part { // its last attempt
			if h.Outcome != telemetry.OutcomeExpired {
				continue
			}
			d.To, d.Ended = h.End, deathExpired
		}
		if h.WorkerDied == nil || d.To.Sub(d.From) > h.WorkerDied.To.Sub(h.WorkerDied.From) {
			h.WorkerDied = &d
		}
	}
}

// dead is when the hold stood without a worker, at the most.
func (h *hold) dead() interval {
	d := h.WorkerDied
	if d == nil {
		return interval{}
	}
	to := d.To.UnixNano()
	if d.Ended == deathExpired {
		to = max(h.reach, to)
	}
	return interval{d.From.UnixNano(), to}
}

// text says what happened, as far as it is known.
func (d *Death) text() string {
	if d.Ended == deathExpired {
		return fmt.Sprintf("a worker died, or hung, in step %s, and the hold expired", d.Step)
	}
	return fmt.Sprintf("a worker died, or hung, in step %s, whose next attempt entered %s later", d.Step, Seconds(d.To.Sub(d.From).Seconds()))
}

// mostlyDead reports whether a worker that died explains most of a hold.
func (h *hold) mostlyDead() bool { return 2*h.dead().length() >= h.length() && h.WorkerDied != nil }

// alsoDied says that a worker died too while it held, if that explains but a part of the hold.
func (h *hold) alsoDied() string {
	if h.WorkerDied == nil || h.mostlyDead() {
		return ""
	}
	return "; " + h.WorkerDied.text()
}
