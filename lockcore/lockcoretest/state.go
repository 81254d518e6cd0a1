package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// state is a document while one operation is applied to it.
type state struct {
	doc    engine.Document
	now    time.Time
	policy engine.Policy
}

// begin copies the document, counts the write, and drops what is dead: claims and draining parts whose time is
// up, and places that nobody refreshed.
func begin(before engine.Document, resource string, policy engine.Policy, now time.Time) *state {
	d := clone(before)
	d.ID, d.At, d.Seq = resource, now, d.Seq+1
	d.Last = engine.Last{Outcome: engine.Granted, Released: []engine.Entry{}, Expired: []engine.Entry{}}
	d.Held = slices.DeleteFunc(d.Held, func(e engine.Entry) bool { return !e.Holds() && !alive(e, now) })
	d.Waiters = slices.DeleteFunc(d.Waiters, func(w engine.Waiter) bool { return !w.ExpiresAt.After(now) })
	return &state{doc: d, now: now, policy: policy}
}

// end settles the document and completes it.
func (s *state) end() engine.Document {
	s.settle()
	s.displace()
	s.doc.Evicted = last(s.doc.Evicted, engine.MaxEvicted)
	s.doc.Last.Length = int64(len(s.doc.Waiters))
	s.doc.IdleAt = s.idleAt()
	return clone(s.doc)
}

// settle claims the resource for the head of the queue while it fits: one exclusive, or consecutive shared
// ones of the same limit, at most engine.SettleMost in one write. Those who slept through a claim are passed
// over.
func (s *state) settle() {
	waiting := pick(s.doc.Waiters, awake)
	if len(waiting) == 0 {
		return
	}
	head := waiting[0]
	k := 0
	for k < len(waiting) && k < engine.SettleMost && waiting[k].Mode == head.Mode && waiting[k].Limit == head.Limit {
		k++
	}
	switch {
	case !s.fits(head.LockID, head.Mode, head.Limit):
		return
	case head.Mode == engine.Exclusive:
		k = 1
	case head.Limit > 0:
		k = min(k, int(head.Limit)-len(s.sharers(head.LockID)))
	}
	until := s.now.Add(ms(s.policy.ClaimTTL))
	claimed := slices.Clone(waiting[:k])
	for i := range claimed {
		w := &claimed[i]
		w.Until = &until
		s.doc.Held = append(s.doc.Held, engine.Entry{
			LockID: w.LockID, Part: w.Part, Order: w.Order, Mode: w.Mode, Limit: w.Limit, Owner: w.Owner, State: engine.Claimed,
			ExpiresAt: until, Since: &w.Since, ClaimedAt: &s.now,
		})
	}
	asleep := pick(s.doc.Waiters, func(w engine.Waiter) bool { return !awake(w) })
	s.doc.Waiters = slices.Concat(asleep, claimed, waiting[k:])
}

// awake tells that a waiter was not granted a claim yet, or has been heard of since it slept through one.
func awake(w engine.Waiter) bool { return w.Until == nil }

// fits tells whether nothing that is alive and of another lock ID is in the way.
func (s *state) fits(lockID, mode string, limit int64) bool {
	if s.some(func(e *engine.Entry) bool {
		return e.LockID != lockID && alive(*e, s.now) && !engine.Compatible(mode, e.Mode)
	}) {
		return false
	}
	return mode == engine.Exclusive || limit == 0 || int64(len(s.sharers(lockID))) < limit
}

// sharers are the lock IDs other than lockID that are alive.
func (s *state) sharers(lockID string) map[string]bool {
	ids := map[string]bool{}
	for _, e := range s.doc.Held {
		if e.LockID != lockID && alive(e, s.now) {
			ids[e.LockID] = true
		}
	}
	return ids
}

// displace ends the expired holds whose room was given away: to an exclusive entry, to a shared one where the
// expired hold was exclusive, or to one whose limit leaves no room for expired ones that may come back.
func (s *state) displace() {
	live := pick(s.doc.Held, func(e engine.Entry) bool { return alive(e, s.now) })
	if len(live) == 0 {
		return
	}
	ids, all := map[string]bool{}, map[string]bool{}
	limit, exclusive := int64(0), false
	for _, e := range live {
		ids[e.LockID] = true
		exclusive = exclusive || e.Mode == engine.Exclusive
		if e.Limit > 0 && (limit == 0 || e.Limit < limit) {
			limit = e.Limit
		}
	}
	for _, e := range s.doc.Held {
		all[e.LockID] = true
	}
	crowded := limit > 0 && int64(len(all)) > limit
	gone := map[string]bool{}
	for _, e := range s.doc.Held {
		if e.Holds() && !alive(e, s.now) && !ids[e.LockID] && (exclusive || crowded || e.Mode == engine.Exclusive) {
			gone[e.LockID] = true
		}
	}
	for _, e := range s.doc.Held {
		if e.Holds() && gone[e.LockID] && e.CreatedAt != nil {
			s.doc.Last.Expired = append(s.doc.Last.Expired, e)
			s.doc.Evicted = append(s.doc.Evicted, engine.Evicted{LockID: e.LockID, Fence: e.Fence, By: live[len(live)-1].LockID})
		}
	}
	s.doc.Held = slices.DeleteFunc(s.doc.Held, func(e engine.Entry) bool { return e.Holds() && gone[e.LockID] })
}

// idleAt is the end of the last promise, rounded up to engine.IdleGrain.
func (s *state) idleAt() time.Time {
	at := s.now
	for _, e := range s.doc.Held {
		at = later(at, e.ExpiresAt)
	}
	grain := engine.IdleGrain.Milliseconds()
	return time.UnixMilli((at.UnixMilli()/grain + 1) * grain).UTC()
}

// heard extends a lock ID's kept hold: that somebody came is a sign of life, whatever the answer. The entries
// of who was heard of come last.
func (s *state) heard(lockID string) {
	own := pick(s.doc.Held, func(e engine.Entry) bool { return e.LockID == lockID })
	for i := range own {
		if e := &own[i]; e.State == engine.Kept {
			e.ExpiresAt = later(e.ExpiresAt, expiry(s.now, e.TTL))
		}
	}
	s.doc.Held = append(pick(s.doc.Held, func(e engine.Entry) bool { return e.LockID != lockID }), own...)
}

func (s *state) holding(lockID string) bool {
	return s.some(func(e *engine.Entry) bool { return e.LockID == lockID && e.Holds() })
}

// covered tells whether the lock ID holds in this mode or a stronger one.
func (s *state) covered(lockID, mode string) bool {
	return s.some(func(e *engine.Entry) bool { return e.LockID == lockID && e.Holds() && engine.Covers(e.Mode, mode) })
}

func (s *state) some(which func(*engine.Entry) bool) bool {
	for i := range s.doc.Held {
		if which(&s.doc.Held[i]) {
			return true
		}
	}
	return false
}

// latest is the highest order that a lock ID has anything under.
func (s *state) latest(lockID string) int64 {
	var order int64
	for _, e := range s.doc.Held {
		if e.LockID == lockID {
			order = max(order, e.Order)
		}
	}
	for _, w := range s.doc.Waiters {
		if w.LockID == lockID {
			order = max(order, w.Order)
		}
	}
	return order
}

// drop takes entries away, and tells of what belonged to a hold that ends with them.
func (s *state) drop(which func(engine.Entry) bool) {
	gone := pick(s.doc.Held, which)
	s.doc.Held = slices.DeleteFunc(s.doc.Held, which)
	for _, e := range gone {
		if e.Holds() && e.CreatedAt != nil && !s.holding(e.LockID) {
			s.doc.Last.Released = append(s.doc.Last.Released, e)
		}
	}
}

// drains tells whether a part that is cut off may still trust. One that was promised the lock without end
// goes at once: there is no end to wait for.
func (s *state) drains(e engine.Entry) bool {
	return alive(e, s.now) && e.ExpiresAt.Before(engine.Never)
}

func drained(e engine.Entry) engine.Entry {
	e.State = engine.Draining
	return e
}

func (s *state) forget(which func(engine.Waiter) bool) {
	s.doc.Waiters = slices.DeleteFunc(s.doc.Waiters, which)
}

// remember appends a record instead of those of the same lock ID that it covers, and drops those whose time is
// up.
func (s *state) remember(r engine.Released) {
	r.Until = s.now.Add(ms(s.policy.ReleasedTTL))
	s.doc.Released = slices.DeleteFunc(s.doc.Released, func(o engine.Released) bool {
		covered := o.LockID == r.LockID && o.Order <= r.Order && (r.Part == nil || (o.Part != nil && *o.Part == *r.Part))
		return covered || !o.Until.After(s.now)
	})
	s.doc.Released = last(append(s.doc.Released, r), engine.MaxReleased)
}
