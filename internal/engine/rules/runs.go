package rules

import (
	"cmp"
	"slices"
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
	e.CutOff, e.Mode = true, Exclusive
	return []Entry{e}
}

// Apply renews the kept hold and reports whether it is the hold that was used.
func (op Verify) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	run, other := s.doc.otherRun(op.LockID, op.Run, op.TakeOver)
	if other {
		s.result.Outcome, s.result.Note = OtherRun, run
		return s.end()
	}
	s.takeOver(op.LockID, op.Run)
	s.renewKept(op.LockID)
	if !s.doc.Keeps(op.LockID, op.Order) || s.doc.Lost(op.LockID, op.Run, op.LostSince) != nil {
		s.result.Outcome = Lost
	}
	return s.end()
}
