package contention

import (
	"slices"
	"sort"
)

// named are the holds that the wait's own span names, each once.
func (a *analysis) named(w *wait) []candidate {
	found := a.found[:0] // its memory is used again
	var at map[key]int
	if len(w.record.blockers) > 1 {
		at = make(map[key]int, len(w.record.blockers))
	}
	for i, place := range w.record.blockers {
		b := &a.symbols.blockers[place]
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
		if at != nil {
			at[k] = len(found)
		}
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
