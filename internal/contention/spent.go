package contention

import "sort"

// spent is what those who kept others waiting for a resource did while they held it.
type spent struct {
	held, ran, waited int64
	// on is the resource that they waited for most, and onFor for how long.
	on    sym
	onFor int64
}

// spentBy sums up the holds that were in somebody's way.
func (a *analysis) spentBy(holds []*hold) spent {
	var s spent
	waited := map[sym]int64{}
	for _, h := range holds {
		if h.blocked == 0 || len(h.Steps) == 0 { // nobody minded, or it is not known
			continue
		}
		s.held += h.length()
		s.ran += h.ran()
		var meanwhile []interval
		for _, i := range a.waitsDuring(a.byOwner[h.owner], h.interval) {
			w := &a.waits[i]
			if of := w.record.texts[textResource]; of != h.key.resource {
				both := w.with(h.interval)
				meanwhile = append(meanwhile, both)
				waited[of] += both.length()
				if n := waited[of]; n > s.onFor || n == s.onFor && a.symbols.text(of) < a.symbols.text(s.on) {
					s.on, s.onFor = of, n
				}
			}
		}
		s.waited += covered(meanwhile)
	}
	return s
}

// waitsDuring are those of waits, in the order of their starts, that lasted within a time, of the latest that were tried.
func (a *analysis) waitsDuring(waits []int32, at interval) (found []int32) {
	begun := sort.Search(len(waits), func(i int) bool { return a.waits[waits[i]].from >= at.to })
	for _, i := range waits[max(begun-maxTried, 0):begun] {
		if a.waits[i].with(at).length() > 0 {
			found = append(found, i)
		}
	}
	return found
}
