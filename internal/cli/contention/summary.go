package contention

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func (a *analysis) addResources() {
	for _, r := range a.resources {
		holds, waits := chosen(r.holds), chosen(r.waits)
		if len(holds)+len(waits) > 0 {
			a.report.Resources = append(a.report.Resources, a.summary(r, holds, waits))
		}
	}
	slices.SortFunc(a.report.Resources, func(x, y Resource) int {
		return cmp.Or(cmp.Compare(y.Wait.Total, x.Wait.Total), cmp.Compare(y.Hold.Total, x.Hold.Total), cmp.Compare(x.Name, y.Name))
	})
}

func (a *analysis) summary(of *resource, holds []*hold, waits []*wait) Resource {
	held, waited := times(holds), times(waits)
	r := Resource{Name: of.name, Wait: distribution(waited), Hold: distribution(held)}
	r.Unexplained, r.HandOver = unexplained(waits)
	if n := float64(hull(slices.Concat(held, waited)).length()); n > 0 {
		r.Busy, r.Contended = float64(covered(held))/n, float64(covered(waited))/n
	}
	r.Queue, r.LongestQueue = queueLengths(waited)
	r.Why = a.why(of, holds, &r)
	return r
}

// addMembers lists the members of pools that were held or waited for.
func (a *analysis) addMembers() {
	type member struct{ resource, name string }
	held, waited := map[member][]interval{}, map[member][]interval{}
	for _, h := range chosen(a.holds) {
		if h.Member != "" {
			of := member{h.Resource, h.Member}
			held[of] = append(held[of], h.interval)
		}
	}
	for _, w := range chosen(a.waits) {
		if w.Member != "" {
			of := member{w.Resource, w.Member}
			waited[of] = append(waited[of], w.interval)
			if _, known := held[of]; !known {
				held[of] = nil // no hold of it was read
			}
		}
	}
	for of := range held {
		a.report.Members = append(a.report.Members, Member{of.resource, of.name, distribution(waited[of]), distribution(held[of])})
	}
	slices.SortFunc(a.report.Members, func(x, y Member) int {
		return cmp.Or(cmp.Compare(y.Wait.Total, x.Wait.Total), cmp.Compare(y.Hold.Total, x.Hold.Total),
			cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Name, y.Name))
	})
}

// addPriorities sums up the waits by priority, unless all have the usual one.
func (a *analysis) addPriorities() {
	waited := map[int][]interval{}
	for _, w := range chosen(a.waits) {
		waited[w.Priority] = append(waited[w.Priority], w.interval)
	}
	if len(waited) == 1 && waited[usualPriority] != nil {
		return
	}
	for _, priority := range slices.Sorted(maps.Keys(waited)) {
		a.report.Priorities = append(a.report.Priorities, Priority{priority, distribution(waited[priority])})
	}
}

// unexplained sums up, in seconds, the time that no hold explains, and the hand-overs in it.
func unexplained(waits []*wait) (all, handOver float64) {
	var sum, handOvers int64
	for _, w := range waits {
		sum += w.unexplained
		handOvers += w.handOver
	}
	return seconds(sum), seconds(handOvers)
}

// distribution is that of the lengths of times.
func distribution(times []interval) Distribution {
	d := Distribution{Count: len(times)}
	if d.Count == 0 {
		return d
	}
	lengths := make([]int64, len(times))
	var total int64
	for i, t := range times {
		lengths[i] = t.length()
		total += lengths[i]
	}
	slices.Sort(lengths)
	rank := func(percent int) float64 {
		return seconds(lengths[max((percent*len(lengths)+99)/100, 1)-1])
	}
	d.Total, d.P50, d.P95, d.P99, d.Max = seconds(total), rank(50), rank(95), rank(99), rank(100)
	return d
}

// queueLengths returns the length of the queue whenever it changes. If one waiter leaves at the moment at which another comes, the queue
// does not become longer.
func queueLengths(waits []interval) (lengths []QueueLength, longest int) {
	type change struct {
		at int64
		by int
	}
	changes := make([]change, 0, 2*len(waits))
	for _, w := range waits {
		if w.length() > 0 {
			changes = append(changes, change{w.from, 1}, change{w.to, -1})
		}
	}
	slices.SortFunc(changes, func(x, y change) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.by, y.by)) })
	lengths = []QueueLength{}
	length := 0
	for i, c := range changes {
		length += c.by
		longest = max(longest, length)
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		if n := len(lengths); n == 0 || lengths[n-1].Length != length {
			lengths = append(lengths, QueueLength{timeOf(c.at), length})
		}
	}
	return lengths, longest
}

// addOwners lists the owners that kept others waiting or waited themselves.
func (a *analysis) addOwners() {
	for _, h := range chosen(a.holds) {
		h.owner.chosen = true
		h.owner.held += h.length()
	}
	for _, w := range chosen(a.waits) {
		w.owner.chosen = true
		w.owner.waited += w.length()
	}
	for _, o := range a.owners {
		if o.chosen && (o.blamed.waits > 0 || o.waited > 0) {
			a.report.Owners = append(a.report.Owners, Owner{
				Name: o.name, Blocked: seconds(o.blamed.length), BlockedWaits: o.blamed.waits, Worst: o.worst,
				Waited: seconds(o.waited), Held: seconds(o.held),
			})
		}
	}
	slices.SortFunc(a.report.Owners, func(x, y Owner) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Name, y.Name))
	})
}

func (a *analysis) addOverlong() {
	for _, h := range chosen(a.holds) {
		if ran := h.ran(); h.overlong(ran) {
			a.report.Overlong = append(a.report.Overlong, Overlong{Hold: h.place, Held: seconds(h.length()), Ran: seconds(ran), Blocked: h.Blocked})
		}
	}
	slices.SortStableFunc(a.report.Overlong, func(x, y Overlong) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(y.Held-y.Ran, x.Held-x.Ran))
	})
}

func (a *analysis) addTotals() {
	holds, waits := chosen(a.holds), chosen(a.waits)
	t := &a.report.Totals
	t.Acquisitions = len(holds)
	for _, h := range holds {
		if h.Outcome == telemetry.OutcomeExpired {
			t.Expired++
		}
	}
	for _, w := range waits {
		if w.Outcome == telemetry.OutcomeGranted {
			t.Waited++
			if w.Hold < 0 {
				t.Acquisitions++ // its hold was not read
			}
		}
	}
	for _, l := range a.report.Losses {
		if l.Outcome == telemetry.OutcomeLost {
			t.Lost++
		}
	}
	held, waited := times(holds), times(waits)
	t.Hold, t.Wait = distribution(held), distribution(waited)
	t.Unexplained, t.HandOver = unexplained(waits)
	t.Deadlocks = len(a.deadlocks)
	if whole := hull(slices.Concat(held, waited)); whole.to > 0 {
		a.report.From, a.report.To = timeOf(whole.from), timeOf(whole.to)
	}
}

// loadPoints is the number of equal parts into which the time of a report is divided.
const loadPoints = 120

func (a *analysis) addLoad() {
	r := a.report
	if !r.To.After(r.From) {
		return
	}
	whole := interval{r.From.UnixNano(), r.To.UnixNano()}
	n := min(loadPoints, whole.length())
	bounds := make([]int64, n+1) // a product of the length and loadPoints may not fit
	for i := range n + 1 {
		bounds[i] = whole.from + whole.length()/n*i + whole.length()%n*i/n
	}
	held, waiting := meanCounts(bounds, times(chosen(a.holds))), meanCounts(bounds, times(chosen(a.waits)))
	for i := range n {
		r.Load = append(r.Load, Load{timeOf(bounds[i]), held[i], waiting[i]})
	}
}

// meanCounts returns how many of the times lasted at once, in the mean of each part between two bounds.
func meanCounts(bounds []int64, times []interval) []float64 {
	n := len(bounds) - 1
	partly := make([]int64, n)   // how long times lasted in each part that they do not fill
	change := make([]int64, n+1) // the number of times that fill a part, minus that of the part before
	part := func(at int64) int {
		return min(sort.Search(n, func(i int) bool { return bounds[i+1] > at }), n-1)
	}
	for _, t := range times {
		if t.length() == 0 {
			continue
		}
		first, last := part(t.from), part(t.to)
		if first == last {
			partly[first] += t.length()
			continue
		}
		partly[first] += bounds[first+1] - t.from
		partly[last] += t.to - bounds[last]
		change[first+1]++
		change[last]--
	}
	means := make([]float64, n)
	var filling int64
	for i := range means {
		filling += change[i]
		means[i] = float64(filling) + float64(partly[i])/float64(bounds[i+1]-bounds[i])
	}
	return means
}

// pair is two workflow types, or two steps.
type pair struct{ waiter, blocker string }

// typesAndSteps are the types and the steps of a wait and a blocker. If they are about types alone, the steps are empty.
type typesAndSteps struct{ types, steps pair }

// addTypes groups the waits of workflows by the types of waiters and blockers, and by their steps. Where several blockers of one type
// were in the way of a wait at once, the time counts once.
func (a *analysis) addTypes() {
	byTypes, bySteps := map[typesAndSteps]*blamed{}, map[typesAndSteps]*blamed{}
	for _, w := range chosen(a.waits) {
		if w.Workflow == "" {
			continue
		}
		ofTypes, ofSteps := map[typesAndSteps]*coverage{}, map[typesAndSteps]*coverage{}
		for i := range w.Blockers {
			b := &w.Blockers[i]
			types := pair{w.WorkflowType, a.blockerType(b)}
			entry(ofTypes, typesAndSteps{types: types}).add(w.blockedDuring(b))
			entry(ofSteps, typesAndSteps{types, pair{w.Step, b.Step}}).add(w.blockedDuring(b))
		}
		addCoverages(byTypes, ofTypes)
		addCoverages(bySteps, ofSteps)
	}
	steps := map[pair][]StepPair{}
	for k, b := range bySteps {
		steps[k.types] = append(steps[k.types], StepPair{k.steps.waiter, k.steps.blocker, seconds(b.length), b.waits})
	}
	for of, b := range byTypes {
		p := TypePair{Waiter: of.types.waiter, Blocker: of.types.blocker, Waited: seconds(b.length), Waits: b.waits, Steps: steps[of.types]}
		slices.SortFunc(p.Steps, func(x, y StepPair) int {
			return cmp.Or(cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Blocker, y.Blocker))
		})
		a.report.Types = append(a.report.Types, p)
	}
	slices.SortFunc(a.report.Types, func(x, y TypePair) int {
		return cmp.Or(cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Blocker, y.Blocker))
	})
}

// entry returns the value of a key, and adds one if there is none.
func entry[K comparable, V any](all map[K]*V, key K) *V {
	v := all[key]
	if v == nil {
		v = new(V)
		all[key] = v
	}
	return v
}

func addCoverages(sums map[typesAndSteps]*blamed, ofWait map[typesAndSteps]*coverage) {
	for key, c := range ofWait {
		if length := c.length(); length > 0 {
			sum := entry(sums, key)
			sum.length += length
			sum.waits++
		}
	}
}

func (a *analysis) blockerType(b *Blocker) string {
	if b.Hold >= 0 {
		return a.holds[b.Hold].WorkflowType
	}
	return a.workflowType("", b.Workflow)
}

// blockedDuring returns the time in which a blocker was in the wait's way.
func (w *wait) blockedDuring(b *Blocker) interval {
	return interval{w.from + nanosecondsOf(b.From), w.from + nanosecondsOf(b.To)}
}

// findLosses lists the holds that did not end by a release, and the steps that found their lock lost.
func (a *analysis) findLosses() {
	var losses []Loss
	for _, h := range chosen(a.holds) {
		switch h.Outcome {
		case telemetry.OutcomeExpired, telemetry.OutcomeRevoked, telemetry.OutcomeOrphaned:
			losses = append(losses, Loss{
				Hold: h.place, Resource: h.Resource, LockID: h.LockID, Owner: h.Owner, At: h.End,
				Outcome: h.Outcome, Reason: h.Reason, Trace: h.Trace, Span: h.Span,
			})
		}
	}
	for _, kind := range []spanKind{kindAcquire, kindRenew, kindLeave, kindLost} {
		for i := range a.byKind[kind] {
			s := &a.byKind[kind][i]
			if s.outcome == telemetry.OutcomeLost && a.chosen(s.resource, interval{s.start, s.end}) && (s.resource != "" || !a.reportedByHolders(s)) {
				losses = append(losses, a.lossOf(s))
			}
		}
	}
	slices.SortStableFunc(losses, func(x, y Loss) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Outcome, y.Outcome), cmp.Compare(x.Span, y.Span))
	})
	a.report.Losses = append(a.report.Losses, slices.Compact(losses)...) // spans of others may have been read twice
}

// reportedByHolders reports whether the holders recorded, with names, the losses that a renewal of several locks found.
func (a *analysis) reportedByHolders(renewal *lockSpan) bool {
	return slices.ContainsFunc(a.byKind[kindLost], func(s lockSpan) bool {
		return s.start >= renewal.start-int64(time.Second) && s.start <= renewal.end+int64(5*time.Second)
	})
}

// lossOf is the loss that a step found, with its latest hold. A renewal of several locks names none.
func (a *analysis) lossOf(s *lockSpan) Loss {
	l := Loss{
		Hold: -1, Resource: s.resource, LockID: s.lockID, Owner: cmp.Or(s.owner, s.lockID), At: timeOf(s.end),
		Outcome: telemetry.OutcomeLost, Reason: s.reason,
	}
	l.Trace, l.Span = hexIDs(s.trace, s.id)
	for _, h := range slices.Backward(a.byParty[party{s.resource, s.lockID}]) {
		if h.from <= s.end {
			l.Hold, l.Owner = h.place, h.Owner
			break
		}
	}
	return l
}

// deadlock is a deadlock of the report, with what the conclusion needs.
type deadlock struct {
	Deadlock
	// upgradeOf is the resource if all of the cycle waited for the same one: they held it shared, and requested it exclusively.
	upgradeOf string
}

// findDeadlocks lists the deadlocks that were ended: by their own spans or, if one was not read, by the victim's wait.
func (a *analysis) findDeadlocks() {
	spans := map[party]int{}
	for i := range a.byKind[kindDeadlock] {
		if s := &a.byKind[kindDeadlock][i]; s.outcome == telemetry.OutcomeOK {
			spans[party{s.resource, s.lockID}]++
			a.addDeadlock(s)
		}
	}
	for _, w := range a.waits {
		victim := party{w.Resource, w.LockID}
		switch {
		case w.Outcome != telemetry.OutcomeDeadlock:
		case spans[victim] > 0:
			spans[victim]--
		default:
			a.addDeadlock(w.span)
		}
	}
	slices.SortStableFunc(a.deadlocks, func(x, y deadlock) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Span, y.Span))
	})
	for i := range a.deadlocks {
		a.report.Deadlocks = append(a.report.Deadlocks, a.deadlocks[i].Deadlock)
	}
}

func (a *analysis) addDeadlock(s *lockSpan) {
	if !a.chosen(s.resource, interval{s.start, s.end}) {
		return
	}
	d := deadlock{Deadlock: Deadlock{
		At: timeOf(s.end), Victim: cmp.Or(s.owner, workflowOr(s.lockID)), Cycle: s.cycle, Resource: s.resource, LockID: s.lockID,
	}}
	d.Trace, d.Span = hexIDs(s.trace, s.id)
	a.readCycle(&d)
	a.deadlocks = append(a.deadlocks, d)
}

// readCycle finds the workflow types in the cycle, if all of them are known. It reads the text, since some waited behind another waiter
// and not behind a hold.
func (a *analysis) readCycle(d *deadlock) {
	types, resources := map[string]bool{}, map[string]bool{}
	for clause := range strings.SplitSeq(d.Cycle, ", ") {
		owner, rest, ok := strings.Cut(clause, " waits for ")
		on := strings.LastIndex(rest, " on ")
		if !ok || on < 0 {
			types[""], resources[""] = true, true
			continue
		}
		for _, name := range []string{owner, rest[:on]} {
			workflowType := ""
			if o := a.owners[name]; o != nil {
				workflowType = o.workflowType
			}
			types[workflowType] = true
		}
		resources[rest[on+len(" on "):]] = true
	}
	if len(resources) == 1 && !resources[""] {
		d.upgradeOf = d.Resource
	}
	if !types[""] {
		d.WorkflowTypes = slices.Sorted(maps.Keys(types))
	}
}
