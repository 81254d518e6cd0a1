package lockcoretest

import (
	"cmp"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Acquire is the specification of that operation: the document before, the request and the time give the
// document after. Its outcome stands in Last.
func Acquire(before engine.Document, op engine.Acquire, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	s.asks = &op
	label, other := otherRun(&s.doc, &op)
	switch {
	case late(&op, now):
		s.doc.Last.Outcome = engine.Late
	case other:
		s.doc.Last.Outcome, s.doc.Last.Note = engine.OtherRun, label
	default:
		s.speaks(op)
		s.enterInOrder(op)
	}
	return s.end()
}

// enterInOrder refuses what a later request overtook.
func (s *state) enterInOrder(op engine.Acquire) {
	if _, yes := s.doc.Overtaker(op.LockID, op.Label, op.Part, op.Order); yes {
		s.doc.Last.Outcome = engine.Superseded
		return
	}
	s.enter(op)
	if made := s.doc.Last.Outcome == engine.Granted || s.doc.Last.Outcome == engine.Joined; !made && (op.Persist || op.Queue) {
		s.heard(op.LockID, op.Persist, op.HandOver)
	}
}

// Renew is the specification of that operation. A part that is not there, or drains, is not renewed, and nothing
// else is.
func Renew(before engine.Document, op engine.Renew, now time.Time) engine.Document {
	s := begin(before, op.Resource, op.Policy, now)
	s.doc.Last.Outcome = engine.Lost
	p := s.doc.Part(op.LockID, op.Part, op.Order)
	switch {
	case p == nil:
	case op.TTL > 0 && !alive(*p, s.now):
		s.doc.Last.Outcome = engine.Superseded
	default:
		s.doc.Last.Outcome = engine.Granted
		if op.Downgrade {
			s.left = pick(s.doc.Entries, func(e engine.Entry) bool { return e.LockID == op.LockID && e.Mode == engine.Exclusive })
			s.downgrade(op)
		}
		p.ExpiresAt = later(p.ExpiresAt, expiry(now, p.TTL))
		if op.TTL > 0 {
			p.TTL, p.ExpiresAt = op.TTL, expiry(now, op.TTL)
		}
		p.RenewedAt = &s.now
		s.heard(op.LockID, true, false)
	}
	return s.end()
}

// Extend is the specification of a batch of renewals on one document: all of ops, or if one of them is lost
// none. It tells whether they were extended.
func Extend(before engine.Document, ops []engine.Renew, now time.Time) (engine.Document, bool) {
	s := begin(before, before.ID, engine.Policy{}, now)
	for _, op := range ops {
		if s.doc.Part(op.LockID, op.Part, op.Order) == nil {
			return before, false
		}
	}
	for i := range s.doc.Entries {
		e := &s.doc.Entries[i]
		named := slices.ContainsFunc(ops, func(op engine.Renew) bool {
			return e.LockID == op.LockID && (e.State == engine.StateKept || (e.State == engine.StateRunning && e.Part == op.Part && e.Order == op.Order))
		})
		if named {
			e.ExpiresAt = later(e.ExpiresAt, expiry(now, e.TTL))
			e.RenewedAt = &s.now
		}
	}
	s.doc.Waiters, s.doc.Last, s.doc.IdleAt = clone(before).Waiters, clone(before).Last, s.idleAt()
	return s.doc, true
}

// downgrade makes the hold shared, if it has no other part.
func (s *state) downgrade(op engine.Renew) {
	own := func(e *engine.Entry) bool { return e.LockID == op.LockID && e.Holds() }
	if s.some(func(e *engine.Entry) bool { return own(e) && e.State == engine.StateRunning && e.Part != op.Part }) {
		return
	}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; own(e) {
			e.Mode = engine.Shared
		}
	}
}

// lost reports whether op finds that its lock ID lost the hold.
func (s *state) lost(op engine.Acquire) bool {
	evicted := op.Persist && s.doc.EvictedRecord(op.LockID, op.Label) != nil
	if op.Reacquire {
		return false
	}
	if s.holding(op.LockID) { // another run of the party may have taken the lock since
		return op.Label != "" && evicted
	}
	return op.Held || evicted
}

// enter grants the request if it fits, or queues it if that is asked for.
func (s *state) enter(op engine.Acquire) {
	holding := s.holding(op.LockID)
	part := s.doc.Part(op.LockID, op.Part, op.Order)
	claim := s.claim(op.LockID, op.Part)
	tombstone := s.doc.Tombstone(op.LockID, op.Part)
	place := slices.IndexFunc(s.doc.Waiters, func(w engine.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	// An upgrade goes ahead of the queue: those who wait there wait for its own hold. A request that has a
	// place gets its claim when its turn has come, in whichever write that is; and so does one that
	// was passed over, which refreshes its place.
	ahead := holding || s.doc.Surrounds(op.Party())
	turn := claim != nil || ahead || ((!op.Queue || place < 0) && !slices.ContainsFunc(s.doc.Waiters, s.awake))
	switch {
	case tombstone != nil:
		s.doc.Last.Outcome, s.doc.Last.Note = engine.Deadlock, tombstone.Verdict
	case s.lost(op):
		s.doc.Last.Outcome = engine.Lost
	case op.Refresh && (!op.Queue || (claim == nil && place < 0) || (claim != nil && alive(*claim, s.now))):
		s.doc.Last.Outcome = engine.Busy
	case op.Refresh:
		s.place(op, place, true)
	case part != nil && alive(*part, s.now) && engine.Covers(part.Mode, op.Mode):
		s.doc.Last.Outcome = engine.Again
	case s.covered(op.LockID, op.Mode) && s.doc.FitsBeside(op.Party()):
		s.doc.Last.Outcome = engine.Joined
		if op.Label != "" { // what has expired beside it must not come back
			s.granted = &op
		}
		s.grant(op)
	case turn && s.fits(op.Party(), op.Room()):
		s.doc.Last.Outcome = engine.Granted
		s.granted = &op
		s.grant(op)
	case !op.Queue:
		s.doc.Last.Outcome = engine.Busy
	default:
		s.place(op, place, ahead || claim != nil)
	}
}

// place queues a request, or refreshes its place, the index of which is not negative then.
func (s *state) place(op engine.Acquire, place int, ahead bool) {
	if place < 0 && !ahead && int64(len(s.doc.Waiters)) >= op.MaxWaiters {
		s.doc.Last.Outcome = engine.Full
		return
	}
	s.queue(op, place, ahead)
	s.doc.Last.Outcome = engine.Queued
}

// grant makes or joins the hold, and makes the part.
func (s *state) grant(op engine.Acquire) {
	mine := func(e *engine.Entry, state string) bool {
		return e.LockID == op.LockID && e.Part == op.Part && e.State == state
	}
	first := s.doc.HoldFence(op.LockID)
	again := func(e *engine.Entry) bool {
		return mine(e, engine.StateRunning) || (mine(e, engine.StateClaimed) && !e.GivenUp(s.now))
	}
	fence, mode := int64(0), op.Mode
	for _, e := range s.doc.Entries {
		if e.LockID != op.LockID {
			continue
		}
		fence = max(fence, e.Fence)
		if e.Holds() && e.Mode == engine.Exclusive {
			mode = engine.Exclusive
		}
	}
	if op.Mode == engine.Exclusive { // an upgrade is one of the whole hold
		for i := range s.doc.Entries {
			if e := &s.doc.Entries[i]; e.LockID == op.LockID {
				e.Mode = op.Mode
			}
		}
	}
	// A newer fence than the hold's was given to what lives within the hold.
	if s.doc.Last.Outcome == engine.Granted || op.NewFence || s.doc.Fence > fence || s.some(again) {
		s.doc.Fence = max(s.doc.Fence+1, s.now.UnixMilli())
		fence = s.doc.Fence
	}
	if op.Owner == op.LockID {
		op.Owner = ""
	}
	if first == 0 {
		first = fence
	}
	told := engine.Entry{Label: op.Label, FirstFence: first, CreatedAt: &s.now, Owner: op.Owner, Host: op.Host, Comment: op.Comment, Limit: op.Limit, Trace: op.Trace}
	part := told
	if op.Persist {
		part = engine.Entry{Label: op.Label, FirstFence: first, Trace: op.Trace}
	} else if old := s.converted(op); old != nil && old.CreatedAt != nil {
		part.CreatedAt = old.CreatedAt
	}
	part.LockID, part.Part, part.Order, part.Mode, part.State = op.LockID, op.Part, op.Order, mode, engine.StateRunning
	part.Fence, part.TTL, part.ExpiresAt = fence, op.TTL, expiry(s.now, op.TTL)
	if c := s.claim(op.LockID, op.Part); c != nil {
		part.Since, part.ClaimedAt, part.After = c.Since, c.ClaimedAt, c.After
	}
	entries := []engine.Entry{part}
	if op.Persist {
		entries = []engine.Entry{s.kept(op, told, mode, fence), part}
	}
	s.doc.Entries = append(s.replaced(op), entries...)
	s.doc.Waiters = slices.DeleteFunc(s.doc.Waiters, func(w engine.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	if op.Persist {
		s.forgive(op.LockID, op.Label)
	}
}

// forgive drops the evidence of a party's loss. That another run replaced one of its runs stays.
func (s *state) forgive(lockID, label string) {
	s.doc.Evicted = slices.DeleteFunc(s.doc.Evicted, func(e engine.Evicted) bool {
		return e.LockID == lockID && (label == "" || (e.Label == label && e.To == ""))
	})
}

// converted is the part's own entry that the request strengthens, or nil.
func (s *state) converted(op engine.Acquire) *engine.Entry {
	if op.Converts == 0 {
		return nil
	}
	return s.doc.Part(op.LockID, op.Part, op.Converts)
}

// replaced is what is held without what a grant replaces: the part's claim, its earlier request,
// which drains if it has not expired, and the kept entry. The own entries come last.
func (s *state) replaced(op engine.Acquire) []engine.Entry {
	mine := func(e *engine.Entry, state string) bool {
		return e.LockID == op.LockID && e.Part == op.Part && e.State == state
	}
	var rest, own []engine.Entry
	for _, e := range s.doc.Entries {
		switch {
		case e.LockID != op.LockID:
			rest = append(rest, e)
		case op.Persist && (e.State == engine.StateKept || (!e.Holds() && !alive(e, s.now))), mine(&e, engine.StateClaimed):
		case mine(&e, engine.StateRunning) && ((op.Converts > 0 && e.Order == op.Converts) || !alive(e, s.now)):
		case mine(&e, engine.StateRunning):
			own = append(own, s.drained(e))
		default:
			own = append(own, e)
		}
	}
	return append(rest, own...)
}

// kept is the entry of a hold that stands without parts, made or extended.
func (s *state) kept(op engine.Acquire, told engine.Entry, mode string, fence int64) engine.Entry {
	k := told
	k.LockID, k.State, k.FirstOrder, k.Within = op.LockID, engine.StateKept, op.Order, op.Within
	for _, e := range s.doc.Entries {
		if e.LockID == op.LockID && e.State == engine.StateKept {
			k, k.Joined = e, true
			// What the entry lacks is told now.
			k.Limit, k.Within = cmp.Or(k.Limit, told.Limit), cmp.Or(k.Within, op.Within)
			k.Owner, k.Host, k.Comment = cmp.Or(k.Owner, told.Owner), cmp.Or(k.Host, told.Host), cmp.Or(k.Comment, told.Comment)
		}
	}
	k.ExpiresAt = later(k.ExpiresAt, later(expiry(s.now, op.HoldTTL), expiry(s.now, op.TTL)))
	k.FirstOrder = min(k.FirstOrder, op.Order)
	k.Mode, k.Order, k.Fence, k.TTL, k.Trace = mode, max(k.Order, op.Order), fence, op.HoldTTL, op.Trace
	return k
}

// queue takes a place, or refreshes the one that stands at index place.
func (s *state) queue(op engine.Acquire, place int, ahead bool) {
	w := engine.Waiter{
		LockID: op.LockID, Label: op.Label, Within: op.Within, Part: op.Part, Order: op.Order, Mode: op.Mode, Limit: op.Limit,
		Since: s.now, ExpiresAt: s.now.Add(ms(op.WaiterTTL)), OverdueAt: s.now.Add(ms(op.Patience())), NeverVictim: op.NeverVictim,
	}
	if !op.Started.IsZero() {
		w.Started = &op.Started
	}
	if op.Mode == engine.Exclusive {
		w.Limit = op.Room()
	}
	if op.Owner != op.LockID {
		w.Owner = op.Owner
	}
	claim := s.claim(op.LockID, op.Part)
	switch {
	case place >= 0:
		was := s.doc.Waiters[place]
		w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead
		s.doc.Waiters[place] = w
	case ahead: // an upgrade; or one that slept through its claim, or for which there is no room any more under its limit
		w.Ahead = true
		if claim != nil {
			w.Since, w.ClaimTTL = *claim.Since, claim.ClaimTTL
			if !alive(*claim, s.now) {
				w.ClaimTTL = min(2*max(op.ClaimTTL, claim.ClaimTTL), op.LongestClaim())
			}
		}
		place = len(pick(s.doc.Waiters, func(w engine.Waiter) bool { return w.Ahead }))
		s.doc.Waiters = slices.Insert(s.doc.Waiters, place, w)
	default:
		place = len(s.doc.Waiters)
		s.doc.Waiters = append(s.doc.Waiters, w)
	}
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, func(e engine.Entry) bool {
		return e.LockID == op.LockID && e.Part == op.Part && e.State == engine.StateClaimed
	})
	s.doc.Last.Position = int64(place) + 1
}
