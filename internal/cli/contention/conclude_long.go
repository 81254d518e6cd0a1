package contention

import (
	"cmp"
	"fmt"
	"slices"
)

// suspect is a workflow type, or an owner of which no type is known, and the holds by which it is
// the root of waiting.
type suspect struct {
	name   string
	caused int64
	holds  []causing
	// typical is how long a hold is: half of what it caused is behind holds that are as long, or
	// longer.
	typical int64
}

// causing is a hold, and how much waiting it is the root of.
type causing struct {
	hold   *hold
	caused int64
}

// suspects groups what roots caused. Holds that a dead worker explains, holds that were not read,
// and waiting in a circle are told of elsewhere.
func (a *analysis) suspects() []*suspect {
	all := map[string]*suspect{}
	var list []*suspect
	for _, g := range a.roots {
		for i, length := range g.byHold {
			if i < 0 || a.holds[i].mostlyDead() {
				continue
			}
			h := &a.holds[i]
			name := cmp.Or(h.WorkflowType, short(g.owner))
			s := all[name]
			if s == nil {
				s = &suspect{name: name}
				all[name], list = s, append(list, s)
			}
			s.caused += length
			s.holds = append(s.holds, causing{h, length})
		}
	}
	for _, s := range list {
		s.keepLong()
	}
	slices.SortFunc(list, func(x, y *suspect) int { return cmp.Or(cmp.Compare(y.caused, x.caused), cmp.Compare(x.name, y.name)) })
	return list
}

// keepLong keeps the longest holds, behind which is half of what the suspect caused.
func (s *suspect) keepLong() {
	slices.SortFunc(s.holds, func(x, y causing) int {
		return cmp.Or(cmp.Compare(y.hold.length(), x.hold.length()), cmp.Compare(y.caused, x.caused), x.hold.Start.Compare(y.hold.Start))
	})
	var sum int64
	for i := range s.holds {
		if sum += s.holds[i].caused; 2*sum >= s.caused {
			s.typical, s.holds = s.holds[i].hold.length(), s.holds[:i+1]
			return
		}
	}
}

// longFinding is that much of the waiting is behind the long holds of one workflow type, or owner.
func (a *analysis) longFinding(r *Report) []Finding {
	for _, s := range a.suspects() {
		share := seconds(s.caused) / r.Totals.Wait.Total
		if share < muchOfWaiting {
			break
		}
		if s.typical < int64(longHold) && s.typical < longerHold*nanosecondsOf(r.Totals.Hold.P50) {
			continue
		}
		return []Finding{{
			Rule: "long-holds", Waited: seconds(s.caused), Count: len(s.holds), Advice: a.advice(s),
			Text: fmt.Sprintf("%s of the waiting (%s) is behind holds of %s, at least half of it behind %s that stood %s or longer", percent(min(share, 1)),
				duration(s.caused), s.name, thousands(len(s.holds)), duration(s.typical)),
		}}
	}
	return nil
}

// advice depends on what the holds spent their time on: one step, or standing between steps.
func (a *analysis) advice(s *suspect) string {
	var held, stood int64
	bySteps := map[string]int64{}
	for _, c := range s.holds {
		if len(c.hold.Steps) == 0 {
			return ""
		}
		held, stood = held+c.hold.length(), stood+max(c.hold.length()-c.hold.ran()-a.waitedUnder(c.hold), 0)
		for i := range c.hold.Steps {
			bySteps[c.hold.Steps[i].Name] += c.hold.Steps[i].during().length()
		}
	}
	step, most := "", int64(0)
	for name, length := range bySteps {
		if length > most || length == most && name < step {
			step, most = name, length
		}
	}
	switch {
	case float64(stood) >= mostOfWaiting*float64(held):
		return fmt.Sprintf("For %s of their %s no step ran and no lock was waited for: hold over less of the saga, "+
			"and look for what delayed it between its steps, such as a worker that had died", duration(stood), duration(held))
	case step != "" && float64(most) >= mostOfWaiting*float64(held):
		return fmt.Sprintf("Step %s takes most of that time: do its slow part before the lock is taken", step)
	}
	return ""
}

// waitedUnder is for how long a hold stood while its holder waited for other locks.
func (a *analysis) waitedUnder(h *hold) int64 {
	var meanwhile []interval
	for _, i := range a.waitsDuring(a.tied(h), h.interval) {
		meanwhile = append(meanwhile, a.waits[i].with(h.interval))
	}
	return covered(meanwhile)
}
