package rules

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// otherRun returns another run that represents the party, or has taken it over from the given run. The
// run takeOver may be replaced.
func (d *Document) otherRun(lockID, run, takeOver string) (other string, yes bool) {
	if run == "" {
		return "", false
	}
	for _, e := range d.Evidence {
		if e.LockID == lockID && e.Run == run && e.To != "" {
			return e.To, true
		}
	}
	foreign := func(of string) bool { return of != run && (of == "" || of != takeOver) }
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && foreign(e.Run) && (e.Holds() || e.Alive(d.At)) {
			return e.Run, true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.LockID == lockID && foreign(w.Run) && w.ExpiresAt.After(d.At) {
			return w.Run, true
		}
	}
	return "", false
}

// takeOver makes a run represent a lock ID, which otherRun must permit. Kept holds of
// another run continue under this run and a new fence. Its parts are cut off, and its claims and
// waiters end.
func (s *state) takeOver(lockID, run string) {
	if run == "" {
		return
	}
	was, other := "", false
	foreign := func(of string) bool {
		if of == run {
			return false
		}
		if !other {
			was, other = of, true
		}
		return true
	}
	fence := int64(0)
	rest := make([]Entry, 0, len(s.doc.Entries))
	for _, e := range s.doc.Entries {
		switch {
		case !e.BelongsTo(lockID) || !foreign(e.Run):
			rest = append(rest, e)
		case e.State == StateKept:
			fence = cmp.Or(fence, s.nextFence())
			was = e.Run
			// Orders of different runs are not comparable: for this run the hold is older than all its own.
			e.Run, e.Fence, e.LeastFence, e.FirstOrder, e.Order = run, fence, fence, 0, 0
			e.Bars = without(slices.Clone(e.Bars), func(b *Bar) bool { return b.Run != run })
			rest = append(rest, e)
		default:
			rest = append(rest, s.cutOff(e)...)
		}
	}
	s.doc.Entries, s.doc.Fence = rest, max(s.doc.Fence, fence)
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return w.LockID == lockID && foreign(w.Run) })
	if other {
		s.changed = true
		s.doc.LastEvidence++
		s.evidence = append(s.evidence, Evidence{LockID: lockID, Run: was, To: run, Number: s.doc.LastEvidence, At: s.now})
		s.doc.Bars = without(s.doc.Bars, func(b *Bar) bool { return b.LockID == lockID && b.Run != run })
	}
}

// cutOff ends an entry that a new run or a compensation of the same party replaces. A part that may
// still run drains, and blocks its own lock ID too.
func (s *state) cutOff(e Entry) []Entry {
	s.recordEnded(e)
	if e.State == StateClaimed || !e.Alive(s.now) {
		return nil
	}
	e = s.drain(e)
	if e.CutOff = true; e.Mode != Pool { // it blocks its member, not the pool
		e.Mode = Exclusive
	}
	return []Entry{e}
}

// Replaced returns a run, and the runs that it is known to have replaced or
// that replaced it, directly or indirectly.
func (d *Document) Replaced(lockID, run string) []string {
	runs := []string{run}
	for n := 0; n < len(runs); n++ {
		for i := range d.Evidence {
			e := &d.Evidence[i]
			if e.LockID != lockID || e.To == "" || (e.To != runs[n] && e.Run != runs[n]) {
				continue
			}
			for _, other := range []string{e.Run, e.To} {
				if !slices.Contains(runs, other) {
					runs = append(runs, other)
				}
			}
		}
	}
	return runs
}

// Supersession describes what superseded a request.
type Supersession struct {
	// Order is the order of the later request, of the release, or of the bar.
	Order int64
	// Released is set for a release or a bar; otherwise a later request of the same part superseded it.
	Released bool
	// Reason is set for a bar.
	Reason string
}

// ReasonBarred is the reason for refusing a request that a compensation has barred.
const ReasonBarred = "a compensation undoes it"

// SupersededBy returns what superseded a request: a release up to its order or a later one, a bar, or
// a later request of the same part.
func (d *Document) SupersededBy(c Caller) (by Supersession, ok bool) {
	for i := range d.Releases {
		if o := &d.Releases[i]; o.LockID == c.LockID && o.Run == c.Run && o.Order >= c.Order {
			return Supersession{Order: o.Order, Released: true}, true
		}
	}
	if b := d.barred(&c); b != nil {
		return Supersession{Order: b.Order, Released: true, Reason: ReasonBarred}, true
	}
	if later, ok := d.LaterOrder(c); ok {
		return Supersession{Order: later}, true
	}
	return Supersession{}, false
}

// LaterOrder returns the order of a later request of the same part that runs, waits, has a claim or
// drains. If the request itself drains, it returns this order.
func (d *Document) LaterOrder(c Caller) (later int64, ok bool) {
	for i := range d.Entries {
		e := &d.Entries[i]
		own := e.ofPart(&c) && e.State != StateKept
		if own && (e.Order > c.Order || (e.Order == c.Order && e.State == StateDraining)) {
			later, ok = max(later, e.Order), true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.SamePart(&c) && w.Order > c.Order {
			later, ok = max(later, w.Order), true
		}
	}
	return later, ok
}

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

// Raise bars the requests of a saga and of the sagas inside it, up to an order, and all their requests that
// replaced runs have made: running parts are cut off, claims and queued requests end, and later requests are
// refused. Requests within the lock ID are barred like its own. The outcome is Busy while a part that
// was cut off may still run. A new bar draws a fence for what the lock ID keeps; a bar that exists draws none.
type Raise struct {
	Resource, LockID, Run, TakeOver, Saga string
	Order                                 int64
}

// ResourceName returns the name of the resource.
func (op Raise) ResourceName() string { return op.Resource }

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
func (op Raise) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
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
