package rules

import (
	"cmp"
	"slices"
	"time"
)

// otherRun returns the label of another run that represents the party, or has taken it over from the
// run label. The run takeOver may be replaced.
func (d *Document) otherRun(lockID, label, takeOver string) (other string, yes bool) {
	if label == "" {
		return "", false
	}
	for _, e := range d.Evidence {
		if e.LockID == lockID && e.Label == label && e.To != "" {
			return e.To, true
		}
	}
	foreign := func(of string) bool { return of != label && (of == "" || of != takeOver) }
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && foreign(e.Label) && (e.Holds() || e.Alive(d.At)) {
			return e.Label, true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.LockID == lockID && foreign(w.Label) && w.ExpiresAt.After(d.At) {
			return w.Label, true
		}
	}
	return "", false
}

// takeOver makes label the run that represents a lock ID, which otherRun must permit. Kept holds of
// another run continue under the new label and a new fence. Its parts are cut off, and its claims and
// waiters end.
func (s *state) takeOver(lockID, label string) {
	if label == "" {
		return
	}
	was, other := "", false
	foreign := func(of string) bool {
		if of == label {
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
		case !e.BelongsTo(lockID) || !foreign(e.Label):
			rest = append(rest, e)
		case e.State == StateKept:
			fence = cmp.Or(fence, s.nextFence())
			was = e.Label
			// Orders of different runs are not comparable: for this run the hold is older than all its own.
			e.Label, e.Fence, e.LeastFence, e.FirstOrder, e.Order = label, fence, fence, 0, 0
			e.Bars = without(slices.Clone(e.Bars), func(b *Bar) bool { return b.Label != label })
			rest = append(rest, e)
		default:
			rest = append(rest, s.cutOff(e)...)
		}
	}
	s.doc.Entries, s.doc.Fence = rest, max(s.doc.Fence, fence)
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return w.LockID == lockID && foreign(w.Label) })
	if other {
		s.changed = true
		s.doc.LastEvidence++
		s.evidence = append(s.evidence, Evidence{LockID: lockID, Label: was, To: label, Number: s.doc.LastEvidence, At: s.now})
		s.doc.Bars = without(s.doc.Bars, func(b *Bar) bool { return b.LockID == lockID && b.Label != label })
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

// Apply renews the kept hold and reports whether it is the one that was used.
func (op Verify) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	label, other := s.doc.otherRun(op.LockID, op.Label, op.TakeOver)
	if other {
		s.result.Outcome, s.result.Note = OtherRun, label
		return s.end()
	}
	s.takeOver(op.LockID, op.Label)
	s.renewKept(op.LockID)
	if !s.doc.Keeps(op.LockID, op.Used) || s.doc.Lost(op.LockID, op.Label, op.LostSince) != nil {
		s.result.Outcome = Lost
	}
	return s.end()
}
