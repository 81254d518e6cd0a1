package contention

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Thresholds of the conclusion and of the sentences about resources. docs/contention.md lists those of the conclusion.
const (
	// Shares of all waiting.
	muchUnread   = 0.25
	muchHandOver = 0.25
	muchDead     = 0.05
	// Shares of the waiting that one cause explains, and of the time that a resource is held.
	muchOfWaiting = 0.4
	mostOfWaiting = 0.5
	mostOfTime    = 0.8
	// fewDeadlocks of the same types make a finding; the mostGroups largest groups are listed.
	fewDeadlocks = 2
	mostGroups   = 3
	// A hold is long if it takes longHold, or longerHold times the median of all holds.
	longHold   = time.Second
	longerHold = 3
)

// conclude adds the findings. One that makes the others doubtful comes first.
func (a *analysis) conclude() {
	r := a.report
	total := r.Totals.Wait.Total
	found := a.deadlockFindings()
	if total > 0 {
		found = append(found, a.deadFinding(total)...)
		long := append(a.longFinding(), handOverFinding(&r.Totals)...)
		found = append(found, long...)
		if !slices.ContainsFunc(long, func(f Finding) bool { return f.Rule == "long-holds" }) {
			found = append(found, hotFinding(r)...)
		}
		if unread := r.Totals.Unexplained - r.Totals.HandOver; unread >= muchUnread*total {
			found = slices.Insert(found, 0, Finding{
				Rule: "unread", Waited: unread, Text: percent(unread/total) + " of the waiting is explained by no hold that was read",
				Advice: "Read the traces of all processes; what follows is about the rest",
			})
		}
	}
	switch {
	case len(found) > 0:
	case total == 0:
		found = []Finding{{Rule: "no-waits", Text: fmt.Sprintf("None of %s had to wait", many(r.Totals.Acquisitions, "acquisition"))}}
	default:
		first := &r.Resources[0]
		found = []Finding{{
			Rule: "none", Waited: first.Wait.Total,
			Text: fmt.Sprintf("No single cause stands out. %s was waited for most: %s of the waiting", first.Name, percent(min(first.Wait.Total/total, 1))),
		}}
	}
	r.Conclusion = found
}

// deadlockFindings groups deadlocks by the types that waited for one another.
func (a *analysis) deadlockFindings() []Finding {
	byTypes := map[string]*Finding{}
	for i := range a.deadlocks {
		d := &a.deadlocks[i]
		between := typesText(d.WorkflowTypes)
		f := entry(byTypes, between+d.upgradeOf)
		f.Rule, f.Text = "deadlocks", between
		f.Advice = "Let each take all its locks in one guard: it takes them in the order of their names"
		if d.upgradeOf != "" {
			f.Advice = "They held " + d.upgradeOf + " shared, and each wanted it alone: ask for it exclusively at once"
		}
		f.Count++
	}
	var found []Finding
	for _, f := range byTypes {
		if f.Count >= fewDeadlocks {
			f.Text = many(f.Count, "deadlock") + f.Text
			found = append(found, *f)
		}
	}
	slices.SortFunc(found, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Text, y.Text), cmp.Compare(x.Advice, y.Advice))
	})
	return found[:min(len(found), mostGroups)]
}

func typesText(types []string) string {
	switch len(types) {
	case 0:
		return " of which not all types are known"
	case 1:
		return " among workflows of type " + types[0]
	}
	return " between " + strings.Join(types[:len(types)-1], ", ") + " and " + types[len(types)-1]
}

// deadFinding sums up the waits behind holds whose worker died.
func (a *analysis) deadFinding(total float64) []Finding {
	var length int64
	waits, holds, expired := 0, map[*hold]int64{}, 0
	for _, w := range chosen(a.waits) {
		var dead coverage
		for j := range w.Blockers {
			b := &w.Blockers[j]
			if b.Hold < 0 {
				continue
			}
			h := a.holds[b.Hold]
			at := w.blockedDuring(b).with(h.dead())
			dead.add(at)
			if at.length() > 0 && holds[h] == 0 && h.WorkerDied.Ended == deathExpired {
				expired++
			}
			holds[h] += at.length()
		}
		if n := dead.length(); n > 0 {
			length += n
			waits++
		}
	}
	if seconds(length) < muchDead*total || waits == 0 {
		return nil
	}
	maps.DeleteFunc(holds, func(_ *hold, waited int64) bool { return waited == 0 })
	worst := slices.MinFunc(slices.Collect(maps.Keys(holds)), func(x, y *hold) int {
		return cmp.Or(cmp.Compare(holds[y], holds[x]), cmp.Compare(x.place, y.place))
	})
	f := Finding{
		Rule: "dead-workers", Waited: seconds(length), Count: waits,
		Text: fmt.Sprintf("%s, %s in all (%s), stood behind %s in which a worker died or hung; %s of it for step %s of %s", many(waits, "wait"), duration(length),
			percent(min(seconds(length)/total, 1)), many(len(holds), "hold"), duration(holds[worst]), worst.WorkerDied.Step, short(worst.Owner)),
		Advice: "A heartbeat timeout, or a shorter one, lets the step's next attempt begin sooner",
	}
	if expired > 0 {
		f.Advice = "A shorter TTL frees the locks of a dead step sooner, and a heartbeat timeout lets its next attempt begin sooner"
	}
	return []Finding{f}
}

func handOverFinding(t *Totals) []Finding {
	if t.HandOver < muchHandOver*t.Wait.Total {
		return nil
	}
	return []Finding{{
		Rule: "hand-overs", Waited: t.HandOver, Text: percent(t.HandOver/t.Wait.Total) + " of the waiting was for locks that had been granted and were not taken yet",
		Advice: "Look whether the workers that wait are busy or gone; more activity slots or workers help",
	}}
}

// hotFinding applies if one resource is requested more often than it can be granted.
func hotFinding(r *Report) []Finding {
	first := &r.Resources[0]
	if first.Wait.Total < mostOfWaiting*r.Totals.Wait.Total || first.Busy < mostOfTime || first.Hold.Count < 10 || first.Hold.Max >= muchOfWaiting*first.Hold.Total {
		return nil
	}
	return []Finding{{
		Rule: "hot", Waited: first.Wait.Total, Count: first.Hold.Count,
		Text: fmt.Sprintf("%s has %s of the waiting, and is held %s of the time by one hold after another, %s each (median)", first.Name,
			percent(min(first.Wait.Total/r.Totals.Wait.Total, 1)), percent(first.Busy), Seconds(first.Hold.P50)),
		Advice: "It is wanted more often than it can be had: divide it, or shorten the steps that hold it",
	}}
}

// suspect is a workflow type, or an owner of unknown type, and the holds by which it is the root of waiting.
type suspect struct {
	name   string
	caused int64
	holds  []causing
}

// causing is a hold, and how much waiting it is the root of.
type causing struct {
	hold   *hold
	caused int64
}

// suspects groups what roots caused, without holds that a dead worker explains, holds that were not read, and cycles: other findings are
// about those. The greatest comes first.
func (a *analysis) suspects() []*suspect {
	byName := map[string]*suspect{}
	for _, g := range a.roots {
		for i, length := range g.byHold {
			if i < 0 || a.holds[i].mostlyDead() {
				continue
			}
			h := a.holds[i]
			name := cmp.Or(h.WorkflowType, short(g.owner))
			s := entry(byName, name)
			s.name = name
			s.caused += length
			s.holds = append(s.holds, causing{h, length})
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(x, y *suspect) int {
		return cmp.Or(cmp.Compare(y.caused, x.caused), cmp.Compare(x.name, y.name))
	})
}

// longest returns the longest holds, which explain half of what the suspect caused.
func (s *suspect) longest() []causing {
	slices.SortFunc(s.holds, func(x, y causing) int {
		return cmp.Or(cmp.Compare(y.hold.length(), x.hold.length()), cmp.Compare(y.caused, x.caused), x.hold.Start.Compare(y.hold.Start))
	})
	n, sum := 0, int64(0)
	for ; 2*sum < s.caused; n++ {
		sum += s.holds[n].caused
	}
	return s.holds[:n]
}

// longFinding applies if much of the waiting is behind the long holds of one suspect.
func (a *analysis) longFinding() []Finding {
	t := &a.report.Totals
	for _, s := range a.suspects() {
		share := seconds(s.caused) / t.Wait.Total
		if share < muchOfWaiting {
			break
		}
		holds := s.longest()
		typical := holds[len(holds)-1].hold.length()
		if typical < int64(longHold) && typical < longerHold*nanosecondsOf(t.Hold.P50) {
			continue
		}
		return []Finding{{
			Rule: "long-holds", Waited: seconds(s.caused), Count: len(holds), Advice: a.advice(holds),
			Text: fmt.Sprintf("%s of the waiting (%s) is behind holds of %s, at least half of it behind %s that stood %s or longer", percent(min(share, 1)),
				duration(s.caused), s.name, thousands(len(holds)), duration(typical)),
		}}
	}
	return nil
}

// advice depends on how the holds spent their time: with one step, or between steps.
func (a *analysis) advice(holds []causing) string {
	var held, idle int64
	bySteps := map[string]int64{}
	for _, c := range holds {
		if len(c.hold.Steps) == 0 {
			return ""
		}
		if lock := c.hold.holdOnly(); lock != nil {
			return fmt.Sprintf("%s of the workflow holds it, across whatever the workflow waits for: take it later, or release it sooner", lock.Name)
		}
		var waited coverage
		for _, w := range a.waitsDuring(c.hold, c.hold.interval) {
			waited.add(w.with(c.hold.interval))
		}
		held, idle = held+c.hold.length(), idle+max(c.hold.length()-c.hold.ran()-waited.length(), 0)
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
	case float64(idle) >= mostOfWaiting*float64(held):
		return fmt.Sprintf("For %s of their %s no step ran and no lock was waited for: hold over less of the saga, "+
			"and look for what delayed it between its steps, such as a worker that had died", duration(idle), duration(held))
	case step != "" && float64(most) >= mostOfWaiting*float64(held):
		return fmt.Sprintf("Step %s takes most of that time: do its slow part before the lock is taken", step)
	}
	return ""
}

// why explains in a sentence where the waiting for a resource comes from.
func (a *analysis) why(of *resource, holds []*hold, r *Resource) string {
	total := nanosecondsOf(r.Wait.Total)
	if total == 0 {
		return "nobody had to wait"
	}
	share := func(ns int64) float64 { return float64(ns) / float64(total) }
	var worst *hold
	var most *owner // the owner that others waited for longest, the first of equals
	counts, held := map[*owner]int{}, map[*owner]int64{}
	for _, h := range holds {
		if worst == nil || h.blocked > worst.blocked {
			worst = h
		}
		if of.blamed[h.owner] > of.blamed[most] {
			most = h.owner
		}
		counts[h.owner]++
		held[h.owner] += h.length()
	}
	holders := a.holdersTime(holds)
	switch {
	case worst != nil && share(worst.blocked) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was for %s, which held it %s%s",
			percent(min(share(worst.blocked), 1)), short(worst.Owner), duration(worst.length()), a.because(worst))
	case share(nanosecondsOf(r.HandOver)) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was hand-overs: it had been granted, and was not taken yet. Were the workers that it was granted to busy, or gone?",
			percent(share(nanosecondsOf(r.HandOver))))
	case share(nanosecondsOf(r.Unexplained)) >= mostOfWaiting:
		return fmt.Sprintf("%s of the waiting is explained by no hold that was read: are the traces of all processes here?",
			percent(share(nanosecondsOf(r.Unexplained))))
	case share(of.blamed[most]) >= muchOfWaiting:
		return fmt.Sprintf("%s of the waiting was for %s, which held it %s in %s", percent(min(share(of.blamed[most]), 1)),
			short(most.name), duration(held[most]), many(counts[most], "hold"))
	case holders.waited > 0 && float64(holders.waited) >= muchOfWaiting*float64(holders.held):
		return fmt.Sprintf("its holders waited themselves: for %s of the %s that they kept others waiting, most for %s; their steps ran %s",
			duration(holders.waited), duration(holders.held), holders.waitedFor, duration(holders.ran))
	case holders.held > 0 && float64(holders.ran) < muchOfWaiting*float64(holders.held):
		return fmt.Sprintf("its holders were between two steps: their steps ran %s of the %s that they kept others waiting",
			duration(holders.ran), duration(holders.held))
	case r.Busy >= mostOfTime:
		return fmt.Sprintf("many short holds, one after another: held %s of the time by %s, %s each (median)",
			percent(r.Busy), many(len(counts), "owner"), Seconds(r.Hold.P50))
	case r.LongestQueue == 1:
		return fmt.Sprintf("now and then two met: held %s of the time by %s, and never did more than one wait", percent(r.Busy), many(len(counts), "owner"))
	}
	return fmt.Sprintf("bursts: held only %s of the time, but up to %d queued at once", percent(r.Busy), r.LongestQueue)
}

// holdersTime sums up the holds of a resource that kept others waiting.
type holdersTime struct {
	held, ran, waited int64
	waitedFor         string // the resource for which they waited longest
}

func (a *analysis) holdersTime(holds []*hold) holdersTime {
	var t holdersTime
	waited := map[string]int64{}
	for _, h := range holds {
		if h.blocked == 0 || len(h.Steps) == 0 || h.holdOnly() != nil { // no request waited for it, or what it did is not known
			continue
		}
		t.held += h.length()
		t.ran += h.ran()
		var waits coverage
		for _, w := range a.waitsDuring(h, h.interval) {
			if w.resource != h.resource {
				at := w.with(h.interval)
				waits.add(at)
				waited[w.Resource] += at.length()
			}
		}
		t.waited += waits.length()
	}
	for resource, length := range waited {
		if most := waited[t.waitedFor]; length > most || length == most && resource < t.waitedFor {
			t.waitedFor = resource
		}
	}
	return t
}

// because explains how a hold spent its time.
func (a *analysis) because(h *hold) string {
	if h.mostlyDead() {
		return ": " + h.WorkerDied.text()
	}
	text := a.spent(h)
	if h.WorkerDied != nil {
		text += "; " + h.WorkerDied.text()
	}
	return text
}

func (a *analysis) spent(h *hold) string {
	ran := h.ran()
	overlong := h.overlong(ran)
	var waited int64 // the longest wait of the holder
	var waitedFor string
	for _, w := range a.waitsDuring(h, h.interval) {
		if n := w.with(h.interval).length(); n >= waited {
			waited, waitedFor = n, w.Resource
		}
	}
	switch {
	case h.Outcome == telemetry.OutcomeExpired:
		return ": it did not release it, and it expired"
	case h.Outcome == telemetry.OutcomeOrphaned:
		return ": its workflow ended without releasing it, and another process did"
	case h.Outcome == telemetry.OutcomeRevoked:
		return ": it did not release it, and it was taken away"
	case h.Outcome == OutcomeOpen:
		return " and more: its end was not read"
	case overlong && 2*waited >= h.length()-ran:
		return fmt.Sprintf(", of which its steps ran %s: it waited itself %s for %s", duration(ran), duration(waited), waitedFor)
	case !overlong && 2*waited >= h.length():
		return fmt.Sprintf(": it waited itself %s for %s", duration(waited), waitedFor)
	case overlong:
		return fmt.Sprintf(", of which its steps ran %s: the rest of the time it stood between steps", duration(ran))
	}
	if lock := h.holdOnly(); lock != nil {
		return ", by " + lock.Name + " of the workflow"
	}
	if s := h.stepDuring(h.interval); s != nil && 2*s.during().length() >= h.length() && s.Name != "" {
		return fmt.Sprintf(", of which step %s ran %s", s.Name, duration(s.during().length()))
	}
	return ""
}
