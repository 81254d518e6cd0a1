package rules

import (
	"cmp"
	"slices"
	"time"
)

// Priorities of waiters are those of Temporal: 1 is first, 5 is last.
const (
	DefaultPriority = 3
	LowestPriority  = 5
	// PriorityAge is the time after which the rank of a waiter improves by one.
	PriorityAge = 10 * time.Minute
)

// rank returns the order of precedence in which new requests queue: the priority, minus the whole periods of PriorityAge
// that the waiter has waited, at least 1. So new requests pass no waiter for more than four periods. The rank of a waiter
// that was promoted is 0.
func (w *Waiter) rank(now time.Time) int64 {
	if w.Promoted {
		return 0
	}
	aged := max(0, int64(now.Sub(w.Since)/PriorityAge))
	return max(1, cmp.Or(w.Priority, DefaultPriority)-aged)
}

// insert adds a waiter to the queue, and returns its index. It passes waiters of greater rank, from the back of the queue,
// and stops at the first other one, and at waiters that are ahead of all.
func (s *state) insert(w Waiter) (index int) {
	queue := s.doc.Waiters
	for index = len(queue); index > 0; index-- {
		if before := &queue[index-1]; before.Ahead || before.rank(s.now) <= w.rank(s.now) {
			break
		}
	}
	s.doc.Waiters = slices.Insert(queue, index, w)
	return index
}

// Promote puts the waiters of a lock ID first, behind waiters that are ahead of all, and behind waiters that were promoted before. The
// outcome is Lost if it has none. It must not be applied to a collection that never had a policy: see Acquire.Priority.
type Promote struct {
	Resource, LockID string
}

// ResourceName returns the name of the resource.
func (op Promote) ResourceName() string { return op.Resource }

// Apply promotes the waiters of the lock ID.
func (op Promote) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	own := func(w *Waiter) bool { return w.LockID == op.LockID && w.Waits(s.now) }
	waiting := filter(s.doc.Waiters, own)
	if len(waiting) == 0 {
		s.result.Outcome = Lost
	}
	for _, w := range waiting {
		if w.Ahead || w.Promoted {
			continue
		}
		s.doc.Waiters = without(s.doc.Waiters, func(o *Waiter) bool { return o.SameRequest(&w.Caller) })
		w.Promoted = true
		s.insert(w)
	}
	return s.end()
}
