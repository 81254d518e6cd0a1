package lockcoretest

import (
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// state is a document while one operation is applied to it.
type state struct {
	doc    engine.Document
	now    time.Time
	policy engine.Policy
	// attn is what the document's Attn will be.
	attn map[string]bool
	// asks is the request, if it is one, and granted the same if it was granted.
	asks, granted *engine.Acquire
	// left are the entries of a hold that was downgraded.
	left []engine.Entry
	// evidence is what this write adds to the evidence.
	evidence []engine.Evicted
}

// begin copies the document, counts the write, and drops the places that were not refreshed.
func begin(before engine.Document, resource string, policy engine.Policy, now time.Time) *state {
	d := clone(before)
	d.ID, d.At, d.Seq = resource, now, d.Seq+1
	d.Last = engine.Last{Outcome: engine.Granted, Ended: []engine.Entry{}, Expired: []engine.Entry{}}
	d.Waiters = slices.DeleteFunc(d.Waiters, func(w engine.Waiter) bool { return !w.ExpiresAt.After(now) })
	if d.EvidenceSince.IsZero() {
		d.EvidenceSince = now.Add(-ms(policy.Memory()))
	}
	return &state{doc: d, now: now, policy: policy, attn: map[string]bool{}}
}

// end settles the document and completes it.
func (s *state) end() engine.Document {
	idle := s.idleAt() // of what stood before: claims end sooner than any retention
	for _, e := range s.doc.Entries {
		if e.State != engine.StateRunning {
			s.attn[e.State] = true
		}
	}
	s.settle()
	if len(s.doc.Waiters) > 0 {
		s.attn[s.doc.Waiters[0].Mode] = true
	}
	s.doc.Last.Evidence = s.asks != nil && s.doc.EvictedRecord(s.asks.LockID, s.asks.Label) != nil
	s.doc.Attn = slices.AppendSeq([]string{}, maps.Keys(s.attn))
	slices.Sort(s.doc.Attn)
	s.addEvidence()
	s.doc.Last.Length = int64(len(s.doc.Waiters))
	s.doc.IdleAt = idle
	return clone(s.doc)
}

// settle claims the resource for those who are next in the queue, as many as it has room for: for
// the first, and for those right behind it with the same limit, so many as that leaves room for,
// and at most engine.SettleMost in one write. Waiters that are overdue, and tombstones, are passed
// over.
func (s *state) settle() {
	waiting := pick(s.doc.Waiters, s.awake)
	k := s.served(waiting)
	switch {
	case s.granted != nil:
		to := engine.Party{LockID: s.granted.LockID, Limit: s.granted.Room(), Within: s.granted.Within}
		if s.doc.Last.Outcome == engine.Joined { // the limit is for new holds, and the hold's mode counts
			to.Limit = engine.Unlimited
			if s.covered(to.LockID, engine.Exclusive) {
				to.Limit = 1
			}
		}
		s.displace(waiting, k, to, "")
	case k > 0:
		s.displace(waiting, k, engine.Party{LockID: waiting[0].LockID, Limit: limitOf(&waiting[0])}, waiting[0].Within)
	}
	for _, w := range waiting[:k] {
		s.attn[w.Mode] = true
		s.doc.Entries = append(s.doc.Entries, engine.Entry{
			LockID: w.LockID, Label: w.Label, Within: w.Within, Part: w.Part, Order: w.Order, Mode: w.Mode, Limit: w.Limit, Owner: w.Owner, State: engine.StateClaimed,
			ExpiresAt: s.now.Add(ms(max(s.policy.ClaimTTL, w.ClaimTTL))), ClaimTTL: w.ClaimTTL,
			Since: &w.Since, ClaimedAt: &s.now, Place: &w.ExpiresAt, After: s.after(),
		})
	}
	s.doc.Waiters = slices.DeleteFunc(s.doc.Waiters, func(w engine.Waiter) bool { return slices.Contains(waiting[:k], w) })
}

// served is how many of those who wait, who are not passed over, are granted claims now.
func (s *state) served(waiting []engine.Waiter) int {
	// If its own lock ID holds exclusively the head joins when it comes, and those behind it must
	// not go with it.
	if len(waiting) == 0 {
		return 0
	}
	head := &waiting[0]
	beside := pick(s.doc.Entries, func(e engine.Entry) bool {
		return alive(e, s.now) && (head.Within == "" || e.LockID != head.Within || e.State != engine.StateKept)
	})
	if slices.ContainsFunc(beside, func(e engine.Entry) bool { return e.Mode == engine.Exclusive }) {
		return 0
	}
	limit := limitOf(head)
	// Nor if it held exclusively, and may come back before they do: it needs the room for that.
	if s.covered(head.LockID, engine.Exclusive) {
		limit = 1
	}
	room := max(0, limit-others(beside, head.LockID))
	if head.Within != "" { // it alone lives within what is kept
		room = min(room, 1)
	}
	k := 0
	for k < len(waiting) && k < int(min(room, engine.SettleMost)) && waiting[k].Limit == head.Limit {
		k++
	}
	return k
}

// others counts the other lock IDs among entries.
func others(entries []engine.Entry, lockID string) int64 {
	ids := map[string]bool{}
	for _, e := range entries {
		if e.LockID != lockID {
			ids[e.LockID] = true
		}
	}
	return int64(len(ids))
}

// awake reports whether a waiter may be granted a claim.
func (s *state) awake(w engine.Waiter) bool { return w.Waits(s.now) && !w.Overdue(s.now) }

// after is the hold that this write ended, or whose part, cut off, leaves with it, of several the
// first; or else the one that it downgraded, or whose room it gave away. It is what a waiter who is
// granted a claim now waited for last.
func (s *state) after() *engine.Ended {
	for _, e := range slices.Concat(s.doc.Last.Ended, s.left, s.doc.Last.Expired) {
		if e.CreatedAt != nil || e.State == engine.StateDraining {
			return &engine.Ended{LockID: e.LockID, Fence: e.FirstFence, Owner: e.Owner, Trace: e.Trace}
		}
	}
	return nil
}

func limitOf(w *engine.Waiter) int64 {
	if w.Limit == 0 {
		return engine.Unlimited
	}
	return w.Limit
}

// fits reports whether there is room for a party: no other that is alive holds exclusively, and fewer others than the
// limit are alive. An exclusive request is one with room for itself alone.
func (s *state) fits(p engine.Party, limit int64) bool {
	p.Mode, p.Limit = engine.Shared, limit
	return s.doc.Admits(p)
}

// displace ends the expired holds whose room is given to a lock ID, and to those that are served
// with it: the exclusive ones, and all others' if they would exceed the least of the limits if they
// came back, or are a crowd.
//
// What a lock ID keeps, around the party's, goes on. Its parts that have expired go without evidence when the party is let
// in: the hold is not lost. Until then, while a claim stands, they are spared.
func (s *state) displace(waiting []engine.Waiter, served int, to engine.Party, spared string) {
	around := ""
	if s.doc.Surrounds(to) {
		around = to.Within
	}
	lockID, limit := to.LockID, to.Limit
	if served > 0 {
		limit = min(limit, limitOf(&waiting[0]))
	}
	others, live := map[string]bool{}, map[string]bool{}
	for _, e := range s.doc.Entries {
		if e.LockID != lockID {
			others[e.LockID] = true
			live[e.LockID] = live[e.LockID] || alive(e, s.now)
		}
	}
	for i, w := range waiting {
		live[w.LockID] = live[w.LockID] || i < served
		live[w.Within] = live[w.Within] || i < served
	}
	for _, w := range waiting[:served] {
		others[w.LockID] = true
	}
	others[lockID] = true
	crowded := len(others) > int(min(limit, engine.Crowd))
	gone := func(e engine.Entry) bool {
		if around != "" && e.LockID == around {
			return e.State == engine.StateRunning && !alive(e, s.now)
		}
		return e.LockID != lockID && (spared == "" || e.LockID != spared) && e.Holds() && !alive(e, s.now) && (e.Mode == engine.Exclusive || (crowded && !live[e.LockID]))
	}
	s.expire(gone, engine.Evicted{By: lockID})
	if around != "" {
		s.evidence = pick(s.evidence, func(e engine.Evicted) bool { return e.LockID != around })
	}
}

// expire ends holds, tells of them, and leaves records like this one.
func (s *state) expire(which func(engine.Entry) bool, record engine.Evicted) {
	gone := func(e engine.Entry) bool { return e.Holds() && which(e) }
	for _, e := range pick(s.doc.Entries, gone) {
		s.doc.Last.Expired = append(s.doc.Last.Expired, e)
		record.LockID, record.Label, record.Fence, record.At = e.LockID, e.Label, e.FirstFence, s.now
		s.evidence = append(s.evidence, record)
	}
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, gone)
}

// addEvidence adds what this write leaves, and forgets the oldest of what there was before if that
// was too much, which moves EvidenceSince on.
func (s *state) addEvidence() {
	if len(s.evidence) == 0 && len(s.doc.Last.Expired) == 0 {
		return
	}
	if over := len(s.doc.Evicted) - engine.MaxEvicted; over > 0 {
		s.doc.EvidenceSince = later(s.doc.EvidenceSince, s.doc.Evicted[over-1].At)
	}
	s.doc.Evicted = append(last(s.doc.Evicted, engine.MaxEvicted), s.evidence...)
}

// idleAt is the end of the last promise, rounded up to engine.IdleGrain.
func (s *state) idleAt() time.Time {
	at := s.now
	for _, e := range s.doc.Entries {
		at = later(at, e.ExpiresAt)
	}
	grain := engine.IdleGrain.Milliseconds()
	return time.UnixMilli((at.UnixMilli()/grain + 1) * grain).UTC()
}

// heard extends what the request's lock ID keeps, if the request does so: each request is a sign of
// life. Its entries come last.
func (s *state) heard(lockID string, keeps, handsOver bool) {
	own := pick(s.doc.Entries, func(e engine.Entry) bool { return e.LockID == lockID })
	for i := range own {
		if e := &own[i]; keeps && e.State == engine.StateKept {
			e.ExpiresAt = later(e.ExpiresAt, expiry(s.now, e.TTL))
			e.HandedOver = e.HandedOver || handsOver
		}
	}
	s.doc.Entries = append(pick(s.doc.Entries, func(e engine.Entry) bool { return e.LockID != lockID }), own...)
}

func (s *state) holding(lockID string) bool {
	return s.some(func(e *engine.Entry) bool { return e.LockID == lockID && e.Holds() })
}

// covered reports whether the lock ID holds in this mode or a stronger one.
func (s *state) covered(lockID, mode string) bool {
	return s.some(func(e *engine.Entry) bool { return e.LockID == lockID && e.Holds() && engine.Covers(e.Mode, mode) })
}

func (s *state) some(which func(*engine.Entry) bool) bool {
	for i := range s.doc.Entries {
		if which(&s.doc.Entries[i]) {
			return true
		}
	}
	return false
}

// drop takes entries away. What is dead goes with them: draining parts whose time is up, and claims
// whose place is given up.
func (s *state) drop(which func(engine.Entry) bool) {
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, func(e engine.Entry) bool {
		return which(e) || e.GivenUp(s.now) || (e.State == engine.StateDraining && !alive(e, s.now))
	})
}

// ended tells of what the request ended.
func (s *state) ended(entries ...engine.Entry) {
	s.doc.Last.Ended = append(s.doc.Last.Ended, entries...)
}

// drained is a part that is cut off: it keeps others out as long as it may trust, which is until its promise ends. A
// promise without end is trusted for EndlessTTL after it was confirmed. One with an end is never shortened, although now may
// lie before the time of the grant: hence twice the TTL.
func (s *state) drained(e engine.Entry) engine.Entry {
	e.State = engine.StateDraining
	if end := s.now.Add(2*ms(e.TTL) + engine.EndlessTTL); end.Before(e.ExpiresAt) {
		e.ExpiresAt = end
	}
	return e
}

// forget takes places away, and tells of those among places.
func (s *state) forget(places []engine.Waiter, which func(engine.Waiter) bool) {
	for _, w := range pick(places, which) {
		s.ended(place(w))
	}
	s.doc.Waiters = slices.DeleteFunc(s.doc.Waiters, which)
}

// place is a place in the queue as an entry without a state.
func place(w engine.Waiter) engine.Entry {
	return engine.Entry{
		LockID: w.LockID, Label: w.Label, Within: w.Within, Part: w.Part, Order: w.Order, Mode: w.Mode, Limit: w.Limit, Owner: w.Owner,
		Since: &w.Since, ExpiresAt: w.ExpiresAt, ClaimTTL: w.ClaimTTL, Verdict: w.Verdict,
	}
}

// claim is the claim of a part, or nil. One that has lapsed, and whose place is over too, is none.
func (s *state) claim(lockID, part string) *engine.Entry {
	if c := s.doc.Claim(lockID, part); c != nil && !c.GivenUp(s.now) {
		return c
	}
	return nil
}

// remember appends a record, and drops the oldest if there are too many.
func (s *state) remember(r engine.Released) {
	s.doc.Released = last(append(s.doc.Released, r), engine.MaxReleased)
}
