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

// begin copies the document, counts the write, and drops what is dead: places nobody refreshed, drained
// parts, claims nobody confirmed (their owners go back to the head of the queue, passed over until they
// are heard of), and records whose time is up.
func begin(before engine.Document, resource string, policy engine.Policy, now time.Time) *state {
	d := clone(before)
	d.ID, d.Resource, d.At, d.Seq = resource, resource, now, d.Seq+1
	d.Last = engine.Last{Ended: []engine.Ended{}}
	d.Parts = slices.DeleteFunc(d.Parts, func(p engine.Part) bool { return p.Revoked && expired(p.ExpiresAt, now) })
	d.Released = slices.DeleteFunc(d.Released, func(r engine.Released) bool { return !r.Until.After(now) })
	dead := func(w engine.Waiter) bool { return !w.ExpiresAt.After(now) }
	lapsed := func(w engine.Waiter) bool { return w.Until != nil && !w.Until.After(now) }
	d.Waiters = slices.DeleteFunc(slices.Concat(
		pick(d.Waiters, func(w engine.Waiter) bool { return w.Until != nil }),
		pick(d.Claims, lapsed),
		pick(d.Waiters, func(w engine.Waiter) bool { return w.Until == nil }),
	), dead)
	d.Claims = slices.DeleteFunc(d.Claims, func(w engine.Waiter) bool { return lapsed(w) || dead(w) })
	return &state{doc: d, now: now, policy: policy}
}

// settle claims the resource for the head of the queue while it fits: one exclusive, or consecutive shared
// ones, at most engine.SettleMost in one write (each of them writes when it confirms, so the next follow).
// Those who slept through a claim are passed over.
func (s *state) settle() {
	awake := pick(s.doc.Waiters, func(w engine.Waiter) bool { return w.Until == nil })
	var claimed []engine.Waiter
	for i, w := range awake {
		if i == engine.SettleMost || (i > 0 && w.Mode == engine.Exclusive) || !s.fits(w.LockID, w.Mode, w.Limit) {
			break
		}
		until, granted := s.now.Add(ms(s.policy.ClaimTTL)), s.now
		w.Until, w.Granted = &until, &granted
		claimed = append(claimed, w)
		s.doc.Claims = append(s.doc.Claims, w)
		if w.Mode == engine.Exclusive {
			break
		}
	}
	if len(claimed) > 0 {
		asleep := pick(s.doc.Waiters, func(w engine.Waiter) bool { return w.Until != nil })
		s.doc.Waiters = slices.Concat(asleep, awake[len(claimed):])
	}
}

// fits tells whether no live holder, draining part or claim of another lock ID is in the way.
func (s *state) fits(lockID, mode string, limit int64) bool {
	sharers := map[string]bool{}
	for _, e := range s.live() {
		if e.lockID == lockID {
			continue
		}
		if !engine.Compatible(mode, e.mode) {
			return false
		}
		sharers[e.lockID] = true
	}
	return limit == 0 || mode == engine.Exclusive || int64(len(sharers)) < limit
}

// entry is what the one rule of compatibility looks at.
type entry struct {
	lockID, mode string
	limit        int64
	draining     bool
}

// live lists what stands in others' way: holds that have not expired, draining parts, and claims. The
// other parts need no look: a hold never expires before them.
func (s *state) live() []entry {
	var out []entry
	for _, h := range s.holds() {
		if !expired(h.ExpiresAt, s.now) {
			out = append(out, entry{h.LockID, s.mode(&h), h.Limit, false})
		}
	}
	for _, p := range s.doc.Parts {
		if p.Revoked {
			out = append(out, entry{p.LockID, p.Mode, 0, true})
		}
	}
	for _, c := range s.doc.Claims {
		out = append(out, entry{c.LockID, c.Mode, c.Limit, false})
	}
	return out
}

// end displaces expired holds whose room was given away, and completes the document.
func (s *state) end() engine.Document {
	live := pick(s.live(), func(e entry) bool { return !e.draining })
	for _, h := range s.holds() {
		if !expired(h.ExpiresAt, s.now) {
			continue
		}
		i := slices.IndexFunc(live, func(e entry) bool { return e.lockID != h.LockID && !s.together(&h, e) })
		if i >= 0 {
			s.displace(h, live[i].lockID)
		}
	}
	s.doc.Evicted = last(s.doc.Evicted, engine.MaxEvicted)
	s.doc.Released = last(s.doc.Released, engine.MaxReleased)
	s.doc.Shared.Count = int64(len(s.doc.Shared.Locks))
	s.doc.Last.Length = int64(len(s.doc.Waiters))
	s.doc.IdleAt = s.idleAt()
	return clone(s.doc)
}

// together tells whether an expired hold may stand beside a live entry: by the modes, and, since an
// expired one that comes back must not exceed the limit that somebody was granted by, by the limit.
func (s *state) together(h *engine.Hold, e entry) bool {
	if !engine.Compatible(s.mode(h), e.mode) {
		return false
	}
	sharers := map[string]bool{}
	for _, o := range s.doc.Shared.Locks {
		sharers[o.LockID] = true
	}
	for _, c := range s.doc.Claims {
		sharers[c.LockID] = true
	}
	return e.limit == 0 || int64(len(sharers)) <= e.limit
}

// idleAt is the end of the last promise, rounded up to engine.IdleGrain, or nil while one has no end.
func (s *state) idleAt() *time.Time {
	at := &s.now
	for _, h := range s.holds() {
		at = later(at, h.ExpiresAt)
	}
	for _, p := range s.doc.Parts {
		at = later(at, p.ExpiresAt)
	}
	if at == nil {
		return nil
	}
	grain := engine.IdleGrain.Milliseconds()
	up := time.UnixMilli((at.UnixMilli()/grain + 1) * grain).UTC()
	return &up
}

func (s *state) mode(h *engine.Hold) string {
	if s.doc.Exclusive.Acquired && s.doc.Exclusive.LockID == h.LockID {
		return engine.Exclusive
	}
	return engine.SharedBy
}

func (s *state) holds() []engine.Hold {
	var hs []engine.Hold
	if s.doc.Exclusive.Acquired {
		hs = append(hs, s.doc.Exclusive)
	}
	return append(hs, s.doc.Shared.Locks...)
}

// displace ends an expired hold in favour of another lock ID, and remembers it.
func (s *state) displace(h engine.Hold, by string) {
	s.doc.Evicted = append(s.doc.Evicted, engine.Evicted{LockID: h.LockID, Fence: h.Fence, By: by})
	s.drop(h.LockID, engine.HowExpired)
	s.doc.Parts = slices.DeleteFunc(s.doc.Parts, func(p engine.Part) bool { return p.LockID == h.LockID && !p.Revoked })
}

// put stores a hold in the place that its mode has, instead of the one it had.
func (s *state) put(h engine.Hold, mode string) {
	if mode == engine.Exclusive {
		if old := s.doc.Exclusive; old.Acquired && old.LockID != h.LockID {
			s.displace(old, h.LockID)
		}
		s.doc.Shared.Locks = slices.DeleteFunc(s.doc.Shared.Locks, func(o engine.Hold) bool { return o.LockID == h.LockID })
		s.doc.Exclusive = h
		return
	}
	if i := slices.IndexFunc(s.doc.Shared.Locks, func(o engine.Hold) bool { return o.LockID == h.LockID }); i >= 0 {
		s.doc.Shared.Locks[i] = h
		return
	}
	s.doc.Shared.Locks = append(s.doc.Shared.Locks, h)
}

// drop ends a lock ID's hold and says so in Last.
func (s *state) drop(lockID, how string) {
	h := s.doc.Hold(lockID)
	s.doc.Last.Ended = append(s.doc.Last.Ended, engine.Ended{
		LockID: h.LockID, Owner: h.Owner, Mode: s.mode(h), Fence: h.Granted, CreatedAt: h.CreatedAt, Trace: h.Trace, How: how,
	})
	if s.mode(h) == engine.Exclusive {
		s.doc.Exclusive = engine.Hold{}
		return
	}
	s.doc.Shared.Locks = slices.DeleteFunc(s.doc.Shared.Locks, func(o engine.Hold) bool { return o.LockID == lockID })
}

// revoke cuts parts off. One that may still trust drains; one that is known to have stopped, has expired,
// or was promised the lock without end (there is no end to wait for) goes at once.
func (s *state) revoke(which, stopped func(engine.Part) bool) {
	var out []engine.Part
	for _, p := range s.doc.Parts {
		if which(p) && !p.Revoked {
			if stopped(p) || p.ExpiresAt == nil || expired(p.ExpiresAt, s.now) {
				continue
			}
			p.Revoked = true
		} else if which(p) && stopped(p) {
			continue
		}
		out = append(out, p)
	}
	s.doc.Parts = out
}

func (s *state) forget(which func(engine.Waiter) bool) {
	s.doc.Waiters = slices.DeleteFunc(s.doc.Waiters, which)
	s.doc.Claims = slices.DeleteFunc(s.doc.Claims, which)
}

// remember appends a record, instead of those of the same lock ID that it covers.
func (s *state) remember(r engine.Released, covers func(engine.Released) bool) {
	s.doc.Released = slices.DeleteFunc(s.doc.Released, func(o engine.Released) bool { return o.LockID == r.LockID && covers(o) })
	s.doc.Released = append(s.doc.Released, r)
}
