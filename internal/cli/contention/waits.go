package contention

import (
	"cmp"
	"slices"
	"sort"
)

// wait is a wait of the report, with what the analysis needs.
type wait struct {
	*Wait
	interval
	span                    *lockSpan
	ownerNumber, lockNumber int32
	ofStep                  bool // the lock ID belongs to a single step
	unexplained, handOver   int64
}

func (w *wait) letIn() bool { return w.span.letIn() }

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
	a.waits = make([]wait, len(found))
	for i, s := range found {
		a.waits[i] = a.newWait(s, &a.report.Waits[i])
		w := &a.waits[i]
		a.byOwner[w.Owner] = append(a.byOwner[w.Owner], int32(i))
		if w.ofStep {
			a.byStep[w.LockID] = append(a.byStep[w.LockID], int32(i))
		}
	}
	for _, done := range []spanKind{kindHold, kindAcquire, kindLeave, kindRenew, kindLost} {
		a.byKind[done] = nil
	}
}

func (a *analysis) newWait(s *lockSpan, to *Wait) wait {
	w := wait{Wait: to, interval: interval{s.start, s.end}, span: s, lockNumber: a.number(s.lockID)}
	w.Resource, w.LockID, w.Part = s.resource, s.lockID, s.part
	w.Owner = cmp.Or(s.owner, s.lockID)
	w.ownerNumber = a.number(w.Owner)
	w.Mode = modeOf(s)
	workflow, step := parseLockID(s.lockID)
	w.Workflow, w.ofStep, w.Run = workflow, step != "", runOf(s.lockID, s.part)
	w.WorkflowType = a.workflowType(w.Run, w.Workflow)
	w.Step = stepName(s.part)
	w.Start, w.End = timeOf(s.start), timeOf(s.end)
	w.Outcome, w.Position = s.outcome, int(max(min(s.position, 1<<30), 0))
	w.Trace, w.Span = hexIDs(s.trace, s.id)
	w.Hold = a.granted(s)
	return w
}

// granted returns the hold that a wait led to, -1 if it is not known. A hold that was upgraded began before the wait ended.
func (a *analysis) granted(s *lockSpan) int {
	if !s.letIn() {
		return -1
	}
	for _, fence := range []int64{s.hold, s.fence} {
		if i, ok := a.byKey[holdKey{s.resource, s.lockID, fence}]; ok && fence != 0 {
			return int(i)
		}
	}
	of := a.byParty[party{s.resource, s.lockID}]
	for i := len(of) - 1; i >= 0; i-- {
		if h := &a.holds[of[i]]; h.Fence <= s.fence && h.from <= s.end && h.to >= s.end {
			return int(of[i])
		}
	}
	return -1
}

// tied returns the waits that keep a hold from ending, in the order of their starts. The rule is that of lockcore's deadlock search: a
// workflow keeps a hold while any of its steps waits, and so does an owner without Temporal, which is one thread of work. A step with a
// lock ID of its own waits only for its other locks.
func (a *analysis) tied(h *hold) []int32 {
	if h.ofStep {
		return a.byStep[h.LockID]
	}
	return a.byOwner[h.Owner]
}

// tiedTo reports whether a wait is one of those.
func (h *hold) tiedTo(w *wait) bool {
	if h.ofStep {
		return w.lockNumber == h.lockNumber
	}
	return w.ownerNumber == h.ownerNumber
}

// maxTried bounds how many waits of one owner are looked at.
const maxTried = 64

// waitsDuring returns the waits to which a hold is tied in a time, in the order of their starts. It looks at the latest maxTried.
func (a *analysis) waitsDuring(h *hold, at interval) (found []int32) {
	waits := a.tied(h)
	begun := sort.Search(len(waits), func(i int) bool { return a.waits[waits[i]].from >= at.to })
	for _, i := range waits[max(begun-maxTried, 0):begun] {
		if a.waits[i].with(at).length() > 0 {
			found = append(found, i)
		}
	}
	return found
}
