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
	minBlockers = 8
	allBlockers = 2_000_000
	// maxLooked bounds how many holds that overlap a wait are looked at.
	maxLooked = 4096
	// sameTime is how far apart the end of a hold and the grant that it made may seem: the database's clock runs backwards at times.
	sameTime = 100 * time.Millisecond
)

// candidate is a hold that may have been in the way of a wait.
type candidate struct {
	interval
	hold  int32    // -1 where it was not read
	named *blocker // what the wait says of it, nil where it says nothing
	last  bool
}

// lane is one resource's holds and waits, in the order of their starts.
type lane struct {
	resource     sym
	holds, waits []int32
	ends         tree
	// claims are when it had been granted and was not taken yet, and claimEnds finds them.
	claims    []interval
	claimEnds tree
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
			a.block(l, int(i), keep)
		}
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
			l.claims = append(l.claims, interval{w.to, a.holds[w.Hold].from})
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
		l.ends = newTree(len(l.holds), func(i int) int64 { return a.holds[l.holds[i]].reach })
		slices.SortFunc(l.claims, func(x, y interval) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to)) })
		l.claimEnds = newTree(len(l.claims), func(i int) int64 { return l.claims[i].to })
	}
	return all
}

// drain bounds how long what drained was in the way: no longer than until somebody else held.
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
	found, more := a.inferred(l, w, a.named(w))
	a.found = found
	slices.SortFunc(found, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to), cmp.Compare(x.hold, y.hold))
	})
	a.markLast(w, found)
	w.unexplained = w.length() - a.blame(w, found)
	w.handOver = l.handOver(w, found)
	w.Unexplained, w.HandOver = seconds(w.unexplained), seconds(w.handOver)
	kept := important(found, keep)
	w.Omitted = more + len(found) - len(kept)
	w.Blockers = make([]Blocker, len(kept))
	for j := range kept {
		w.Blockers[j] = a.blockerOf(w, &kept[j])
		if h := kept[j].hold; h >= 0 {
			a.holds[h].Blocks = append(a.holds[h].Blocks, i)
		}
	}
}

// named are the holds that the wait's own span names, each once.
func (a *analysis) named(w *wait) []candidate {
	found := a.found[:0] // its memory is used again
	at := map[key]int{}
	for i := range w.record.blockers {
		b := &w.record.blockers[i]
		last := w.record.hasLast && i == len(w.record.blockers)-1
		k := key{w.record.texts[textResource], b.lockID, b.fence}
		if j, twice := at[k]; twice {
			if last {
				found[j].last = true
				if found[j].hold < 0 {
					found[j].interval = interval{w.to, w.to}
				}
			}
			continue
		}
		c := candidate{interval: interval{w.from, w.from}, hold: -1, named: b, last: last}
		if last {
			c.interval = interval{w.to, w.to}
		}
		if h, ok := a.holdNamed(k, w); ok {
			if slices.ContainsFunc(found, func(f candidate) bool { return f.hold == h }) {
				continue
			}
			c.hold = h
			c.interval = a.holds[h].inTheWay().with(w.interval)
			c.to = max(c.from, c.to)
			if c.from > w.to { // clocks differ
				c.interval = interval{w.to, w.to}
			}
		}
		at[k] = len(found)
		found = append(found, c)
	}
	return found
}

// holdNamed finds a hold that a wait names. What had only been granted had no fence to be named by, and a part that drains may have a later
// one than its hold; then it is the first of the lock ID that overlaps the wait.
func (a *analysis) holdNamed(k key, w *wait) (int32, bool) {
	if h, ok := a.byKey[k]; ok && k.fence != 0 {
		return h, true
	}
	of := a.byParty[party{k.resource, k.lockID}]
	i := sort.Search(len(of), func(i int) bool { return a.holds[of[i]].reach > w.from })
	if i < len(of) && a.holds[of[i]].from < w.to {
		return of[i], true
	}
	return -1, false
}

// inferred adds the holds that follow from times and fences. It tells how many were not looked at.
func (a *analysis) inferred(l *lane, w *wait, found []candidate) (all []candidate, more int) {
	known := make(map[int32]bool, len(found))
	limited := w.record.limited
	for _, c := range found {
		known[c.hold] = true
		limited = limited || c.hold >= 0 && a.holds[c.hold].Mode == lockcore.ModeShared.String()
	}
	shared := w.Mode == lockcore.ModeShared.String()
	behind := l.behind(w)
	fence := cmp.Or(w.record.fence, w.record.hold)
	begun := sort.Search(len(l.holds), func(i int) bool { return a.holds[l.holds[i]].from >= w.to })
	looked := 0
	l.ends.beyond(begun, w.from, func(i int) bool {
		if looked++; looked > maxLooked {
			more = i + 1 // at most
			return false
		}
		n := l.holds[i]
		h := &a.holds[n]
		switch {
		case known[n] || h.key.lockID == w.record.texts[textLockID]:
			return true
		case a.letIn(w.record) && fence > 0 && h.key.fence >= fence:
			return true
		}
		at := h.inTheWay().with(w.interval)
		if shared && !limited && h.Mode == lockcore.ModeShared.String() {
			at.to = min(at.to, behind)
		}
		if at.length() > 0 {
			found = append(found, candidate{interval: at, hold: n})
		}
		return true
	})
	return found, more
}

// handOver is how much of the time of a wait that found does not explain the resource had been granted to somebody who had not taken it yet.
func (l *lane) handOver(w *wait, found []candidate) int64 {
	if w.unexplained == 0 {
		return 0
	}
	begun := sort.Search(len(l.claims), func(i int) bool { return l.claims[i].from >= w.to })
	var all []interval
	l.claimEnds.beyond(begun, w.from, func(i int) bool {
		all = append(all, l.claims[i].with(w.interval))
		return len(all) < maxLooked
	})
	for i := range found {
		all = append(all, found[i].interval)
	}
	slices.SortFunc(all, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
	return covered(all) - (w.length() - w.unexplained)
}

// behind is until when somebody stood before a wait in the queue who wanted the resource alone. Until then those were in its
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
		b.Workflow = h.Workflow
	} else {
		b.Workflow, _ = workflowOf(b.LockID)
	}
	return b
}
