package contention

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// deadlock is one of the report, and what the conclusion needs of it.
type deadlock struct {
	Deadlock
	// upgradeOf is the resource if all in the circle waited for the same one: they held it shared,
	// and wanted it alone.
	upgradeOf string
}

// findDeadlocks lists those that were ended: by their own spans, or, if one was not read, by the
// victim's wait.
func (a *analysis) findDeadlocks() {
	told, typeOf := map[party]int{}, a.typesOfOwners()
	for i := range a.records[kindDeadlock] {
		r := &a.records[kindDeadlock][i]
		if a.symbols.text(r.texts[textOutcome]) == telemetry.OutcomeOK {
			told[r.party()]++
			a.addDeadlock(r, typeOf)
		}
	}
	for i := range a.waits {
		r := a.waits[i].record
		switch {
		case a.waits[i].Outcome != telemetry.OutcomeDeadlock:
		case told[r.party()] > 0:
			told[r.party()]--
		default:
			a.addDeadlock(r, typeOf)
		}
	}
	slices.SortStableFunc(a.deadlocks, func(x, y deadlock) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Span, y.Span))
	})
}

// addDeadlock adds one, as a record tells it.
func (a *analysis) addDeadlock(r *record, typeOf map[string]string) {
	text := a.symbols.text
	if !a.chosen(text(r.texts[textResource]), interval{r.start, r.end}) {
		return
	}
	d := deadlock{Deadlock: Deadlock{
		At: timeOf(r.end), Victim: cmp.Or(text(r.texts[textOwner]), workflowOr(text(r.texts[textLockID]))), Cycle: text(r.texts[textCycle]),
		Resource: text(r.texts[textResource]), LockID: text(r.texts[textLockID]),
	}}
	d.Trace, d.Span = hexIDs(r.trace, r.id)
	describe(&d, typeOf)
	a.deadlocks = append(a.deadlocks, d)
}

// describe says of which types those were that waited for one another, if all of them are known.
// Some waited behind a place in the queue and not behind a hold, so the circle is read from its
// text.
func describe(d *deadlock, typeOf map[string]string) {
	types, resources := map[string]bool{}, map[string]bool{}
	for clause := range strings.SplitSeq(d.Cycle, ", ") {
		owner, rest, ok := strings.Cut(clause, " waits for ")
		on := strings.LastIndex(rest, " on ")
		if !ok || on < 0 {
			types[""], resources[""], resources[clause] = true, true, true
			continue
		}
		types[typeOf[owner]], types[typeOf[rest[:on]]] = true, true
		resources[rest[on+len(" on "):]] = true
	}
	if len(resources) == 1 {
		d.upgradeOf = d.Resource
	}
	if !types[""] {
		d.WorkflowTypes = slices.Sorted(maps.Keys(types))
	}
}

// typesOfOwners are the workflow types of owners, as far as they are known.
func (a *analysis) typesOfOwners() map[string]string {
	all := map[string]string{}
	for i := range a.holds {
		if h := &a.holds[i]; h.WorkflowType != "" {
			all[h.Owner] = h.WorkflowType
		}
	}
	for i := range a.waits {
		if w := &a.waits[i]; w.WorkflowType != "" {
			all[w.Owner] = w.WorkflowType
		}
	}
	return all
}
