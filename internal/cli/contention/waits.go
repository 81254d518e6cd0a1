package contention

import (
	"cmp"
	"slices"
	"sort"
)

// wait is a wait of the report, with the facts that the analysis needs.
type wait struct {
	*Wait
	item
	span                  *lockSpan
	unexplained, handOver int64
}

// Priorities of requests, as in lockcore.Request.
const (
	usualPriority  = 3
	lowestPriority = 5
)

// makeWaits makes the waits, and drops the spans that are not needed after them.
func (a *analysis) makeWaits() {
	type waitKey struct {
		request
		start int64
	}
	var found []*lockSpan
	at := map[waitKey]int{}
	for i := range a.byKind[kindWait] {
		s := &a.byKind[kindWait][i]
		k := waitKey{s.request(), s.start}
		j, twice := at[k]
		if !twice {
			at[k] = len(found)
			found = append(found, s)
			continue
		}
		a.report.Read.Repeated++
		if endsBefore(s, found[j]) {
			found[j] = s
		}
	}
	slices.SortFunc(found, func(x, y *lockSpan) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.resource, y.resource), cmp.Compare(x.end, y.end),
			cmp.Compare(x.lockID, y.lockID), cmp.Compare(x.part, y.part), cmp.Compare(x.order, y.order))
	})
	a.report.Waits = make([]Wait, len(found))
	for i, s := range found {
		w := &wait{Wait: &a.report.Waits[i], span: s}
		w.item = a.newItem(s, interval{s.start, s.end}, i, &w.Subject)
		w.chosen = a.chosen(s.resource, w.interval)
		w.Part, w.Step, w.Run = s.part, stepName(s.part), runOf(w.Workflow, s.part)
		a.findType(&w.Subject, w.owner)
		w.Start, w.End = timeOf(s.start), timeOf(s.end)
		w.Outcome, w.Position = s.outcome, int(max(min(s.position, 1<<30), 0))
		w.Priority = usualPriority
		if s.priority >= 1 && s.priority <= lowestPriority {
			w.Priority = int(s.priority)
		}
		w.Trace, w.Span = hexIDs(s.trace, s.id)
		w.Hold = -1
		if h := a.granted(s); h != nil {
			w.Hold = h.place
			if h.from > w.to {
				w.resource.claims = append(w.resource.claims, interval{w.to, h.from})
			}
		}
		a.waits = append(a.waits, w)
		w.resource.waits, w.owner.waits = append(w.resource.waits, w), append(w.owner.waits, w)
		if w.ofStep {
			a.byStep[w.LockID] = append(a.byStep[w.LockID], w)
		}
	}
	for _, done := range []spanKind{kindHold, kindAcquire, kindLeave, kindRenew, kindLost} {
		a.byKind[done] = nil
	}
}

// granted returns the hold that a wait led to, nil if it is not known. A hold that was upgraded began before the wait ended.
func (a *analysis) granted(s *lockSpan) *hold {
	if !s.letIn() {
		return nil
	}
	for _, fence := range []int64{s.hold, s.fence} {
		if h := a.byKey[holdKey{s.resource, s.lockID, fence}]; h != nil {
			return h
		}
	}
	for _, h := range slices.Backward(a.byParty[party{s.resource, s.lockID}]) {
		if h.Fence <= s.fence && h.from <= s.end && h.to >= s.end {
			return h
		}
	}
	return nil
}

// The waits that keep a hold from ending are tied to it. The rule is that of lockcore's deadlock search: a workflow keeps a hold while
// any of its steps waits, and so does an owner without Temporal, which is one thread of work. A step with a lock ID of its own waits only
// for its other locks.
func (h *hold) tiedTo(w *wait) bool {
	if h.ofStep {
		return w.LockID == h.LockID
	}
	return w.owner == h.owner
}

// maxTried bounds how many waits of one owner are looked at.
const maxTried = 64

// waitsDuring returns the waits to which a hold is tied in a time, in the order of their starts. It looks at the latest maxTried.
func (a *analysis) waitsDuring(h *hold, at interval) (found []*wait) {
	waits := h.owner.waits
	if h.ofStep {
		waits = a.byStep[h.LockID]
	}
	begun := sort.Search(len(waits), func(i int) bool { return waits[i].from >= at.to })
	for _, w := range waits[max(begun-maxTried, 0):begun] {
		if w.with(at).length() > 0 {
			found = append(found, w)
		}
	}
	return found
}
