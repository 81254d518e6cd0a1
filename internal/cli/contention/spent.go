package contention

// spent is what those who kept others waiting for a resource did while they held it.
type spent struct {
	held, ran, waited int64
	// on is the resource that they waited for most, and onFor for how long.
	on    sym
	onFor int64
}

// spentBy sums up the holds that were in another's way.
func (a *analysis) spentBy(holds []*hold) spent {
	var s spent
	waited := map[sym]int64{}
	for _, h := range holds {
		if h.blocked == 0 || len(h.Steps) == 0 { // none waited for it, or it is not known
			continue
		}
		s.held += h.length()
		s.ran += h.ran()
		var meanwhile []interval
		for _, i := range a.waitsDuring(a.tied(h), h.interval) {
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
