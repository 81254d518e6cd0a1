package contention

import (
	"cmp"
	"container/heap"
	"slices"
)

// ledger sums up for how long owners kept others waiting. Owners are few among the symbols, but looking them up in lists is
// what makes long queues bearable.
type ledger struct {
	// total is by owner, and on by owner and resource.
	total []blame
	on    map[ownerAt]int64
	// here is by owner, for the resource that is looked at, and now for the wait; visitors and present are who has an entry.
	here     []int64
	visitors []sym
	now      []share
	present  []sym
}

// blame is what an owner has to answer for.
type blame struct {
	length int64
	waits  int
}

// share is an owner's in one wait: for how long until now, and until when.
type share struct{ length, until int64 }

type ownerAt struct{ owner, resource sym }

func newLedger(symbols int) *ledger {
	return &ledger{total: make([]blame, symbols), on: map[ownerAt]int64{}, here: make([]int64, symbols), now: make([]share, symbols)}
}

// add blames an owner for a part of a wait. Parts come in the order of their starts, and count once if they overlap, and not where
// the owner has one of whole.
func (l *ledger) add(owner sym, at interval, r *row, whole section) {
	s := &l.now[owner]
	if s.until == 0 {
		l.present = append(l.present, owner)
		s.until = at.from
	}
	if more := (interval{max(at.from, s.until), at.to}); more.length() > 0 {
		s.length += more.length()
		if whole.count() > 0 {
			s.length -= r.coverOf(owner, whole, more)
		}
	}
	s.until = max(s.until, at.to)
}

// end is called at the end of a wait. Owners that have one of whole are counted with the row.
func (l *ledger) end(r *row, whole section) {
	for _, owner := range l.present {
		n := l.now[owner].length
		l.now[owner] = share{}
		waits := 1
		if whole.count() > 0 && of(r.byOwner, owner, whole).count() > 0 {
			waits = 0
		}
		l.sum(owner, n, waits)
	}
	l.present = l.present[:0]
}

// sum adds to what an owner has to answer for, in all and at the resource.
func (l *ledger) sum(owner sym, length int64, waits int) {
	l.total[owner].length += length
	l.total[owner].waits += waits
	if l.here[owner] == 0 {
		l.visitors = append(l.visitors, owner)
	}
	l.here[owner] += length
}

// close is called at the end of a resource.
func (l *ledger) close(resource sym) {
	for _, owner := range l.visitors {
		if l.here[owner] > 0 { // one of no length may stand here twice
			l.on[ownerAt{owner, resource}] = l.here[owner]
		}
		l.here[owner] = 0
	}
	l.visitors = l.visitors[:0]
}

// blame adds the wait to what holds and owners have to answer for. It returns how much of the wait is explained, and how much of that
// had been granted to a waiter that had not taken it yet.
func (a *analysis) blame(l *lane, w *wait, found []candidate, whole section, crowded bool) (explained, claimed int64) {
	r := l.row
	counts := a.chosenWait(w)
	if counts && whole.count() > 0 {
		r.waits = append(r.waits, whole)
	}
	explained, claimed = l.summed(whole, crowded, w.interval)
	until := w.from
	for i := range found {
		c := &found[i]
		if c.summed {
			continue
		}
		if more := (interval{max(c.from, until), c.to}); more.length() > 0 {
			length, granted := l.summed(whole, crowded, more)
			explained += more.length() - length
			claimed += l.claims.cover(more) - granted
			until = c.to
		}
		if c.hold >= 0 && counts {
			h := &a.holds[c.hold]
			h.blocked += c.length()
			a.ledger.add(h.owner, c.interval, r, whole)
		}
	}
	a.ledger.end(r, whole)
	return explained, claimed
}

// summed is for how long, within a time, one of a section of the row, or of the crowd, was in the way, and how much of that had been granted to a waiter.
func (l *lane) summed(whole section, crowded bool, at interval) (length, claimed int64) {
	var beside interval
	if whole.count() > 0 {
		length, claimed = l.row.cover(whole, at, l.claims)
		beside = interval{l.row.times[whole.lo].from, l.row.times[whole.hi-1].to}
	}
	if crowded {
		more, granted := l.crowd.cover(at, beside)
		length, claimed = length+more, claimed+granted
	}
	return length, claimed
}

// blameRow adds the waits that a row has whole holds of to what these and their owners have to answer for.
func (a *analysis) blameRow(r *row) {
	if len(r.waits) == 0 {
		return
	}
	before := make([]int, len(r.holds)) // where its owner had the one before, and 1 more
	for i := 1; i < len(r.byOwner); i++ {
		if x, y := r.byOwner[i-1], r.byOwner[i]; x.by == y.by {
			before[y.place] = int(x.place) + 1
		}
	}
	ending := slices.Clone(r.waits)
	slices.SortFunc(r.waits, func(x, y section) int { return cmp.Compare(x.lo, y.lo) })
	slices.SortFunc(ending, func(x, y section) int { return cmp.Compare(x.hi, y.hi) })
	began, ended := 0, 0
	open := newCounts(len(r.holds)) // of the waits that have the place, where their sections begin
	for i, j := range r.holds {
		for ; began < len(r.waits) && r.waits[began].lo <= i; began++ {
			open.add(r.waits[began].lo, 1)
		}
		for ; ended < len(ending) && ending[ended].hi <= i; ended++ {
			open.add(ending[ended].lo, -1)
		}
		n := began - ended
		if n == 0 {
			continue
		}
		h := &a.holds[j]
		length := int64(n) * r.times[i].length()
		h.blocked += length
		a.ledger.sum(h.owner, length, n-open.before(before[i])) // the others have that one too
	}
}

// counts sums up counts at places, in logarithmic time (a Fenwick tree).
type counts []int

func newCounts(n int) counts { return make(counts, n+1) }

func (c counts) add(place, n int) {
	for i := place + 1; i < len(c); i += i & -i {
		c[i] += n
	}
}

// before is the sum of those before a place.
func (c counts) before(place int) (sum int) {
	for i := place; i > 0; i -= i & -i {
		sum += c[i]
	}
	return sum
}

// important are at most n: those whose end let the wait in, those that it names, and those that were longest in the way, in the order of time.
func important(found []candidate, n int) []candidate {
	if len(found) <= n {
		return found
	}
	kept := make(ranking, 0, n)
	for i := range found {
		switch {
		case len(kept) < n:
			heap.Push(&kept, ranked{found[i], i})
		case kept[0].before(ranked{found[i], i}):
			kept[0] = ranked{found[i], i}
			heap.Fix(&kept, 0)
		}
	}
	slices.SortFunc(kept, func(x, y ranked) int { return cmp.Compare(x.place, y.place) })
	all := make([]candidate, n)
	for i := range kept {
		all[i] = kept[i].candidate
	}
	return all
}

// ranked is a candidate, and its place in the order of time.
type ranked struct {
	candidate
	place int
}

// before reports whether r matters less than o.
func (r ranked) before(o ranked) bool {
	rank := func(c *candidate) int {
		switch {
		case c.last:
			return 2
		case c.named != nil:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(&r.candidate), rank(&o.candidate)), cmp.Compare(r.length(), o.length()), cmp.Compare(o.place, r.place)) < 0
}

// ranking is a heap whose root matters least.
type ranking []ranked

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, j int) bool { return r[i].before(r[j]) }
func (r ranking) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(x any)        { *r = append(*r, x.(ranked)) }
func (r *ranking) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
