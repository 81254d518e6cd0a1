package contention

import (
	"cmp"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// deadlock is one of the report, and what the conclusion needs of it.
type deadlock struct {
	Deadlock
	// waited is how long those in the circle waited, and upgradeOf the resource if all of them waited for the same one.
	waited    int64
	upgradeOf string
}

// findDeadlocks lists those that were ended: by their own spans, or, if one was not read, by the victim's wait.
func (a *analysis) findDeadlocks() {
	given := map[party][]int{} // the waits that were given up
	for i := range a.waits {
		if a.waits[i].Outcome == telemetry.OutcomeDeadlock {
			p := a.waits[i].record.party()
			given[p] = append(given[p], i)
		}
	}
	for i := range a.records[kindDeadlock] {
		r := &a.records[kindDeadlock][i]
		if a.symbols.text(r.texts[textOutcome]) != telemetry.OutcomeOK {
			continue
		}
		victim := -1
		if of := given[r.party()]; len(of) > 0 {
			victim, given[r.party()] = of[0], of[1:]
		}
		a.addDeadlock(r, victim)
	}
	for _, of := range given {
		for _, i := range of {
			a.addDeadlock(a.waits[i].record, i)
		}
	}
	slices.SortStableFunc(a.deadlocks, func(x, y deadlock) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Span, y.Span), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.LockID, y.LockID))
	})
}

// addDeadlock adds one, as a record tells it, with the victim's wait if that was read.
func (a *analysis) addDeadlock(r *record, victim int) {
	text := a.symbols.text
	if !a.chosen(text(r.texts[textResource]), interval{r.start, r.end}) {
		return
	}
	d := deadlock{Deadlock: Deadlock{
		At: timeOf(r.end), Victim: cmp.Or(text(r.texts[textOwner]), workflowOr(text(r.texts[textLockID]))), Cycle: text(r.texts[textCycle]),
		Resource: text(r.texts[textResource]), LockID: text(r.texts[textLockID]),
	}}
	d.Trace, d.Span = hexIDs(r.trace, r.id)
	if victim >= 0 {
		a.describeCircle(&d, a.circle(victim))
	}
	a.deadlocks = append(a.deadlocks, d)
}

// describeCircle says of which types those were that waited for one another, if all of them are known, and for how long.
func (a *analysis) describeCircle(d *deadlock, circle []int) {
	types, resources := map[string]bool{}, map[string]bool{}
	for _, i := range circle {
		w := &a.waits[i]
		d.waited += w.length()
		types[w.WorkflowType], resources[w.Resource] = true, true
	}
	if len(circle) > 1 && len(resources) == 1 {
		d.upgradeOf = d.Resource
	}
	if !types[""] {
		d.WorkflowTypes = slices.Sorted(maps.Keys(types))
	}
}
