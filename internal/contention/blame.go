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

// add blames an owner for a part of a wait. Parts come in the order of their starts, and count once where they overlap.
func (l *ledger) add(owner sym, at interval) {
	s := &l.now[owner]
	if s.until == 0 {
		l.present = append(l.present, owner)
		s.until = at.from
	}
	s.length += max(at.to-max(at.from, s.until), 0)
	s.until = max(s.until, at.to)
}

// end is called at the end of a wait.
func (l *ledger) end() {
	for _, owner := range l.present {
		n := l.now[owner].length
		l.now[owner] = share{}
		l.total[owner].length += n
		l.total[owner].waits++
		if l.here[owner] == 0 {
			l.visitors = append(l.visitors, owner)
		}
		l.here[owner] += n
	}
	l.present = l.present[:0]
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

// blame adds the wait to what holds and owners have to answer for. It returns how much of the wait is explained.
func (a *analysis) blame(w *wait, found []candidate) (explained int64) {
	until := w.from
	counts := a.chosenWait(w)
	for i := range found {
		c := &found[i]
		explained += max(c.to-max(c.from, until), 0)
		until = max(until, c.to)
		if c.hold >= 0 && counts {
			h := &a.holds[c.hold]
			h.blocked += c.length()
			a.ledger.add(h.owner, c.interval)
		}
	}
	a.ledger.end()
	return explained
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

// before tells whether r matters less than o.
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
