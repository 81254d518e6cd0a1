package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Acquire is the specification of that operation: the document before, the request and the time give the
// document after. [engine.Acquire.Judge] reads the outcome from it.
func Acquire(before engine.Document, op engine.Acquire, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	_, overtaken := s.doc.Overtaker(op.LockID, op.Part, op.Order)
	proceed := !overtaken && !op.Lost(&s.doc)
	if h := s.doc.Hold(op.LockID); proceed && h != nil {
		// An owner that comes back is heard before those that wait for its place.
		h.ExpiresAt = later(h.ExpiresAt, expiry(now, op.HoldTTL))
	}
	s.settle()
	if proceed {
		s.take(op)
	}
	return s.end()
}

// Renew is the specification of that operation. A part that is not there, or was revoked, is not
// renewed, and nothing else is.
func Renew(before engine.Document, op engine.Renew, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	if p := s.doc.Part(op.LockID, op.Part, op.Order); p != nil {
		p.ExpiresAt = expiry(now, p.TTL)
		h := s.doc.Hold(op.LockID)
		h.ExpiresAt = later(later(h.ExpiresAt, expiry(now, h.TTL)), p.ExpiresAt)
		h.RenewedAt = &s.now
	}
	s.settle()
	return s.end()
}

// Leave is the specification of that operation.
func Leave(before engine.Document, op engine.Leave, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	left := s.doc.Part(op.LockID, op.Part, op.Order) != nil
	s.doc.Parts = slices.DeleteFunc(s.doc.Parts, func(p engine.Part) bool {
		return p.LockID == op.LockID && p.Part == op.Part && p.Order == op.Order
	})
	others := slices.ContainsFunc(s.doc.Parts, func(p engine.Part) bool { return p.LockID == op.LockID && !p.Revoked })
	if h := s.doc.Hold(op.LockID); left && !others && h != nil && (op.Undo || !h.Keep) {
		s.drop(op.LockID, engine.HowReleased)
	}
	s.forget(func(w engine.Waiter) bool {
		return w.LockID == op.LockID && w.Part == op.Part && w.Order <= op.Order
	})
	s.remember(engine.Released{LockID: op.LockID, Part: &op.Part, Order: op.Order, Until: now.Add(ms(op.ReleasedTTL))},
		func(r engine.Released) bool { return r.Part != nil && *r.Part == op.Part && r.Order <= op.Order })
	s.settle()
	return s.end()
}

// Release is the specification of that operation.
func Release(before engine.Document, op engine.Release, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	if h := s.doc.Hold(op.LockID); h != nil && h.Order <= op.Order {
		s.drop(op.LockID, engine.HowReleased)
	}
	s.revoke(func(p engine.Part) bool { return p.LockID == op.LockID && p.Order <= op.Order },
		func(p engine.Part) bool { return op.Leaving != nil && p.Part == *op.Leaving })
	s.forget(func(w engine.Waiter) bool { return w.LockID == op.LockID && w.Order <= op.Order })
	s.remember(engine.Released{LockID: op.LockID, Order: op.Order, Until: now.Add(ms(op.ReleasedTTL))},
		func(r engine.Released) bool { return r.Order <= op.Order })
	s.settle()
	return s.end()
}

// take grants the request where it fits, or queues it where that is asked for.
func (s *state) take(op engine.Acquire) {
	h, own := s.doc.Hold(op.LockID), func(w engine.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part }
	p := s.doc.Part(op.LockID, op.Part, op.Order)
	retry := p != nil && engine.Covers(p.Mode, op.Mode)
	joins := h != nil && engine.Covers(s.mode(h), op.Mode)
	claimed := slices.ContainsFunc(s.doc.Claims, own)
	place := slices.IndexFunc(s.doc.Waiters, own)
	// An upgrade goes ahead of the queue: those who wait there wait for its own hold.
	first := claimed || h != nil || !slices.ContainsFunc(s.aheadOf(place), func(w engine.Waiter) bool { return w.Until == nil })
	mayTake := !op.Refresh || claimed || place >= 0 || h != nil
	switch {
	case retry:
		h.ExpiresAt = later(h.ExpiresAt, expiry(s.now, p.TTL))
		if expired(p.ExpiresAt, s.now) {
			p.ExpiresAt = expiry(s.now, p.TTL)
		}
	case joins, mayTake && first && s.fits(op.LockID, op.Mode, op.Limit):
		s.grant(op)
		s.forget(own)
	case op.Queue && !claimed:
		s.queue(op, place)
	}
}

func (s *state) aheadOf(place int) []engine.Waiter {
	if place < 0 {
		return s.doc.Waiters
	}
	return s.doc.Waiters[:place]
}

// grant makes or joins the hold, and makes the part.
func (s *state) grant(op engine.Acquire) {
	h := s.doc.Hold(op.LockID)
	older := func(p engine.Part) bool { return p.LockID == op.LockID && p.Part == op.Part && !p.Revoked }
	upgrade := h != nil && !engine.Covers(s.mode(h), op.Mode)
	if h == nil || upgrade || op.NewFence || slices.ContainsFunc(s.doc.Parts, older) {
		s.doc.Fence = max(s.doc.Fence+1, s.now.UnixMilli())
	}
	hold := engine.Hold{
		LockID: op.LockID, Owner: op.Owner, Host: op.Host, Comment: op.Comment, CreatedAt: s.now, Acquired: true,
		Granted: s.doc.Fence, Fence: s.doc.Fence, TTL: op.HoldTTL, ExpiresAt: expiry(s.now, op.HoldTTL), Limit: op.Limit,
	}
	mode := op.Mode
	if h != nil {
		fence := s.doc.Fence
		if !(upgrade || op.NewFence || slices.ContainsFunc(s.doc.Parts, older)) {
			fence = h.Fence
		}
		hold = *h
		hold.Fence = fence
		if op.Keep {
			hold.TTL = op.HoldTTL
		}
		if s.mode(h) == engine.Exclusive {
			mode = engine.Exclusive
		}
	}
	part := engine.Part{
		LockID: op.LockID, Part: op.Part, Order: op.Order, Mode: op.Mode, Fence: hold.Fence,
		TTL: op.TTL, ExpiresAt: expiry(s.now, op.TTL),
	}
	for _, w := range slices.Concat(s.doc.Claims, s.doc.Waiters) {
		if w.LockID == op.LockID && w.Part == op.Part {
			part.Since = &w.Since
			part.Granted = w.Granted
			if w.Granted == nil {
				part.Granted = &s.now
			}
		}
	}
	hold.Keep = hold.Keep || op.Keep
	hold.Order = max(hold.Order, op.Order)
	hold.Trace = op.Trace
	hold.ExpiresAt = later(hold.ExpiresAt, part.ExpiresAt)
	s.revoke(older, func(engine.Part) bool { return false })
	s.doc.Parts = append(s.doc.Parts, part)
	s.put(hold, mode)
	s.doc.Evicted = slices.DeleteFunc(s.doc.Evicted, func(e engine.Evicted) bool { return e.LockID == op.LockID })
}

// queue takes a place, or refreshes the one that stands at index place.
func (s *state) queue(op engine.Acquire, place int) {
	w := engine.Waiter{
		LockID: op.LockID, Part: op.Part, Order: op.Order, Mode: op.Mode, Limit: op.Limit, Owner: op.Owner,
		Seq: s.doc.Seq, Since: s.now, ExpiresAt: s.now.Add(ms(op.WaiterTTL)),
	}
	switch {
	case place >= 0:
		old := s.doc.Waiters[place]
		w.Seq, w.Since = old.Seq, old.Since
		s.doc.Waiters[place] = w
		s.doc.Last.Position = int64(place) + 1
	case op.Refresh || int64(len(s.doc.Waiters)) >= op.MaxWaiters:
	case s.doc.Hold(op.LockID) != nil: // an upgrade
		s.doc.Waiters = slices.Insert(s.doc.Waiters, 0, w)
		s.doc.Last.Position = 1
	default:
		s.doc.Waiters = append(s.doc.Waiters, w)
		s.doc.Last.Position = int64(len(s.doc.Waiters))
	}
}
