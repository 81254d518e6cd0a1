package contention

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// A wait keeps from minBlockers to maxBlockers of its blockers, so that all waits together keep about allBlockers.
	minBlockers = 3
	maxBlockers = 100
	allBlockers = 1_000_000
	// sameTime is the largest difference at which two times count as one: the database's clock sometimes runs backwards.
	sameTime = 100 * time.Millisecond
)

// lane is one resource's holds and waits, in the order of their starts.
type lane struct {
	resource string
	holds    []obstacle
	waits    []int32
	// claims are the disjoint times in which the resource was granted to a waiter that had not taken it yet.
	claims []interval
}

// obstacle is a hold, reduced to the fields that decide whether it was in the way of a wait.
type obstacle struct {
	interval // from its start until it no longer kept others out
	fence    int64
	lockID   int32
	owner    int32
	hold     int32
	shared   bool
}

// blocking is a hold that was in the way of a wait during an interval.
type blocking struct {
	interval
	reach int64      // the end of the hold's effect, also beyond the wait
	hold  int32      // -1 if the hold was not read
	named *namedHold // the wait's own record of the hold, nil if the hold follows from times and fences
	last  bool       // its end let the wait in
}

// compareTime orders blockings as a wait lists them.
func (b *blocking) compareTime(o *blocking) int {
	return cmp.Or(cmp.Compare(b.from, o.from), cmp.Compare(b.to, o.to), cmp.Compare(b.hold, o.hold))
}

// blamed is the time others spent waiting for an owner, and the number of their waits.
type blamed struct {
	length int64
	waits  int
}

// account collects what one owner is blamed for at the resource of the current sweep.
type account struct {
	blamed
	wait  int32 // the wait counted last, plus 1
	until int64 // the end of the time counted in that wait
}

type ownerAt struct{ owner, resource string }

// sweep finds the blockers of all waits: for each resource it goes through the waits in the order of their starts, and keeps a list of
// the holds that have begun and may still be in the way. It looks at each pair of a wait and a hold that overlap. A queue has at most
// 2,000 waiters by default, so a wait overlaps a few thousand holds at most.
type sweep struct {
	*analysis
	keep     int       // the number of blockers that a wait keeps
	accounts []account // by owner
	visited  []int32   // the owners that have an account at the current resource
	blocked  []int64   // by hold
	isNamed  []int32   // by hold: its place in found, plus 1, while the current wait's span names it
	found    []blocking
	gaps     []interval // the parts of the current wait that no hold explains
}

// findBlockers fills in the waits' blockers, and how long holds and owners kept others waiting.
func (a *analysis) findBlockers() {
	s := sweep{
		analysis: a, keep: maxBlockers,
		accounts: make([]account, len(a.numbered)), blocked: make([]int64, len(a.holds)), isNamed: make([]int32, len(a.holds)),
	}
	if n := len(a.waits); n > 0 {
		s.keep = min(max(allBlockers/n, minBlockers), maxBlockers)
	}
	a.blamed, a.blamedOn = map[string]blamed{}, map[ownerAt]int64{}
	for _, l := range a.lanes() {
		s.lane(l)
		if a.stopped() {
			return
		}
	}
	for i := range a.holds {
		h := &a.holds[i]
		h.blocked = s.blocked[i]
		h.Blocked = seconds(h.blocked)
	}
}

// lanes sorts holds and waits by resource. Resources are in the order of their first hold or wait.
func (a *analysis) lanes() []*lane {
	at := map[string]*lane{}
	var all []*lane
	of := func(resource string) *lane {
		l := at[resource]
		if l == nil {
			l = &lane{resource: resource}
			at[resource] = l
			all = append(all, l)
		}
		return l
	}
	for i := range a.holds {
		h := &a.holds[i]
		l := of(h.Resource)
		l.holds = append(l.holds, obstacle{
			interval: interval{h.from, h.reach}, fence: h.Fence, lockID: h.lockNumber, owner: h.ownerNumber, hold: int32(i), shared: h.Mode == shared,
		})
	}
	for i := range a.waits {
		w := &a.waits[i]
		l := of(w.Resource)
		l.waits = append(l.waits, int32(i))
		if w.Hold >= 0 && a.holds[w.Hold].from > w.to {
			l.claims = append(l.claims, interval{w.to, a.holds[w.Hold].from})
		}
	}
	for _, l := range all {
		a.limitDraining(l)
		l.claims = union(l.claims)
	}
	return all
}

var shared = lockcore.ModeShared.String()

// limitDraining ends the time for which a drained hold kept others out when another lock ID was granted the resource.
func (a *analysis) limitDraining(l *lane) {
	for n := range l.holds {
		h := &l.holds[n]
		end := a.holds[h.hold].to
		if h.to <= end {
			continue
		}
		for _, next := range l.holds[n+1:] {
			if next.from >= h.to {
				break
			}
			if next.from >= end && next.lockID != h.lockID {
				h.to = next.from
				break
			}
		}
		a.holds[h.hold].reach = h.to
	}
}

func (s *sweep) lane(l *lane) {
	var begun []obstacle // the holds that began before the current wait and may still be in the way
	next := 0            // the first hold that has not begun
	ahead := 0           // the first wait that did not begin before the current one
	var exclusiveUntil int64
	for _, i := range l.waits {
		if s.stopped() {
			return
		}
		w := &s.waits[i]
		for ; next < len(l.holds) && l.holds[next].from <= w.from; next++ {
			begun = append(begun, l.holds[next])
		}
		begun = slices.DeleteFunc(begun, func(h obstacle) bool { return h.to <= w.from })
		for ; s.waits[l.waits[ahead]].from < w.from; ahead++ {
			if x := &s.waits[l.waits[ahead]]; x.Mode != shared {
				exclusiveUntil = max(exclusiveUntil, x.to)
			}
		}
		s.wait(l, i, exclusiveUntil, begun, l.holds[next:])
	}
	for _, owner := range s.visited {
		acc := &s.accounts[owner]
		name := s.numbered[owner]
		total := s.analysis.blamed[name]
		s.analysis.blamed[name] = blamed{total.length + acc.length, total.waits + acc.waits}
		if acc.length > 0 {
			s.blamedOn[ownerAt{name, l.resource}] = acc.length
		}
		*acc = account{}
	}
	s.visited = s.visited[:0]
}

// wait finds the blockers of one wait among the holds that had begun before it and the later ones. Exclusive requests were ahead of it in
// the queue until exclusiveUntil.
func (s *sweep) wait(l *lane, i int32, exclusiveUntil int64, begun, later []obstacle) {
	w := &s.waits[i]
	s.findNamed(w)
	named := len(s.found)
	later = later[:sort.Search(len(later), func(n int) bool { return later[n].from >= w.to })]
	counts := s.chosenWait(w)
	granted := int64(math.MaxInt64) // a hold with this fence, or a greater one, came after the wait
	if fence := cmp.Or(w.span.fence, w.span.hold); fence > 0 && w.letIn() {
		granted = fence
	}
	until, explained := w.from, int64(0)
	s.gaps = s.gaps[:0]
	for _, holds := range [][]obstacle{begun, later} { // both in the order of their starts
		for j := range holds {
			h := &holds[j]
			at := h.with(w.interval)
			if s.isNamed[h.hold] == 0 {
				at = h.inTheWay(w, granted, exclusiveUntil)
			}
			if at.length() == 0 {
				continue
			}
			if s.isNamed[h.hold] == 0 {
				s.found = append(s.found, blocking{interval: at, reach: h.to, hold: h.hold})
			}
			if at.from > until {
				s.gaps = append(s.gaps, interval{until, at.from})
			}
			explained += max(at.to-max(at.from, until), 0)
			until = max(until, at.to)
			if counts {
				s.blocked[h.hold] += at.length()
				s.charge(h.owner, i, at)
			}
		}
	}
	if until < w.to {
		s.gaps = append(s.gaps, interval{until, w.to})
	}
	for _, b := range s.found[:named] {
		if b.hold >= 0 {
			s.isNamed[b.hold] = 0
			if counts && b.length() == 0 {
				s.charge(s.holds[b.hold].ownerNumber, i, b.interval)
			}
		}
	}
	w.unexplained = w.length() - explained
	s.markLast(w)
	s.measureHandOver(l, w)
	s.list(w, i)
}

// inTheWay returns the time in which a hold was in the way of a wait that does not name it. Shared holds block a shared request without a
// limit only while an exclusive request is ahead in the queue.
func (h *obstacle) inTheWay(w *wait, granted, exclusiveUntil int64) interval {
	if h.lockID == w.lockNumber || h.fence >= granted {
		return interval{}
	}
	at := h.with(w.interval)
	if h.shared && w.Mode == shared && w.span.limit <= 0 {
		at.to = min(at.to, exclusiveUntil)
	}
	return at
}

// charge blames an owner for a part of a wait. The parts of one wait come in the order of their starts; where they overlap they count once.
func (s *sweep) charge(owner, wait int32, at interval) {
	acc := &s.accounts[owner]
	if acc.wait != wait+1 {
		if acc.wait == 0 {
			s.visited = append(s.visited, owner)
		}
		acc.wait, acc.until = wait+1, at.from
		acc.waits++
	}
	acc.length += max(at.to-max(at.from, acc.until), 0)
	acc.until = max(acc.until, at.to)
}

// findNamed starts the list of blockers with the holds that the wait's own span names, each once.
func (s *sweep) findNamed(w *wait) {
	s.found = s.found[:0]
	for n, named := range w.span.blockedBy {
		b := blocking{interval: interval{w.from, w.from}, hold: -1, named: named, last: w.span.namesLast && n == len(w.span.blockedBy)-1}
		if b.last {
			b.interval = interval{w.to, w.to}
		}
		if known := slices.IndexFunc(s.found, func(f blocking) bool { return f.named.lockID == named.lockID && f.named.fence == named.fence }); known >= 0 {
			if f := &s.found[known]; b.last {
				f.last = true
				if f.hold < 0 {
					f.interval = b.interval
				}
			}
			continue
		}
		if h, ok := s.holdNamed(w, named); ok {
			if s.isNamed[h] > 0 {
				continue
			}
			s.isNamed[h] = int32(len(s.found)) + 1 //nolint:gosec // a span has few events
			b.hold = h
			b.interval = interval{s.holds[h].from, s.holds[h].reach}.with(w.interval)
			b.to = max(b.from, b.to)
			if b.from > w.to { // the clocks differ
				b.interval = interval{w.to, w.to}
			}
		}
		b.reach = b.to
		if b.hold >= 0 {
			b.reach = s.holds[b.hold].reach
		}
		s.found = append(s.found, b)
	}
}

// holdNamed finds a hold that a wait names. A claim had no fence yet, and a draining part may have a later fence than its hold: these are
// the first hold of the lock ID that overlaps the wait.
func (s *sweep) holdNamed(w *wait, named *namedHold) (int32, bool) {
	if h, ok := s.byKey[holdKey{w.Resource, named.lockID, named.fence}]; ok && named.fence != 0 {
		return h, true
	}
	of := s.byParty[party{w.Resource, named.lockID}]
	i := sort.Search(len(of), func(i int) bool { return s.holds[of[i]].reach > w.from })
	if i < len(of) && s.holds[of[i]].from < w.to {
		return of[i], true
	}
	return -1, false
}

// markLast marks the blocker whose end let the wait in: the last to end before the wait did. The span names the same one if the end of a
// hold let the wait in; otherwise it names the hold that was in the way before.
func (s *sweep) markLast(w *wait) {
	last, closest := -1, time.Duration(0)
	for i := range s.found {
		b := &s.found[i]
		before := time.Duration(w.to - b.reach)
		if b.last && before.Abs() <= sameTime {
			before = 0
		}
		if before < 0 { // the hold ended later, by a clock that ran backwards, or another hold made room
			before = math.MaxInt64/2 - before
		}
		if last < 0 || before < closest || before == closest && (b.last || !s.found[last].last && b.compareTime(&s.found[last]) >= 0) {
			last, closest = i, before
		}
	}
	for i := range s.found {
		s.found[i].last = i == last && w.letIn()
	}
}

// measureHandOver measures for how long the resource had been granted to another waiter that had not taken it yet, while no hold was in
// the way. A claim that was never taken is known only because the wait names it last, without a fence: it began when the hold before it
// had ended, and lasted until the end of the wait.
func (s *sweep) measureHandOver(l *lane, w *wait) {
	if w.unexplained == 0 {
		return
	}
	neverTaken, since := false, w.from
	for i := range s.found {
		if b := &s.found[i]; b.last && b.hold < 0 && b.named.fence == 0 {
			neverTaken = true
		} else {
			since = max(since, b.to)
		}
	}
	if !neverTaken {
		since = w.to
	}
	claims := l.claims[sort.Search(len(l.claims), func(i int) bool { return l.claims[i].to > w.from }):]
	for _, gap := range s.gaps {
		gap.to = min(gap.to, since)
		for len(claims) > 0 && claims[0].to <= gap.from {
			claims = claims[1:]
		}
		for _, c := range claims {
			if c.from >= gap.to {
				break
			}
			w.handOver += c.with(gap).length()
		}
	}
	w.handOver += w.to - since
}

// list writes the most important blockers into the wait, in the order of time.
func (s *sweep) list(w *wait, i int32) {
	w.Unexplained, w.HandOver = seconds(w.unexplained), seconds(w.handOver)
	kept := mostImportant(s.found, s.keep)
	slices.SortStableFunc(kept, func(x, y blocking) int { return x.compareTime(&y) })
	w.Omitted = len(s.found) - len(kept)
	w.Blockers = make([]Blocker, len(kept))
	for j := range kept {
		w.Blockers[j] = s.blockerOf(w, &kept[j])
		if h := kept[j].hold; h >= 0 {
			s.holds[h].Blocks = append(s.holds[h].Blocks, int(i))
		}
	}
}

// mostImportant returns n of the blockings: the one whose end let the wait in, those that the wait names, and the longest others.
func mostImportant(found []blocking, n int) []blocking {
	if len(found) <= n {
		return found
	}
	rank := func(b *blocking) int {
		switch {
		case b.last:
			return 2
		case b.named != nil:
			return 1
		}
		return 0
	}
	compare := func(x, y blocking) int {
		return cmp.Or(cmp.Compare(rank(&y), rank(&x)), cmp.Compare(y.length(), x.length()), x.compareTime(&y))
	}
	kept := make([]blocking, 0, 2*n)
	full := false
	for i := range found {
		if full && compare(found[i], kept[n-1]) >= 0 {
			continue
		}
		if kept = append(kept, found[i]); len(kept) == 2*n {
			slices.SortStableFunc(kept, compare)
			kept, full = kept[:n], true
		}
	}
	slices.SortStableFunc(kept, compare)
	return kept[:n]
}

func (a *analysis) blockerOf(w *wait, c *blocking) Blocker {
	b := Blocker{Hold: int(c.hold), From: seconds(c.from - w.from), To: seconds(c.to - w.from), Named: c.named != nil, Last: c.last}
	if n := c.named; n != nil {
		b.LockID, b.Owner, b.Fence = n.lockID, cmp.Or(n.owner, n.lockID), n.fence
		b.Trace, b.Span = hexIDs(n.trace, n.span)
	}
	if c.hold < 0 {
		b.Workflow, _ = parseLockID(b.LockID)
		return b
	}
	h := &a.holds[c.hold]
	b.LockID, b.Owner, b.Fence, b.Workflow = h.LockID, h.Owner, h.Fence, h.Workflow
	if s := h.stepDuring(c.interval); s != nil {
		b.Step, b.Trace, b.Span = s.Name, s.Trace, s.Span
	} else if b.Trace == "" {
		b.Trace, b.Span = h.Trace, h.Span
	}
	if s := h.stepBefore(c.to); b.Step == "" && s != nil {
		b.Step, b.BetweenSteps = s.Name, true
	}
	return b
}

// union joins the times that overlap or touch, in their order. It reuses the memory of its argument.
func union(times []interval) []interval {
	slices.SortFunc(times, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
	joined := times[:0]
	for _, t := range times {
		if n := len(joined); n > 0 && t.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, t.to)
			continue
		}
		joined = append(joined, t)
	}
	return joined
}
