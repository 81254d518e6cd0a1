package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// speaks makes the run of the request the one that speaks for its party, and ends the parts that it undoes.
func (s *state) speaks(op engine.Acquire) {
	if op.Label == "" {
		return
	}
	fence, was, other := int64(0), "", false
	goes := func(lockID, label, part string) bool {
		if lockID == op.LockID && label != op.Label && !other {
			was, other = label, true
		}
		return lockID == op.LockID && (label != op.Label || slices.Contains(op.Undo, part))
	}
	var held []engine.Entry
	for _, e := range s.doc.Entries {
		switch {
		case e.State == engine.StateKept && e.LockID == op.LockID && e.Label != op.Label:
			was, other = e.Label, true
			if fence == 0 {
				fence = max(s.doc.Fence+1, s.now.UnixMilli())
			}
			e.Label, e.Fence, e.Order, e.HandedOver = op.Label, fence, 0, false // those were the other run's
			held = append(held, e)
		case e.State == engine.StateKept || !goes(e.LockID, e.Label, e.Part):
			held = append(held, e)
		default:
			s.ended(e)
			if e.State != engine.StateClaimed && alive(e, s.now) {
				e = s.drained(e)
				e.LockID, e.Mode = engine.CutOff(op.LockID), engine.Exclusive
				held = append(held, e)
			}
		}
	}
	s.doc.Entries, s.doc.Fence = held, max(s.doc.Fence, fence)
	s.forget(s.doc.Waiters, func(w engine.Waiter) bool { return goes(w.LockID, w.Label, w.Part) })
	if other {
		s.evidence = append(s.evidence, engine.Evicted{LockID: op.LockID, Label: was, To: op.Label, At: s.now})
	}
	s.undo(op)
}

// undo remembers which parts are undone.
func (s *state) undo(op engine.Acquire) {
	if len(op.Undo) == 0 {
		return
	}
	s.doc.Undone = pick(s.doc.Undone, func(u engine.Undone) bool {
		return u.LockID != op.LockID || !slices.Contains(op.Undo, u.Part)
	})
	for _, part := range op.Undo {
		s.doc.Undone = append(s.doc.Undone, engine.Undone{LockID: op.LockID, Part: part})
	}
	s.doc.Undone = last(s.doc.Undone, engine.MaxUndone)
}

// otherRun is the label of the run that keeps a request from speaking for its party, if one does.
func otherRun(d *engine.Document, a *engine.Acquire) (label string, yes bool) {
	if a.Label == "" {
		return "", false
	}
	for _, e := range d.Evicted {
		if e.LockID == a.LockID && e.Label == a.Label && e.To != "" {
			return e.To, true
		}
	}
	other := func(lockID, label string) bool {
		return lockID == a.LockID && label != a.Label && (label == "" || label != a.TakeOver)
	}
	for i := range d.Entries {
		if e := &d.Entries[i]; other(e.LockID, e.Label) && (e.Holds() || e.Stands(d.At)) {
			return e.Label, true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; other(w.LockID, w.Label) && w.ExpiresAt.After(d.At) {
			return w.Label, true
		}
	}
	return "", false
}

// late reports whether the request comes too late at now.
func late(a *engine.Acquire, now time.Time) bool {
	return !a.Issued.IsZero() && now.After(a.Issued.Add(engine.CommandTimeout))
}
