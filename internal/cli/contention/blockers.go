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
	// maxBlockers and minBlockers bound how many blockers of a wait are kept, so that all together are about allBlockers.
	maxBlockers = 100
	minBlockers = 3
	allBlockers = 1_000_000
	// maxLooked bounds how many holds that overlap a wait are looked at one by one, of those of the crowd and of the others.
	maxLooked = 4096
	// sameTime is how far apart the end of a hold and the grant that it made may seem: the database's clock runs backwards at times.
	sameTime = 100 * time.Millisecond
)

// candidate is a hold that may have been in the way of a wait.
type candidate struct {
	interval
	hold  int32    // -1 if it was not read
	named *blocker // what the wait says of it, nil if it says nothing
	last  bool
	// summed says that the sums of its row have it.
	summed bool
}

// lane is one resource's holds and waits, in the order of their starts.
type lane struct {
	resource     sym
	holds, waits []int32
	// row is most of the holds, if they followed one another, and crowd, if they stood beside one another; others are the rest, and ends
	// finds them.
	row    *row
	crowd  *crowd
	others []int32
	ends   tree
	// granted are when it had been granted and was not taken yet, and claims are these joined.
	granted []interval
	claims  *strip
	// exclusive are the starts of the waits for exclusive holds, and until, of each, the latest end up to it.
	exclusive, until []int64
}

// makeBlockers finds what was in the way of each wait.
func (a *analysis) makeBlockers() {
	keep := maxBlockers
	if n := len(a.waits); n > 0 {
		keep = min(max(allBlockers/n, minBlockers), maxBlockers)
	}
	a.ledger = newLedger(len(a.symbols.texts))
	for _, l := range a.lanes() {
		for _, i := range l.waits {
			if a.stopped() {
				return
			}
			a.block(l, int(i), keep)
		}
		a.blameRow(l.row)
		a.blameCrowd(l.crowd)
		a.ledger.close(l.resource)
	}
	for i := range a.holds {
		a.holds[i].Blocked = seconds(a.holds[i].blocked)
	}
}

// lanes sorts holds and waits by resource. Resources come in the order of their first.
func (a *analysis) lanes() []*lane {
	at := map[sym]*lane{}
	var all []*lane
	of := func(resource sym) *lane {
		l := at[resource]
		if l == nil {
			l = &lane{resource: resource}
			at[resource] = l
			all = append(all, l)
		}
		return l
	}
	for i := range a.holds {
		l := of(a.holds[i].key.resource)
		l.holds = append(l.holds, int32(i))
	}
	for i := range a.waits {
		w := &a.waits[i]
		l := of(w.record.texts[textResource])
		l.waits = append(l.waits, int32(i))
		if w.Hold >= 0 && a.holds[w.Hold].from > w.to {
			l.granted = append(l.granted, interval{w.to, a.holds[w.Hold].from})
		}
		if w.Mode != lockcore.ModeShared.String() {
			l.exclusive = append(l.exclusive, w.from)
			l.until = append(l.until, w.to)
			if n := len(l.until); n > 1 {
				l.until[n-1] = max(l.until[n-1], l.until[n-2])
			}
		}
	}
	for _, l := range all {
		a.drain(l)
		slices.SortFunc(l.granted, func(x, y interval) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to)) })
		l.claims = newStrip(l.granted)
		l.row, l.others = a.makeRow(l.holds, l.claims)
		l.crowd, l.others = a.makeCrowd(l.others, l.row, l.claims)
		l.ends = newTree(len(l.others), func(i int) int64 { return a.holds[l.others[i]].reach })
	}
	return all
}

// drain bounds how long what drained was in the way: no longer than until another held.
func (a *analysis) drain(l *lane) {
	for n, i := range l.holds {
		h := &a.holds[i]
		if h.reach <= h.to {
			continue
		}
		for _, j := range l.holds[n+1:] {
			next := &a.holds[j]
			if next.from >= h.reach {
				break
			}
			if next.from >= h.to && next.key.lockID != h.key.lockID {
				h.reach = next.from
				break
			}
		}
	}
}

// inTheWay is when a hold may have been in the way of others.
func (h *hold) inTheWay() interval { return interval{h.from, h.reach} }

// block finds what was in the way of one wait, and blames it.
func (a *analysis) block(l *lane, i, keep int) {
	w := &a.waits[i]
	found, more := a.inferred(l, w, a.named(w), l.others, &l.ends)
	found, whole := a.inRow(l, w, found, keep)
	found, crowded, unseen := a.inCrowd(l, w, found, keep)
	a.found = found
	slices.SortFunc(found, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to), cmp.Compare(x.hold, y.hold))
	})
	a.markLast(w, found)
	all := more + unseen + whole.count() + crowded
	for j := range found {
		if !found[j].summed {
			all++
		}
	}
	explained, claimed := a.blame(l, w, found, whole, crowded > 0)
	w.unexplained = w.length() - explained
	if w.unexplained > 0 {
		slept := w.sleptThrough(found)
		w.handOver = l.claims.cover(interval{w.from, slept}) - claimed + w.to - slept
	}
	w.Unexplained, w.HandOver = seconds(w.unexplained), seconds(w.handOver)
	kept := important(found, keep)
	w.Omitted = all - len(kept)
	w.Blockers = make([]Blocker, len(kept))
	for j := range kept {
		w.Blockers[j] = a.blockerOf(w, &kept[j])
		if h := kept[j].hold; h >= 0 {
			a.holds[h].Blocks = append(a.holds[h].Blocks, i)
		}
	}
}

// sleptThrough is from when on a wait stood behind a claim that was never taken, which it names last: it has no fence, and nothing is known of it but that
// it came when the hold before had ended. It is the end of the wait if there was none.
func (w *wait) sleptThrough(found []candidate) int64 {
	claim, until := false, w.from
	for i := range found {
		c := &found[i]
		if c.last && c.hold < 0 && c.named.fence == 0 {
			claim = true
		} else {
			until = max(until, c.to)
		}
	}
	if !claim {
		return w.to
	}
	return until
}

// inRow adds those of the row that were in a wait's way. Those that were so from their beginning to their end, beside the last, are
// whole: the sums of the row have them, and only the longest of them are added, and marked if they were named.
func (a *analysis) inRow(l *lane, w *wait, found []candidate, keep int) (all []candidate, whole section) {
	r := l.row
	in := r.during(w.interval)
	if fence := cmp.Or(w.record.fence, w.record.hold); fence > 0 && a.letIn(w.record) {
		in.hi = min(in.hi, sort.Search(len(r.fences), func(i int) bool { return r.fences[i] >= fence }))
	}
	own := w.record.texts[textLockID]
	whole = section{in.lo + 1, in.hi - 2} // but for the first, which may have begun before, and two that may have let it in
	if of(r.byLockID, own, in).count() > 0 || whole.count() == 0 {
		whole = section{}
	}
	named := found[:len(found):len(found)]
	known := func(hold int32) bool {
		return slices.ContainsFunc(named, func(c candidate) bool { return c.named != nil && c.hold == hold })
	}
	add := func(place int) {
		at := r.times[place].with(w.interval)
		if hold := r.holds[place]; at.length() > 0 && !known(hold) && a.holds[hold].key.lockID != own {
			found = append(found, candidate{interval: at, hold: hold})
		}
	}
	if whole.count() == 0 {
		for i := in.lo; i < in.hi; i++ {
			add(i)
		}
		return found, whole
	}
	for i := range named {
		if at, ok := slices.BinarySearchFunc(r.times[whole.lo:whole.hi], named[i].interval, func(x, y interval) int { return cmp.Compare(x.from, y.from) }); ok {
			found[i].summed = r.holds[whole.lo+at] == named[i].hold
		}
	}
	for _, place := range []int{in.lo, in.hi - 2, in.hi - 1} {
		add(place)
	}
	left := keep
	r.longest.most(whole, func(place int) bool {
		if hold := r.holds[place]; !known(hold) {
			found = append(found, candidate{interval: r.times[place], hold: hold, summed: true})
		}
		left--
		return left > 0
	})
	return found, whole
}

// inferred adds, of some holds, those that follow from times and fences. It tells how many were not looked at.
func (a *analysis) inferred(l *lane, w *wait, found []candidate, holds []int32, ends *tree) (all []candidate, more int) {
	named := found[:len(found):len(found)]
	shared := w.Mode == lockcore.ModeShared.String()
	behind := l.behind(w)
	fence := cmp.Or(w.record.fence, w.record.hold)
	begun := sort.Search(len(holds), func(i int) bool { return a.holds[holds[i]].from >= w.to })
	looked := 0
	ends.beyond(begun, w.from, func(i int) bool {
		if looked++; looked > maxLooked {
			more = i + 1 // at most
			return false
		}
		n := holds[i]
		h := &a.holds[n]
		switch {
		case slices.ContainsFunc(named, func(c candidate) bool { return c.hold == n }) || h.key.lockID == w.record.texts[textLockID]:
			return true
		case a.letIn(w.record) && fence > 0 && h.key.fence >= fence:
			return true
		}
		at := h.inTheWay().with(w.interval)
		if shared && !w.record.limited && h.Mode == lockcore.ModeShared.String() {
			at.to = min(at.to, behind)
		}
		if at.length() > 0 {
			found = append(found, candidate{interval: at, hold: n})
		}
		return true
	})
	return found, more
}

// behind is until when another stood before a wait in the queue that wanted the resource alone. Until then those were in its
// way, indirectly, who were in the way of that one.
func (l *lane) behind(w *wait) int64 {
	ahead := sort.Search(len(l.exclusive), func(i int) bool { return l.exclusive[i] >= w.from })
	if ahead == 0 {
		return w.from
	}
	return l.until[ahead-1]
}

// markLast finds whose end let the wait in: the last to end before the wait did. That is what its span says too, where the end of a
// hold let it in; else its span names who had been in the way before.
func (a *analysis) markLast(w *wait, found []candidate) {
	last, closest := -1, time.Duration(0)
	for i := range found {
		c := &found[i]
		before := time.Duration(w.to - c.to)
		if c.hold >= 0 {
			before = time.Duration(w.to - a.holds[c.hold].reach)
		}
		if c.last && before.Abs() <= sameTime {
			before = 0
		}
		if before < 0 { // it stood longer, by a clock that ran backwards, or it was another's end that made room
			before = math.MaxInt64/2 - before
		}
		if last < 0 || before < closest || before == closest && !found[last].last {
			last, closest = i, before
		}
	}
	for i := range found {
		found[i].last = i == last && a.letIn(w.record)
	}
}

func (a *analysis) blockerOf(w *wait, c *candidate) Blocker {
	b := Blocker{Hold: int(c.hold), From: seconds(c.from - w.from), To: seconds(c.to - w.from), Named: c.named != nil, Last: c.last}
	if n := c.named; n != nil {
		b.LockID, b.Owner, b.Fence = a.symbols.text(n.lockID), a.symbols.text(ownerOf(n.owner, n.lockID)), n.fence
		b.Trace, b.Span = hexIDs(n.trace, n.span)
	}
	if c.hold >= 0 {
		h := &a.holds[c.hold]
		b.LockID, b.Owner, b.Fence = h.LockID, h.Owner, h.Fence
		if s := h.stepDuring(c.interval); s != nil {
			b.Step, b.Trace, b.Span = s.Name, s.Trace, s.Span
		} else if b.Trace == "" {
			b.Trace, b.Span = h.Trace, h.Span
		}
		if s := h.stepBefore(c.to); b.Step == "" && s != nil {
			b.Step, b.BetweenSteps = s.Name, true
		}
		b.Workflow = h.Workflow
	} else {
		b.Workflow = workflowOf(b.LockID)
	}
	return b
}
