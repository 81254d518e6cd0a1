package contention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Thresholds of the conclusion. docs/contention.md lists them.
const (
	// muchUnread and muchHandOver are shares of all waiting, and muchDead that behind workers that
	// died.
	muchUnread   = 0.25
	muchHandOver = 0.25
	muchDead     = 0.05
	// fewDeadlocks is from how many between the same types on they are told of, and mostGroups how
	// many such groups are.
	fewDeadlocks = 2
	mostGroups   = 3
	// longHold is the median from which on holds are long, and longerHold how many times the median
	// of all holds one may be instead.
	longHold   = time.Second
	longerHold = 3
)

// Finding is a sentence of the conclusion. It is there only if the data support it.
type Finding struct {
	// Rule names what it follows from: "unread", "deadlocks", "dead-workers", "long-holds",
	// "hand-overs", "hot", or "none" and "no-waits" if no other applies.
	Rule string `json:"rule"`
	// Text is what was found, and Advice what to do; either is a sentence without its full stop.
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
	// Waited is how much waiting it is about, and Count how many deadlocks, holds or waits.
	Waited float64 `json:"waited,omitempty"`
	Count  int     `json:"count,omitempty"`
}

// conclude says what the waiting comes from, and what to do. What makes the rest doubtful goes
// first.
func (a *analysis) conclude(r *Report) {
	r.Conclusion = []Finding{}
	add := func(found ...Finding) { r.Conclusion = append(r.Conclusion, found...) }
	total := r.Totals.Wait.Total
	add(a.deadlockFindings()...)
	if total > 0 {
		add(a.deadFinding(total)...)
		add(a.longFinding(r)...)
		add(handOverFinding(&r.Totals)...)
		if !slices.ContainsFunc(r.Conclusion, func(f Finding) bool { return f.Rule == "long-holds" }) {
			add(hotFinding(r)...)
		}
		if unread := r.Totals.Unexplained - r.Totals.HandOver; unread >= muchUnread*total {
			r.Conclusion = slices.Insert(r.Conclusion, 0, Finding{
				Rule: "unread", Waited: unread, Text: percent(unread/total) + " of the waiting is explained by no hold that was read",
				Advice: "Read the traces of all processes; what follows is about the rest",
			})
		}
	}
	switch {
	case len(r.Conclusion) > 0:
	case total == 0:
		add(Finding{Rule: "no-waits", Text: fmt.Sprintf("None of %s had to wait", many(r.Totals.Acquisitions, "acquisition"))})
	default:
		first := &r.Resources[0]
		add(Finding{
			Rule: "none", Waited: first.Wait.Total,
			Text: fmt.Sprintf("No single cause stands out. %s was waited for most: %s of the waiting", first.Name, percent(min(first.Wait.Total/total, 1))),
		})
	}
}

// deadlockFindings groups deadlocks by the types that waited for one another.
func (a *analysis) deadlockFindings() []Finding {
	byTypes := map[string]*Finding{}
	for i := range a.deadlocks {
		d := &a.deadlocks[i]
		between := typesText(d.WorkflowTypes)
		f := byTypes[between+d.upgradeOf]
		if f == nil {
			f = &Finding{Rule: "deadlocks", Text: between, Advice: "Let each take all its locks in one guard: it takes them in the order of their names"}
			if d.upgradeOf != "" {
				f.Advice = "They held " + d.upgradeOf + " shared, and each wanted it alone: ask for it exclusively at once"
			}
			byTypes[between+d.upgradeOf] = f
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
	waits, holds, expired := 0, map[int]bool{}, 0
	for i := range a.waits {
		w := &a.waits[i]
		if !a.chosenWait(w) {
			continue
		}
		var dead coverage
		for j := range w.Blockers {
			b := &w.Blockers[j]
			if b.Hold < 0 {
				continue
			}
			h := &a.holds[b.Hold]
			if dead.add(w.during(b).with(h.dead())) > 0 && !holds[b.Hold] {
				holds[b.Hold] = true
				if h.WorkerDied.Ended == deathExpired {
					expired++
				}
			}
		}
		length += dead.length()
		waits += dead.any()
	}
	if seconds(length) < muchDead*total || waits == 0 {
		return nil
	}
	f := Finding{
		Rule: "dead-workers", Waited: seconds(length), Count: waits,
		Text: fmt.Sprintf("%s, %s in all (%s), stood behind %s in which a worker died or hung", many(waits, "wait"), duration(length),
			percent(min(seconds(length)/total, 1)), many(len(holds), "hold")),
	}
	f.Advice = "A heartbeat timeout, or a shorter one, lets the step's next attempt begin sooner"
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

// hotFinding is that one resource is wanted more often than it can be had.
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
