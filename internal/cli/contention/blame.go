package contention

import (
	"cmp"
	"math"
	"math/rand/v2"
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

// blocking is a hold that was in the way of a wait during an interval.
type blocking struct {
	interval
	reach int64      // the end of the hold's effect, also beyond the wait
	hold  *hold      // nil if the hold was not read
	named *namedHold // the wait's own record of the hold, nil if the hold follows from times and fences
	last  bool       // its end let the wait in
	index int        // the index of a named hold among the wait's
}

// compareTime orders blockings as a wait lists them. No two of a wait are equal.
func (b *blocking) compareTime(o *blocking) int {
	return cmp.Or(cmp.Compare(b.from, o.from), cmp.Compare(b.to, o.to), cmp.Compare(b.hold.placeOr(), o.hold.placeOr()),
		cmp.Compare(b.index, o.index))
}

// placeOr returns -1 for no hold.
func (h *hold) placeOr() int {
	if h == nil {
		return -1
	}
	return h.place
}

// sweep finds the blockers of all waits: for each resource it goes through the waits in the order of their starts, and keeps a list of
// the holds that have begun and may still be in the way. It looks at each pair of a wait and a hold that overlap. A queue has at most
// 2,000 waiters by default, so a wait overlaps a few thousand holds at most.
type sweep struct {
	*analysis
	keep    int      // the number of blockers that a wait keeps
	charged []*owner // the owners blamed at the current resource
	found   []blocking
	gaps    []interval // the parts of the current wait that no hold explains
}

// findBlockers fills in the waits' blockers, and how long holds and owners kept others waiting.
func (a *analysis) findBlockers() {
	s := sweep{analysis: a, keep: maxBlockers}
	if n := len(a.waits); n > 0 {
		s.keep = min(max(allBlockers/n, minBlockers), maxBlockers)
	}
	for _, r := range a.resources {
		r.limitDraining()
		slices.SortFunc(r.claims, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
		var claims coverage
		for _, c := range r.claims {
			claims.add(c)
		}
		r.claims = claims
		s.sweep(r)
		if a.stopped() {
			return
		}
	}
	for _, h := range a.holds {
		h.Blocked = seconds(h.blocked)
	}
}

var shared = lockcore.ModeShared.String()

// limitDraining ends the time for which a drained hold kept others out when another lock ID was granted the
// resource, or its member of the pool.
func (r *resource) limitDraining() {
	for n, h := range r.holds {
		for i := n + 1; h.reach > h.to && i < len(r.holds) && r.holds[i].from < h.reach; i++ {
			if next := r.holds[i]; next.from >= h.to && next.LockID != h.LockID && next.Member == h.Member {
				h.reach = next.from
			}
		}
	}
}

func (s *sweep) sweep(r *resource) {
	var begun []*hold // the holds that began before the current wait and may still be in the way
	later := r.holds  // the holds that have not begun
	ahead := 0        // the first wait that did not begin before the current one
	var exclusiveUntil int64
	for _, w := range r.waits {
		if s.stopped() {
			return
		}
		for ; len(later) > 0 && later[0].from <= w.from; later = later[1:] {
			begun = append(begun, later[0])
		}
		begun = slices.DeleteFunc(begun, func(h *hold) bool { return h.reach <= w.from })
		for ; r.waits[ahead].from < w.from; ahead++ {
			if x := r.waits[ahead]; x.Mode != shared {
				exclusiveUntil = max(exclusiveUntil, x.to)
			}
		}
		s.wait(w, exclusiveUntil, begun, later)
	}
	r.blamed = map[*owner]int64{}
	for _, o := range s.charged {
		c := o.charged
		o.charged, o.lastWait = blamed{}, nil
		o.blamed.length += c.length
		o.blamed.waits += c.waits
		if c.length > 0 {
			r.blamed[o] = c.length
		}
		if c.length > o.most || c.length > 0 && c.length == o.most && r.name < o.worst {
			o.most, o.worst = c.length, r.name
		}
	}
	s.charged = s.charged[:0]
}

// wait finds the blockers of one wait among the holds that had begun before it and the later ones. Exclusive requests were ahead of it in
// the queue until exclusiveUntil.
func (s *sweep) wait(w *wait, exclusiveUntil int64, begun, later []*hold) {
	s.findNamed(w)
	named := len(s.found)
	later = later[:sort.Search(len(later), func(n int) bool { return later[n].from >= w.to })]
	granted := int64(math.MaxInt64) // a hold with this fence, or a greater one, came after the wait
	if fence := cmp.Or(w.span.fence, w.span.hold); fence > 0 && w.span.letIn() {
		granted = fence
	}
	until, explained := w.from, int64(0)
	s.gaps = s.gaps[:0]
	for _, holds := range [][]*hold{begun, later} { // both in the order of their starts
		for _, h := range holds {
			at := interval{h.from, h.reach}.with(w.interval)
			if h.namedBy != w {
				at = h.inTheWay(w, granted, exclusiveUntil)
			}
			if at.length() == 0 {
				continue
			}
			if h.namedBy != w {
				s.found = append(s.found, blocking{interval: at, reach: h.reach, hold: h})
			}
			if at.from > until {
				s.gaps = append(s.gaps, interval{until, at.from})
			}
			explained += max(at.to-max(at.from, until), 0)
			until = max(until, at.to)
			if w.chosen {
				h.blocked += at.length()
				s.charge(h.owner, w, at)
			}
		}
	}
	if until < w.to {
		s.gaps = append(s.gaps, interval{until, w.to})
	}
	for _, b := range s.found[:named] {
		if b.hold != nil && w.chosen && b.length() == 0 {
			s.charge(b.hold.owner, w, b.interval)
		}
	}
	w.unexplained = w.length() - explained
	s.markLast(w)
	s.measureHandOver(w)
	s.list(w)
}

// inTheWay returns the time in which a hold was in the way of a wait that does not name it. Shared holds block a shared request without a
// limit only while an exclusive request is ahead in the queue.
func (h *hold) inTheWay(w *wait, granted, exclusiveUntil int64) interval {
	if h.key.fence >= granted || h.key.lockID == w.span.lockID {
		return interval{}
	}
	at := interval{h.from, h.reach}.with(w.interval)
	if w.Mode == shared && h.Mode == shared && w.span.limit <= 0 {
		at.to = min(at.to, exclusiveUntil)
	}
	return at
}

// charge blames an owner for a part of a wait. The parts of one wait come in the order of their starts; where they overlap they count once.
func (s *sweep) charge(o *owner, w *wait, at interval) {
	if o.lastWait != w {
		if o.lastWait == nil {
			s.charged = append(s.charged, o)
		}
		o.lastWait, o.until = w, at.from
		o.charged.waits++
	}
	o.charged.length += max(at.to-max(at.from, o.until), 0)
	o.until = max(o.until, at.to)
}

// findNamed starts the list of blockers with the holds that the wait's own span names, each once.
func (s *sweep) findNamed(w *wait) {
	s.found = s.found[:0]
	for n, named := range w.span.blockedBy {
		b := blocking{interval: interval{w.from, w.from}, named: named, index: n, last: w.span.namesLast && n == len(w.span.blockedBy)-1}
		if b.last {
			b.interval = interval{w.to, w.to}
		}
		if known := slices.IndexFunc(s.found, func(f blocking) bool { return f.named.lockID == named.lockID && f.named.fence == named.fence }); known >= 0 {
			if f := &s.found[known]; b.last {
				f.last = true
				if f.hold == nil {
					f.interval = b.interval
				}
			}
			continue
		}
		b.reach = b.to
		if h := s.holdNamed(w, named); h != nil {
			if h.namedBy == w {
				continue
			}
			h.namedBy = w
			b.hold, b.reach = h, h.reach
			b.interval = interval{h.from, h.reach}.with(w.interval)
			b.to = max(b.from, b.to)
			if b.from > w.to { // the clocks differ
				b.interval = interval{w.to, w.to}
			}
		}
		s.found = append(s.found, b)
	}
}

// holdNamed finds a hold that a wait names, or nil. A claim had no fence yet, and a draining part may have a later fence than its hold:
// these are the first hold of the lock ID that overlaps the wait.
func (s *sweep) holdNamed(w *wait, named *namedHold) *hold {
	if h := s.byKey[holdKey{w.Resource, named.lockID, named.fence}]; h != nil {
		return h
	}
	of := s.byParty[party{w.Resource, named.lockID}]
	i := sort.Search(len(of), func(i int) bool { return of[i].reach > w.from })
	if i < len(of) && of[i].from < w.to {
		return of[i]
	}
	return nil
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
		s.found[i].last = i == last && w.span.letIn()
	}
}

// measureHandOver measures for how long the resource had been granted to another waiter that had not taken it yet, while no hold was in
// the way. A claim that was never taken is known only because the wait names it last, without a fence: it began when the hold before it
// had ended, and lasted until the end of the wait.
func (s *sweep) measureHandOver(w *wait) {
	if w.unexplained == 0 {
		return
	}
	neverTaken, since := false, w.from
	for i := range s.found {
		if b := &s.found[i]; b.last && b.hold == nil && b.named.fence == 0 {
			neverTaken = true
		} else {
			since = max(since, b.to)
		}
	}
	if !neverTaken {
		since = w.to
	}
	claims := w.resource.claims
	claims = claims[sort.Search(len(claims), func(i int) bool { return claims[i].to > w.from }):]
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
func (s *sweep) list(w *wait) {
	w.Unexplained, w.HandOver = seconds(w.unexplained), seconds(w.handOver)
	kept := mostImportant(s.found, s.keep)
	slices.SortFunc(kept, func(x, y blocking) int { return x.compareTime(&y) })
	w.Omitted = len(s.found) - len(kept)
	w.Blockers = make([]Blocker, len(kept))
	for j := range kept {
		w.Blockers[j] = kept[j].describe(w)
		if h := kept[j].hold; h != nil {
			h.Blocks = append(h.Blocks, w.place)
		}
	}
}

// mostImportant returns n of the blockings: the one whose end let the wait in, the ones that the wait names, and the longest others.
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
	selectFirst(found, n, func(x, y *blocking) int {
		return cmp.Or(cmp.Compare(rank(y), rank(x)), cmp.Compare(y.length(), x.length()), x.compareTime(y))
	})
	return found[:n]
}

// selectFirst moves the n first of a list, in a total order, to its beginning. Other than sorting, it takes a few comparisons for each
// element of the list, whatever their order is.
func selectFirst[T any](list []T, n int, compare func(x, y *T) int) {
	for 0 < n && n < len(list) {
		pivot := rand.IntN(len(list)) //nolint:gosec // it decides only about the time
		list[0], list[pivot] = list[pivot], list[0]
		less := 0
		for i := 1; i < len(list); i++ {
			if compare(&list[i], &list[0]) < 0 {
				less++
				list[less], list[i] = list[i], list[less]
			}
		}
		list[0], list[less] = list[less], list[0]
		if n <= less {
			list = list[:less]
		} else {
			list, n = list[less+1:], n-less-1
		}
	}
}

func (b *blocking) describe(w *wait) Blocker {
	out := Blocker{Hold: b.hold.placeOr(), From: seconds(b.from - w.from), To: seconds(b.to - w.from), Named: b.named != nil, Last: b.last}
	if n := b.named; n != nil {
		out.LockID, out.Owner, out.Fence = n.lockID, cmp.Or(n.owner, n.lockID), n.fence
		out.Trace, out.Span = hexIDs(n.trace, n.span)
	}
	h := b.hold
	if h == nil {
		out.Workflow, _ = parseLockID(out.LockID)
		return out
	}
	out.LockID, out.Owner, out.Fence, out.Workflow = h.LockID, h.Owner, h.Fence, h.Workflow
	if s := h.stepDuring(b.interval); s != nil {
		out.Step, out.Trace, out.Span = s.Name, s.Trace, s.Span
	} else if out.Trace == "" {
		out.Trace, out.Span = h.Trace, h.Span
	}
	if s := h.stepBefore(b.to); out.Step == "" && s != nil {
		out.Step, out.BetweenSteps = s.Name, true
	}
	return out
}
