package engine

import (
	"cmp"
	"time"
)

// Covers tells whether holding in mode have is enough for a request of mode want.
func Covers(have, want string) bool { return have == Exclusive || want == SharedBy }

// Compatible tells whether two lock IDs may hold in these modes at the same time.
func Compatible(a, b string) bool { return a == SharedBy && b == SharedBy }

// Part returns the part with exactly this order that may still be renewed, or nil.
func (d *Document) Part(lockID, part string, order int64) *Entry {
	return d.last(lockID, part, func(e *Entry) bool { return e.State == Part && e.Order == order })
}

// HoldFence is the fence with which the hold that a lock ID has began, and 0 where it has none.
func (d *Document) HoldFence(lockID string) int64 {
	var began int64
	for i := range d.Held {
		if e := &d.Held[i]; e.LockID == lockID && e.Holds() {
			if fence := cmp.Or(e.Granted, e.Fence); began == 0 || fence < began {
				began = fence
			}
		}
	}
	return began
}

// Latest returns a part as it runs or was claimed for last, or nil.
func (d *Document) Latest(lockID, part string) *Entry {
	return d.last(lockID, part, func(e *Entry) bool { return e.State == Part || e.State == Claimed })
}

// Claim returns the claim made for a part, or nil. It may have lapsed.
func (d *Document) Claim(lockID, part string) *Entry {
	if e := d.Latest(lockID, part); e != nil && e.State == Claimed {
		return e
	}
	return nil
}

func (d *Document) last(lockID, part string, which func(*Entry) bool) *Entry {
	for i := len(d.Held) - 1; i >= 0; i-- {
		if e := &d.Held[i]; e.LockID == lockID && e.Part == part && which(e) {
			return e
		}
	}
	return nil
}

// GivenUp reports whether a claim has lapsed, and its place in the queue is over too.
func (e *Entry) GivenUp(now time.Time) bool {
	return e.State == Claimed && !e.ExpiresAt.After(now) && (e.Place == nil || !e.Place.After(now))
}

// Tombstone returns what stands for a part that was taken out of the queue to end a deadlock, or
// nil.
func (d *Document) Tombstone(lockID, part string) *Waiter {
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.LockID == lockID && w.Part == part && w.Verdict != "" {
			return w
		}
	}
	return nil
}

// EvictedRecord returns what is remembered of a lock ID's displacement, or nil.
func (d *Document) EvictedRecord(lockID string) *Evicted {
	for i := len(d.Evicted) - 1; i >= 0; i-- {
		if d.Evicted[i].LockID == lockID {
			return &d.Evicted[i]
		}
	}
	return nil
}

// Overtaker returns what overtook a request: a release up to its order or beyond, or a later request of
// the same part.
func (d *Document) Overtaker(lockID, part string, order int64) (by Released, ok bool) {
	for _, r := range d.Released {
		if r.LockID == lockID && (r.Part == nil || *r.Part == part) && r.Order >= order {
			return r, true
		}
	}
	if e := d.Later(lockID, part, order); e != nil {
		return Released{LockID: lockID, Part: &e.Part, Order: e.Order}, true
	}
	return Released{}, false
}

// Later returns the entry of a later request of the same part, or nil.
func (d *Document) Later(lockID, part string, order int64) *Entry {
	if e := d.Latest(lockID, part); e != nil && e.Order > order {
		return e
	}
	return nil
}
