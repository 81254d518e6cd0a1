package lockcoretest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// named is I5: what an operation does not name stays as it was, but for what is dead, and for claims to the head of
// the queue.
func named(s *Step) error {
	for _, e := range s.Before.Entries {
		if alive(e, s.now()) && !namesEntry(s, &e) && !slices.ContainsFunc(s.After.Entries, func(a rules.Entry) bool { return same(a, e) }) {
			return fmt.Errorf("the entry %+v was touched", e)
		}
	}
	for _, w := range standing(s) {
		claimed := func(a rules.Entry) bool {
			return a.State == rules.StateClaimed && a.LockID == w.LockID && a.Part == w.Part && a.Order == w.Order
		}
		stands := slices.ContainsFunc(s.After.Waiters, func(a rules.Waiter) bool { return same(a, w) }) || slices.ContainsFunc(s.After.Entries, claimed)
		if !stands && !namesWaiter(s.Op, &w) {
			return fmt.Errorf("the place %+v was touched", w)
		}
	}
	for _, e := range s.After.Entries {
		known := slices.ContainsFunc(s.Before.Entries, func(b rules.Entry) bool { return same(b, e) })
		waited := slices.ContainsFunc(s.Before.Waiters, func(w rules.Waiter) bool { return w.LockID == e.LockID && w.Part == e.Part && w.Order == e.Order })
		if lockID := lockIDOf(s.Op); !known && e.LockID != lockID && e.LockID != rules.CutOff(lockID) && lockID != "" && (e.State != rules.StateClaimed || !waited) {
			return fmt.Errorf("the entry %+v was made", e)
		}
	}
	return nil
}

func lockIDOf(op any) string {
	switch op := op.(type) {
	case rules.Acquire:
		return op.LockID
	case rules.Renew:
		return op.LockID
	case rules.Leave:
		return op.LockID
	case rules.Release:
		return op.LockID
	case rules.Withdraw:
		return op.LockID
	}
	return ""
}

// namesEntry reports whether an operation may change or end an entry.
func namesEntry(s *Step, e *rules.Entry) bool {
	if batch, ok := s.Op.([]rules.Renew); ok {
		return slices.ContainsFunc(batch, func(r rules.Renew) bool { return renews(&r, e) })
	}
	if op, ok := s.Op.(rules.Leave); ok && op.Label != "" && e.LockID == rules.CutOff(op.LockID) && !op.Waiting {
		return e.Part == op.Part && e.Order == op.Order
	}
	if op, ok := s.Op.(rules.Release); ok && op.FirstFence > 0 {
		return endsHold(&op, e)
	}
	if e.LockID != lockIDOf(s.Op) {
		return false
	}
	switch op := s.Op.(type) {
	case rules.Acquire:
		switch s.After.Last.Outcome {
		case rules.Granted, rules.Joined:
			return true
		case rules.Queued: // it has no room any more for its claim
			return e.State == rules.StateClaimed && e.Part == op.Part || op.Persist && e.State == rules.StateKept
		case rules.Superseded, rules.Late, rules.OtherRun:
			return false
		}
		return op.Persist && e.State == rules.StateKept // that a request came is a sign of life
	case rules.Renew:
		return s.After.Last.Outcome == rules.Granted && (renews(&op, e) || (op.Downgrade && e.Holds()))
	case rules.Leave:
		return (e.Part == op.Part && e.State != rules.StateKept && e.Order <= op.Order && (e.Order == op.Order || e.State == rules.StateClaimed)) ||
			(op.Undo && e.State == rules.StateKept && !e.Joined)
	case rules.Release:
		return !refused(s, &op) && e.Order <= op.Order && (op.Label == "" || e.Label == op.Label)
	}
	return false
}

func renews(op *rules.Renew, e *rules.Entry) bool {
	return e.LockID == op.LockID && (e.State == rules.StateKept || (e.State == rules.StateRunning && e.Part == op.Part && e.Order == op.Order))
}

// namesWaiter reports whether an operation may change or end a place.
func namesWaiter(op any, w *rules.Waiter) bool {
	if w.LockID != lockIDOf(op) {
		return false
	}
	switch op := op.(type) {
	case rules.Acquire:
		return w.Part == op.Part
	case rules.Leave:
		return w.Part == op.Part && w.Order <= op.Order
	case rules.Release:
		return op.FirstFence == 0 && w.Order <= op.Order && (op.Label == "" || w.Label == op.Label)
	case rules.Withdraw:
		return w.Part == op.Part && w.Order == op.Order
	}
	return false
}

// verbatim is I10: what was passed is what is stored.
func verbatim(s *Step) error {
	op, ok := s.Op.(rules.Acquire)
	if !ok {
		return nil
	}
	if op.Owner == op.LockID {
		op.Owner = ""
	}
	fresh := !slices.ContainsFunc(s.Before.Entries, func(e rules.Entry) bool { return e.LockID == op.LockID })
	for _, e := range s.After.Entries {
		told := e.LockID == op.LockID && e.CreatedAt != nil && fresh && s.granted() != nil
		if told && (e.Owner != op.Owner || e.Host != op.Host || e.Comment != op.Comment || e.Trace != op.Trace) {
			return fmt.Errorf("of %+v this was stored: %+v", op, e)
		}
	}
	for _, w := range s.After.Waiters {
		if s.After.Last.Outcome == rules.Queued && w.LockID == op.LockID && w.Part == op.Part && (w.Owner != op.Owner || w.Order != op.Order) {
			return fmt.Errorf("of %+v this was stored: %+v", op, w)
		}
	}
	return nil
}

// Repeated is the first half of I6: once is the document after an operation and a write that names nothing, and
// twice after the operation and the same again, at the same time. They differ in what the last write tells, in the
// order of what is held, and in when the dead were dropped.
func Repeated(once, twice rules.Document) error {
	a, b := clone(once), clone(twice)
	for _, d := range []*rules.Document{&a, &b} {
		d.Entries = pick(d.Entries, func(e rules.Entry) bool { return e.Holds() || alive(e, d.At) })
		slices.SortFunc(d.Entries, byName)
		d.Seq, d.Last, d.Released, d.Attn = 0, rules.Last{}, nil, nil
	}
	if !same(a, b) {
		return fmt.Errorf("I6: run once it left %+v, run twice %+v", a, b)
	}
	for _, r := range once.Released {
		part := ""
		if r.Part != nil {
			part = *r.Part
		}
		if _, over := (&rules.Document{Released: twice.Released}).Overtaker(r.LockID, "", part, r.Order); !over && len(twice.Released) < rules.MaxReleased {
			return fmt.Errorf("I6: run twice it forgot %+v", r)
		}
	}
	return nil
}
