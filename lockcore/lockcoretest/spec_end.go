package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Leave is the specification of that operation.
func Leave(before engine.Document, op engine.Leave, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	own := func(e engine.Entry) bool {
		ours := e.LockID == op.LockID || (op.Label != "" && e.LockID == engine.CutOff(op.LockID))
		return ours && e.Part == op.Part && e.State != engine.StateKept
	}
	left := s.doc.Part(op.LockID, op.Part, op.Order) != nil
	goes := func(e engine.Entry) bool {
		if e.State == engine.StateClaimed {
			return own(e) && e.Order <= op.Order
		}
		return own(e) && e.Order == op.Order && !op.Waiting
	}
	s.ended(pick(s.doc.Entries, goes)...)
	s.drop(goes)
	s.forget(before.Waiters, func(w engine.Waiter) bool {
		return w.LockID == op.LockID && w.Part == op.Part && w.Order <= op.Order
	})
	if op.Undo && left && !s.some(func(e *engine.Entry) bool { return e.LockID == op.LockID && e.State == engine.StateRunning }) {
		kept := func(e engine.Entry) bool { return e.LockID == op.LockID && e.State == engine.StateKept && !e.Joined }
		s.ended(pick(s.doc.Entries, kept)...)
		s.drop(kept)
	}
	s.remember(engine.Released{LockID: op.LockID, Label: op.Label, Part: &op.Part, Order: op.Order, Reason: op.Reason})
	return s.end()
}

// Release is the specification of that operation.
func Release(before engine.Document, op engine.Release, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	if op.Used > 0 && !s.doc.Keeps(op.LockID, op.Label, op.Used) {
		s.doc.Last.Outcome = engine.Lost
		s.drop(func(engine.Entry) bool { return false })
		return s.end()
	}
	named := func(e engine.Entry) bool {
		switch {
		case op.Force:
			return (e.LockID == op.LockID || e.LockID == engine.CutOff(op.LockID)) && e.FirstFence == op.FirstFence
		case e.LockID != op.LockID || (op.Label != "" && e.Label != op.Label):
			return false
		case op.FirstFence > 0:
			return e.FirstFence == op.FirstFence
		}
		return e.Order <= op.Order
	}
	stopped := func(e engine.Entry) bool {
		return op.Now || (op.Leaving != nil && e.Part == *op.Leaving && e.Order == op.Order)
	}
	var draining []engine.Entry
	for _, e := range s.doc.Entries {
		if !named(e) {
			continue
		}
		if op.Force && e.Holds() && e.CreatedAt != nil {
			s.evidence = append(s.evidence, engine.Evicted{LockID: e.LockID, Label: e.Label, Fence: e.FirstFence, At: s.now, Reason: op.Reason})
		}
		if !stopped(e) && (e.State == engine.StateDraining || e.State == engine.StateRunning) {
			draining = append(draining, s.drained(e))
		}
		if op.FirstFence > 0 && e.State == engine.StateRunning {
			s.remember(engine.Released{LockID: op.LockID, Label: op.Label, Part: &e.Part, Order: e.Order, Reason: op.Reason})
		}
	}
	s.ended(pick(s.doc.Entries, func(e engine.Entry) bool { return named(e) && e.State != engine.StateDraining })...) // those had ended already
	s.drop(named)
	s.doc.Entries = append(s.doc.Entries, draining...)
	if op.FirstFence == 0 {
		s.forget(before.Waiters, func(w engine.Waiter) bool {
			return w.LockID == op.LockID && (op.Label == "" || w.Label == op.Label) && w.Order <= op.Order
		})
		r := engine.Released{LockID: op.LockID, Label: op.Label, Order: op.Order, Reason: op.Reason}
		repeated := slices.ContainsFunc(s.doc.Released, func(e engine.Released) bool {
			return e.LockID == r.LockID && e.Label == r.Label && e.Order == r.Order && e.Part == nil
		})
		r.Lost = s.doc.EvictedRecord(op.LockID, op.Label) != nil && !repeated // what was lost since is not its own
		s.remember(r)
		if r.Lost {
			s.forgive(op.LockID, op.Label)
		}
		s.committed(op)
	}
	return s.end()
}

// committed remembers that a run has released all that its party had.
func (s *state) committed(op engine.Release) {
	if op.Label == "" {
		return
	}
	s.doc.Commits = pick(s.doc.Commits, func(c engine.Commit) bool {
		return c.LockID != op.LockID || c.Label != op.Label || c.Order != op.Order
	})
	s.doc.Commits = append(s.doc.Commits, engine.Commit{LockID: op.LockID, Label: op.Label, Order: op.Order})
	s.doc.Commits = last(s.doc.Commits, engine.MaxCommits)
}

// Withdraw is the specification of that operation.
func Withdraw(before engine.Document, op engine.Withdraw, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	s.doc.Last.Outcome = engine.Lost
	for i := range s.doc.Waiters {
		if w := &s.doc.Waiters[i]; w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order && w.Verdict == "" {
			s.doc.Last.Outcome = engine.Granted
			s.ended(place(*w))
			w.Verdict, w.OverdueAt = op.Reason, engine.LongAgo
		}
	}
	return s.end()
}
