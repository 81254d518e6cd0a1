package contention

// narrow fills in the holds and waits that the report is about, and those that they and the trees refer to; it renumbers them.
func (a *analysis) narrow(r *Report) {
	a.forget()
	holds, waits := make([]bool, len(a.holds)), make([]bool, len(a.waits))
	for i := range a.holds {
		holds[i] = a.chosenHold(&a.holds[i])
	}
	for i := range a.waits {
		waits[i] = a.chosenWait(&a.waits[i])
	}
	for i := range r.Roots {
		set(holds, r.Roots[i].Hold)
		eachWaiter(r.Roots[i].Waiters, func(w *Waiter) { set(waits, w.Wait) })
	}
	for _, l := range r.Losses {
		set(holds, l.Hold)
	}
	for i := range a.waits {
		if w := &a.waits[i]; waits[i] {
			set(holds, w.Hold)
			for j := range w.Blockers {
				set(holds, w.Blockers[j].Hold)
			}
		}
	}
	newHold, newWait := numbers(holds), numbers(waits)
	for i := range r.Roots {
		r.Roots[i].Hold = renumber(newHold, r.Roots[i].Hold)
		eachWaiter(r.Roots[i].Waiters, func(w *Waiter) { w.Wait = renumber(newWait, w.Wait) })
	}
	for i := range r.Losses {
		r.Losses[i].Hold = renumber(newHold, r.Losses[i].Hold)
	}
	for i := range r.Overlong {
		r.Overlong[i].Hold = renumber(newHold, r.Overlong[i].Hold)
	}
	r.Holds, r.Waits = a.keptHolds(newHold, newWait), a.keptWaits(newHold, newWait)
	if r.Losses == nil {
		r.Losses = []Loss{}
	}
}

func eachWaiter(list []Waiter, do func(*Waiter)) {
	for i := range list {
		do(&list[i])
		eachWaiter(list[i].Waiters, do)
	}
}

func (a *analysis) keptHolds(newHold, newWait []int) []Hold {
	kept := make([]Hold, 0, len(a.holds))
	for i := range a.holds {
		if newHold[i] < 0 {
			continue
		}
		h := a.holds[i].Hold
		blocks := h.Blocks[:0]
		for _, w := range h.Blocks {
			if n := newWait[w]; n >= 0 {
				blocks = append(blocks, n)
			}
		}
		h.Blocks = blocks
		kept = append(kept, h)
	}
	a.holds = nil
	return kept
}

func (a *analysis) keptWaits(newHold, newWait []int) []Wait {
	kept := make([]Wait, 0, len(a.waits))
	for i := range a.waits {
		if newWait[i] < 0 {
			continue
		}
		w := a.waits[i].Wait
		w.Hold = renumber(newHold, w.Hold)
		for j := range w.Blockers {
			w.Blockers[j].Hold = renumber(newHold, w.Blockers[j].Hold)
		}
		kept = append(kept, w)
	}
	a.waits = nil
	return kept
}

func set(of []bool, i int) {
	if i >= 0 {
		of[i] = true
	}
}

// numbers are the new ones of those that are kept, -1 of the others.
func numbers(kept []bool) []int {
	to := make([]int, len(kept))
	n := 0
	for i, k := range kept {
		to[i] = -1
		if k {
			to[i] = n
			n++
		}
	}
	return to
}

func renumber(to []int, i int) int {
	if i < 0 {
		return -1
	}
	return to[i]
}
