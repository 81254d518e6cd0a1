package rules

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Bar refuses late requests of a saga that compensates, and of all sagas inside it, up to an order. It also
// matches requests whose Within is the lock ID.
//
// A bar is stored in a kept entry of its lock ID, and otherwise in the document's own list. So sagas of others,
// of which a resource may see many, do not drop the bar of one that keeps the resource while it compensates.
type Bar struct {
	LockID string `bson:"lockId"`
	Run    string `bson:"run,omitempty"`
	// Saga is a path such as "2/5": saga 5 inside saga 2.
	Saga  string `bson:"saga,omitempty"`
	Order int64  `bson:"order"`
}

// matches reports whether the bar refuses a request.
func (b *Bar) matches(r *Caller) bool {
	return (b.LockID == r.LockID || b.LockID == r.Within) && b.Run == r.Run && isInside(r.Saga, b.Saga) && r.Order <= b.Order
}

// isInside reports whether a saga is another one, or inside it.
func isInside(saga, outer string) bool {
	rest, ok := strings.CutPrefix(saga, outer)
	return ok && (rest == "" || rest[0] == '/')
}

// covers reports whether the bar refuses everything that another one refuses.
func (b *Bar) covers(o *Bar) bool {
	return b.LockID == o.LockID && b.Run == o.Run && isInside(o.Saga, b.Saga) && o.Order <= b.Order
}

// AllBars yields the bars of a lock ID: those in its hold, and those in the document's own list.
func (d *Document) AllBars(lockID string) iter.Seq[*Bar] {
	return func(yield func(*Bar) bool) {
		for i := range d.Entries {
			e := &d.Entries[i]
			for n := 0; n < len(e.Bars) && e.keeps(lockID); n++ {
				if !yield(&e.Bars[n]) {
					return
				}
			}
		}
		for i := range d.Bars {
			if b := &d.Bars[i]; b.LockID == lockID && !yield(b) {
				return
			}
		}
	}
}

// keeps reports whether the entry is a kept entry of a lock ID.
func (e *Entry) keeps(lockID string) bool { return e.State == StateKept && e.BelongsTo(lockID) }

// barred returns a bar that refuses a request, or nil.
func (d *Document) barred(r *Caller) *Bar {
	for _, lockID := range []string{r.LockID, r.Within} {
		for b := range d.AllBars(lockID) {
			if b.matches(r) {
				return b
			}
		}
	}
	return nil
}

// with returns bars with b added, and without the bars that b covers. It keeps only the newest bars, up to most.
// It does not change the given slice, because documents share it.
func with(bars []Bar, b Bar, most int) []Bar {
	rest := without(slices.Clone(bars), func(o *Bar) bool { return b.covers(o) })
	return tail(append(rest, b), most)
}

// addBar adds a bar to the hold of its lock ID, or to the document's own list. It reports false if another bar
// covers it.
func (s *state) addBar(b Bar) bool {
	for o := range s.doc.AllBars(b.LockID) {
		if o.covers(&b) {
			return false
		}
	}
	s.doc.Bars = without(s.doc.Bars, func(o *Bar) bool { return b.covers(o) })
	keeper, bars := -1, []Bar(nil)
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.keeps(b.LockID) {
			bars = append(bars, e.Bars...)
			keeper, e.Bars = i, nil
		}
	}
	if keeper < 0 {
		s.doc.Bars = with(s.doc.Bars, b, MaxBars)
		return true
	}
	s.doc.Entries[keeper].Bars = with(bars, b, MaxHoldBars)
	return true
}

// moveBars moves the bars of the kept entries that the operation has ended to what is left of their hold, or
// to the document's own list: a delayed step of the saga must still find them.
func (s *state) moveBars() {
	for _, b := range s.homeless {
		s.addBar(b)
	}
}

// drawFence draws the fence under which a compensation writes, and raises the least fence of the hold, so that
// writes of the undone steps are refused after its first write. Parts that are still running may write under
// their own leases: then the least fence stays.
func (s *state) drawFence(lockID string) {
	running := s.anyEntry(func(e *Entry) bool { return e.BelongsTo(lockID) && e.State == StateRunning })
	fence := int64(0)
	for i := range s.doc.Entries {
		e := &s.doc.Entries[i]
		if !e.keeps(lockID) {
			continue
		}
		if fence == 0 {
			fence = s.nextFence()
		}
		e.Fence = fence
		if !running {
			e.LeastFence = fence
		}
	}
	s.doc.Fence = max(s.doc.Fence, fence)
}

// cutOffAll cuts off the parts of the matching requests, and ends their claims and waiters.
func (s *state) cutOffAll(which func(*Caller) bool) {
	rest := make([]Entry, 0, len(s.doc.Entries))
	for _, e := range s.doc.Entries {
		if e.State == StateKept || e.CutOff || !which(&e.Caller) {
			rest = append(rest, e)
		} else {
			rest = append(rest, s.cutOff(e)...)
		}
	}
	s.doc.Entries = rest
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return which(&w.Caller) })
}

func (op *Raise) bar() Bar {
	return Bar{LockID: op.LockID, Run: op.Run, Saga: op.Saga, Order: op.Order}
}

// replacedRuns returns the runs whose requests of the saga are undone, whatever their
// order: a replaced run may have made later requests than this one, and makes no more.
func (op *Raise) replacedRuns(d *Document) []string {
	return append(d.Replaced(op.LockID, op.Run), op.TakeOver)
}

// undoes reports whether the compensation undoes a request: the bar refuses it, or a replaced run has
// made it in the same saga.
func (op *Raise) undoes(r *Caller, replaced []string) bool {
	if r.Run == op.Run || r.Run == "" {
		b := op.bar()
		return b.matches(r)
	}
	return slices.Contains(replaced, r.Run) && isInside(r.Saga, op.Saga) && (r.LockID == op.LockID || r.Within == op.LockID)
}

// StillRunning returns the parts in a document that the compensation has cut off and that may still run.
func (op *Raise) StillRunning(d *Document) (parts []*Entry) {
	replaced := op.replacedRuns(d)
	for i := range d.Entries {
		if e := &d.Entries[i]; e.CutOff && e.Alive(d.At) && op.undoes(&e.Caller, replaced) {
			parts = append(parts, e)
		}
	}
	return parts
}

// Apply raises the bar, and cuts off what it refuses.
func (op Raise) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	if run, other := s.doc.otherRun(op.LockID, op.Run, op.TakeOver); other {
		s.result.Outcome, s.result.Note = OtherRun, run
		return s.end()
	}
	s.takeOver(op.LockID, op.Run)
	s.changed = true
	known := *s.doc
	known.Evidence = slices.Concat(known.Evidence, s.evidence) // including the run that was replaced just now
	replaced := op.replacedRuns(&known)
	s.cutOffAll(func(r *Caller) bool { return op.undoes(r, replaced) })
	if s.addBar(op.bar()) {
		s.drawFence(op.LockID)
	}
	if known.Entries = s.doc.Entries; len(op.StillRunning(&known)) > 0 {
		s.result.Outcome = Busy
	}
	s.renewKept(op.LockID)
	return s.end()
}
