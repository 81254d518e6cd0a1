package engine

import (
	"slices"
	"time"
)

// Covers reports whether holding in mode have is enough for a request of mode want.
func Covers(have, want string) bool { return have == Exclusive || want == Shared }

// Compatible reports whether two lock IDs may hold in these modes at the same time.
func Compatible(a, b string) bool { return a == Shared && b == Shared }

// Part returns the part with exactly this order that may still be renewed, or nil.
func (d *Document) Part(lockID, part string, order int64) *Entry {
	return d.last(lockID, part, func(e *Entry) bool { return e.State == StateRunning && e.Order == order })
}

// HoldFence is the fence with which a lock ID's hold began, and 0 if it has none.
func (d *Document) HoldFence(lockID string) int64 {
	if i := slices.IndexFunc(d.Entries, func(e Entry) bool { return e.LockID == lockID && e.Holds() }); i >= 0 {
		return d.Entries[i].FirstFence
	}
	return 0
}

// Kept returns what is kept of a lock ID's hold, or nil.
func (d *Document) Kept(lockID string) *Entry {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.LockID == lockID && e.State == StateKept {
			return e
		}
	}
	return nil
}

// Keeps reports whether a lock ID keeps a hold under a label that an order up to one began.
func (d *Document) Keeps(lockID, label string, order int64) bool {
	k := d.Kept(lockID)
	return k != nil && k.Label == label && k.FirstOrder <= order
}

// Latest returns a part as it runs or was claimed for last, or nil.
func (d *Document) Latest(lockID, part string) *Entry {
	return d.last(lockID, part, func(e *Entry) bool { return e.State == StateRunning || e.State == StateClaimed })
}

// Claim returns the claim made for a part, or nil. It may have lapsed.
func (d *Document) Claim(lockID, part string) *Entry {
	if e := d.Latest(lockID, part); e != nil && e.State == StateClaimed {
		return e
	}
	return nil
}

func (d *Document) last(lockID, part string, which func(*Entry) bool) *Entry {
	for i := len(d.Entries) - 1; i >= 0; i-- {
		if e := &d.Entries[i]; e.LockID == lockID && e.Part == part && which(e) {
			return e
		}
	}
	return nil
}

// GivenUp reports whether a claim has lapsed, and its place in the queue is over too.
func (e *Entry) GivenUp(now time.Time) bool {
	return e.State == StateClaimed && !e.ExpiresAt.After(now) && (e.Place == nil || !e.Place.After(now))
}

// Tombstone returns the place of a part that was taken out of the queue to end a deadlock, or nil.
func (d *Document) Tombstone(lockID, part string) *Waiter {
	i := slices.IndexFunc(d.Waiters, func(w Waiter) bool { return w.LockID == lockID && w.Part == part && w.Verdict != "" })
	if i < 0 {
		return nil
	}
	return &d.Waiters[i]
}

// EvictedRecord returns what is remembered of a lock ID's loss, or nil. With a label it is that of
// the run's own hold.
func (d *Document) EvictedRecord(lockID, label string) *Evicted {
	for i := len(d.Evicted) - 1; i >= 0; i-- {
		if e := &d.Evicted[i]; e.LockID == lockID && e.To == "" && (label == "" || e.Label == label) {
			return e
		}
	}
	return nil
}

// LostHold reports whether evidence says that a lock ID lost the hold that began with a fence.
func (d *Document) LostHold(lockID string, first int64) bool {
	return slices.ContainsFunc(d.Evicted, func(e Evicted) bool { return e.LockID == lockID && e.Fence == first && e.To == "" })
}

// LostUpTo reports whether a release of a run up to exactly this order found evidence of a loss.
func (d *Document) LostUpTo(lockID, label string, order int64) bool {
	return slices.ContainsFunc(d.Released, func(r Released) bool {
		return r.LockID == lockID && r.Label == label && r.Part == nil && r.Order == order && r.Lost
	})
}

// LostBefore reports whether a hold that began with a fence, and is not there, has to be taken for
// lost. Either evidence says so, or some evidence was forgotten since the hold began. A zero time
// is not known, and only evidence counts.
func (d *Document) LostBefore(lockID string, first int64, began time.Time) bool {
	return (!began.IsZero() && !began.After(d.EvidenceSince)) || d.LostHold(lockID, first)
}

// Overtaker returns what overtook a request: an ending of its order or a later one, a later request
// of the same part, or a compensation that undoes the part.
func (d *Document) Overtaker(lockID, label, part string, order int64) (by Released, ok bool) {
	for _, r := range d.Released {
		own := r.Part != nil && *r.Part == part
		if all := r.Part == nil && (label == "" || r.Label == label); r.LockID == lockID && (own || all) && r.Order >= order {
			return r, true
		}
	}
	if label != "" && d.Undoes(lockID, part) {
		return Released{LockID: lockID, Label: label, Part: &part, Order: order, Reason: ReasonUndone}, true
	}
	if later, ok := d.Later(lockID, part, order); ok {
		return Released{LockID: lockID, Part: &part, Order: later}, true
	}
	return Released{}, false
}

// Later returns the order of a later request of the same part that runs, waits, has a claim or was
// cut off; or this one, if it was cut off itself.
func (d *Document) Later(lockID, part string, order int64) (later int64, ok bool) {
	for i := range d.Entries {
		e := &d.Entries[i]
		own := e.LockID == lockID && e.Part == part && e.State != StateKept
		if own && (e.Order > order || (e.Order == order && e.State == StateDraining)) {
			later, ok = max(later, e.Order), true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.LockID == lockID && w.Part == part && w.Order > order {
			later, ok = max(later, w.Order), true
		}
	}
	return later, ok
}
