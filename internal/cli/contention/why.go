package contention

import (
	"fmt"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Shares of a resource's waiting from which on something counts as what it comes from.
const (
	muchOfWaiting = 0.4
	mostOfWaiting = 0.5
	mostOfTime    = 0.8
)

// why says in a sentence what the waiting for a resource comes from, so that a person knows where to look.
func (a *analysis) why(u *usage, r *Resource) string {
	total := nanosecondsOf(r.Wait.Total)
	if total == 0 {
		return "nobody had to wait"
	}
	share := func(ns int64) float64 { return float64(ns) / float64(total) }
	var worst *hold
	blocked := map[sym]int64{}
	owners, held := map[sym]int{}, map[sym]int64{}
	for _, h := range u.holds {
		if worst == nil || h.blocked > worst.blocked {
			worst = h
		}
		owners[h.owner]++
		held[h.owner] += h.length()
		blocked[h.owner] = a.blamedOn[ownerAt{h.owner, u.resource}]
	}
	var owner sym
	for _, h := range u.holds { // in order, so that equals are told of always in the same way
		if blocked[h.owner] > blocked[owner] {
			owner = h.owner
		}
	}
	spent := a.spentBy(u.holds)
	switch {
	case worst != nil && share(worst.blocked) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was for %s, which held it %s%s",
			percent(min(share(worst.blocked), 1)), short(worst.Owner), duration(worst.length()), a.because(worst)+worst.alsoDied())
	case share(nanosecondsOf(r.HandOver)) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was hand-overs: it had been granted, and was not taken yet. Were the workers that it was granted to busy, or gone?",
			percent(share(nanosecondsOf(r.HandOver))))
	case share(nanosecondsOf(r.Unexplained)) >= mostOfWaiting:
		return fmt.Sprintf("%s of the waiting is explained by no hold that was read: are the traces of all processes here?",
			percent(share(nanosecondsOf(r.Unexplained))))
	case share(blocked[owner]) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was for %s, which held it %s in %s", percent(min(share(blocked[owner]), 1)),
			short(a.symbols.text(owner)), duration(held[owner]), many(owners[owner], "hold"))
	case spent.waited > 0 && float64(spent.waited) >= muchOfWaiting*float64(spent.held):
		return fmt.Sprintf("those who held it waited themselves: for %s of the %s that they kept others waiting, most for %s; their steps ran %s",
			duration(spent.waited), duration(spent.held), a.symbols.text(spent.on), duration(spent.ran))
	case spent.held > 0 && float64(spent.ran) < muchOfWaiting*float64(spent.held):
		return fmt.Sprintf("those who held it stood between steps: their steps ran %s of the %s that they kept others waiting",
			duration(spent.ran), duration(spent.held))
	case r.Busy >= mostOfTime:
		return fmt.Sprintf("many short holds, one after another: held %s of the time by %s, %s each (median)",
			percent(r.Busy), many(len(owners), "owner"), Seconds(r.Hold.P50))
	}
	if r.LongestQueue == 1 {
		return fmt.Sprintf("now and then two met: held %s of the time by %s, and never did more than one wait", percent(r.Busy), many(len(owners), "owner"))
	}
	return fmt.Sprintf("bursts: held only %s of the time, but up to %d queued at once", percent(r.Busy), r.LongestQueue)
}

// because says what a hold spent its time on.
func (a *analysis) because(h *hold) string {
	ran := h.ran()
	stood := h.overlong(ran)
	waited, on := a.waitedMeanwhile(h)
	switch {
	case h.mostlyDead():
		return ": " + h.WorkerDied.text()
	case h.Outcome == telemetry.OutcomeExpired:
		return ": it did not release it, and it expired"
	case h.Outcome == telemetry.OutcomeOrphaned:
		return ": its workflow had ended without releasing it, and the janitor did"
	case h.Outcome == telemetry.OutcomeRevoked:
		return ": it did not release it, and it was taken away"
	case h.Outcome == OutcomeOpen:
		return " and more: its end was not read"
	case stood && 2*waited >= h.length()-ran:
		return fmt.Sprintf(", of which its steps ran %s: it waited itself %s for %s", duration(ran), duration(waited), on)
	case !stood && 2*waited >= h.length():
		return fmt.Sprintf(": it waited itself %s for %s", duration(waited), on)
	case stood:
		return fmt.Sprintf(", of which its steps ran %s: the rest of the time it stood between steps", duration(ran))
	}
	if s := h.stepDuring(h.interval); s != nil && 2*s.during().length() >= h.length() && s.Name != "" {
		return fmt.Sprintf(", of which step %s ran %s", s.Name, duration(s.during().length()))
	}
	return ""
}

// waitedMeanwhile is for how long, and for what, a hold's holder waited most while it held.
func (a *analysis) waitedMeanwhile(h *hold) (length int64, on string) {
	i, most := a.waitDuring(a.tied(h), h.interval)
	if i < 0 {
		return 0, ""
	}
	return most, a.waits[i].Resource
}

func percent(share float64) string {
	switch p := 100 * share; {
	case p > 99 && p < 100:
		return "over 99 %"
	case p > 0 && p < 1:
		return "under 1 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", thousands(n), what)
}

// thousands is a number with its thousands apart.
func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func duration(ns int64) string { return Seconds(seconds(ns)) }

// Seconds is a duration for people, with two digits that count.
func Seconds(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 0.000_999_5:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 0.009_95:
		return fmt.Sprintf("%.1f ms", s*1e3)
	case s < 0.999_5:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 99.95:
		return fmt.Sprintf("%.1f s", s)
	case s < 5999.5:
		return fmt.Sprintf("%dm%02ds", int(s+0.5)/60, int(s+0.5)%60)
	}
	return fmt.Sprintf("%dh%02dm", int(s+30)/3600, int(s+30)%3600/60)
}
