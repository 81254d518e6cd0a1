package contention

import (
	"cmp"
	"slices"
)

// makeWaits makes the waits, and finds what each was granted.
func (a *analysis) makeWaits() {
	type place struct {
		request
		start int64
	}
	records := a.records[kindWait]
	found := make([]*record, 0, len(records))
	at := map[place]int{}
	for i := range records {
		r := &records[i]
		p := place{r.request(), r.start}
		j, twice := at[p]
		switch {
		case !twice:
			at[p] = len(found)
			found = append(found, r)
		default:
			a.reading.Repeated++
			if earlier(r, found[j]) {
				found[j] = r
			}
		}
	}
	text := a.symbols.text
	slices.SortFunc(found, func(x, y *record) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(text(x.texts[textResource]), text(y.texts[textResource])),
			cmp.Compare(x.end, y.end), cmp.Compare(text(x.texts[textLockID]), text(y.texts[textLockID])),
			cmp.Compare(text(x.texts[textPart]), text(y.texts[textPart])), cmp.Compare(text(x.texts[textOrder]), text(y.texts[textOrder])))
	})
	a.waits = make([]wait, len(found))
	for i, r := range found {
		a.waits[i] = a.waitOf(r)
		w := &a.waits[i]
		a.byOwner[w.owner] = append(a.byOwner[w.owner], int32(i))
		if w.ofStep {
			id := r.texts[textLockID]
			a.byStep[id] = append(a.byStep[id], int32(i))
		}
	}
}

// tied are the waits to which a hold is tied, in the order of their starts: it stands as long as
// they last. The rule is that of lockcore's deadlock search. A workflow keeps a hold while any of
// its steps waits, and plain Go is one thread of work. A step with a lock ID of its own waits for
// nothing but the rest of its own locks.
func (a *analysis) tied(h *hold) []int32 {
	if h.ofStep {
		return a.byStep[h.key.lockID]
	}
	return a.byOwner[h.owner]
}

// tiedTo reports whether a wait is one to which the hold is tied.
func (h *hold) tiedTo(w *wait) bool {
	if h.ofStep {
		return w.record.texts[textLockID] == h.key.lockID
	}
	return w.owner == h.owner
}

func (a *analysis) waitOf(r *record) wait {
	text := a.symbols.text
	w := wait{interval: interval{r.start, r.end}, record: r, owner: ownerOf(r.texts[textOwner], r.texts[textLockID])}
	w.Resource, w.LockID, w.Owner, w.Mode = text(r.texts[textResource]), text(r.texts[textLockID]), text(w.owner), a.modeOf(r)
	w.Part = text(r.texts[textPart])
	workflow, step := partyOf(w.LockID)
	w.Workflow, w.ofStep, w.Run = workflow, step != "", runOf(w.LockID, w.Part)
	w.WorkflowType = a.typeOf(w.Run, w.Workflow)
	w.Step = stepName(w.Part)
	w.Start, w.End = timeOf(r.start), timeOf(r.end)
	w.Outcome, w.Position = text(r.texts[textOutcome]), int(r.position)
	w.Trace, w.Span = hexIDs(r.trace, r.id)
	w.Hold = a.granted(r)
	return w
}

// granted is the hold that a wait led to, -1 if it is not known. One that was upgraded began before.
func (a *analysis) granted(r *record) int {
	if !a.letIn(r) {
		return -1
	}
	for _, fence := range []int64{r.hold, r.fence} {
		if i, ok := a.byKey[r.key(fence)]; ok && fence != 0 {
			return int(i)
		}
	}
	of := a.byParty[r.party()]
	for i := len(of) - 1; i >= 0; i-- {
		h := &a.holds[of[i]]
		if h.key.fence <= r.fence && h.from <= r.end && h.to >= r.end {
			return int(of[i])
		}
	}
	return -1
}
