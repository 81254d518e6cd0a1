package rules

import (
	"slices"
	"time"
)

// Apply renews the part. If the part is missing or drains, nothing is renewed.
func (op Renew) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	p := s.doc.Part(op.LockID, op.Part, op.Order)
	switch {
	case p == nil:
		s.result.Outcome = Lost
	case op.TTL > 0 && !p.Alive(s.now):
		s.result.Outcome = Superseded
	default:
		if op.Downgrade {
			s.downgrade(op.LockID, op.Part)
		}
		p.ExpiresAt = later(p.ExpiresAt, expiry(now, p.TTL))
		if op.TTL > 0 {
			p.TTL, p.ExpiresAt = op.TTL, expiry(now, op.TTL)
		}
		p.RenewedAt = &s.now
		s.renewKept(op.LockID, false)
	}
	return s.end()
}

// downgrade makes a hold shared, unless it has another part.
func (s *state) downgrade(lockID, part string) {
	own := func(e *Entry) bool { return e.BelongsTo(lockID) && e.Holds() }
	if s.anyEntry(func(e *Entry) bool { return own(e) && e.State == StateRunning && e.Part != part }) {
		return
	}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; own(e) && e.Mode == Exclusive {
			s.downgraded = append(s.downgraded, *e)
			e.Mode = Shared
		}
	}
}

// Apply ends the part, its claim and its waiter.
func (op Leave) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	own := func(e *Entry) bool {
		return e.LockID == op.LockID && (!e.CutOff || op.Label != "") && e.Part == op.Part && e.State != StateKept
	}
	made := func(e *Entry) bool { return op.Call == "" || e.ID == op.Call || e.ID == drainingID(op.Call) }
	left := s.anyEntry(func(e *Entry) bool { return own(e) && e.State == StateRunning && e.Order == op.Order && made(e) })
	// With a call ID, an earlier request of the part stays queued.
	asked := func(order int64) bool { return order == op.Order || (op.Call == "" && order < op.Order) }
	goes := func(e *Entry) bool {
		if e.State == StateClaimed {
			return own(e) && asked(e.Order)
		}
		return own(e) && e.Order == op.Order && !op.QueueOnly && made(e)
	}
	s.endEntries(goes)
	var queue []Waiter
	if before != nil {
		queue = before.Waiters
	}
	s.removeWaiters(queue, func(w *Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part && asked(w.Order) })
	if op.Undo {
		s.takeBack(&op, left)
	}
	if k := s.doc.Kept(op.LockID); op.Keep && left && k != nil && k.Within != "" {
		k.TTL, k.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)
	}
	return s.end()
}

// takeBack ends the kept hold that the request began, unless another request has joined it.
func (s *state) takeBack(op *Leave, left bool) {
	if s.anyEntry(func(e *Entry) bool { return e.BelongsTo(op.LockID) && e.State == StateRunning }) {
		return
	}
	s.endEntries(func(e *Entry) bool {
		return e.BelongsTo(op.LockID) && e.State == StateKept && !e.Joined && (left || (op.Call != "" && e.ID == op.Call))
	})
}

// endEntries ends the matching entries.
func (s *state) endEntries(which func(*Entry) bool) {
	s.recordEnded(filter(s.doc.Entries, which)...)
	s.doc.Entries = without(s.doc.Entries, which)
	s.dropDead()
}

// Apply ends the upgrade's waiter and claim. If the upgrade was granted, the part is shared again, under
// its earlier ID.
func (op UndoUpgrade) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	if p := s.doc.Part(op.LockID, op.Part, op.Order); p != nil && p.ID == op.Call {
		s.downgrade(op.LockID, op.Part)
		p.ID = op.Upgrades
	}
	s.endEntries(func(e *Entry) bool {
		return e.BelongsTo(op.LockID) && e.Part == op.Part && e.State == StateClaimed && e.Order <= op.Order
	})
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part && w.Order <= op.Order })
	return s.end()
}

// Apply ends the hold. Parts that may still run drain.
func (op Release) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	var draining []Entry
	for _, e := range s.doc.Entries {
		if !op.names(&e) {
			continue
		}
		holds, cutOff := e.Holds() && e.CreatedAt != nil, op.Now && e.State == StateDraining
		lost := Evidence{LockID: e.LockID, Label: e.Label, Fence: e.FirstFence, At: s.now, Reason: op.Reason}
		if op.Force && holds {
			s.evidence = append(s.evidence, lost)
		}
		if op.Force && (holds || cutOff) && !slices.Contains(s.doc.Forced, lost) { // a hold that is not kept has an entry for each part
			s.doc.Forced = tail(append(s.doc.Forced, lost), MaxForced)
		}
		if !op.stopped(&e) && (e.State == StateDraining || e.State == StateRunning) {
			draining = append(draining, s.drain(e))
		}
	}
	s.recordEnded(filter(s.doc.Entries, func(e *Entry) bool { return op.names(e) && e.State != StateDraining })...)
	s.doc.Entries = append(without(s.doc.Entries, op.names), draining...)
	s.dropDead()
	if op.FirstFence == 0 {
		var queue []Waiter
		if before != nil {
			queue = before.Waiters
		}
		s.removeWaiters(queue, func(w *Waiter) bool {
			return w.LockID == op.LockID && (op.Label == "" || w.Label == op.Label) && w.Order <= op.Order
		})
		s.recordRelease(&op)
	}
	return s.end()
}

// names reports whether the release ends an entry.
func (op *Release) names(e *Entry) bool {
	switch {
	case op.Force:
		return e.LockID == op.LockID && e.FirstFence == op.FirstFence
	case !e.BelongsTo(op.LockID) || (op.Label != "" && e.Label != op.Label):
		return false
	case op.FirstFence > 0:
		return e.FirstFence == op.FirstFence
	}
	return e.Order <= op.Order
}

// stopped reports whether a part is known to have stopped.
func (op *Release) stopped(e *Entry) bool {
	return op.Now || (op.Leaving != nil && e.Part == *op.Leaving && e.Order == op.Order)
}

// recordRelease records the order up to which everything is released. A release that is repeated keeps
// the first record. A release of plain requests records nothing, because the record would refuse every
// later plain request; it also keeps the evidence of a loss, for its own repetition.
func (s *state) recordRelease(op *Release) {
	if plain(op.Label, op.Order) {
		return
	}
	o := ReleaseRecord{LockID: op.LockID, Label: op.Label, Order: op.Order}
	if was := s.doc.releaseRecord(op.LockID, op.Label); was != nil {
		if was.Order >= op.Order {
			return
		}
		s.doc.Releases = without(s.doc.Releases, func(old *ReleaseRecord) bool { return old.LockID == op.LockID && old.Label == op.Label })
	}
	if o.Lost = s.doc.LossEvidence(op.LockID, op.Label) != nil; o.Lost {
		s.clearEvidence(op.LockID, op.Label)
	}
	s.doc.Releases = tail(append(slices.Clone(s.doc.Releases), o), MaxReleases)
}

// Apply turns the waiter into a tombstone.
func (op Withdraw) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	s.result.Outcome = Lost
	for i := range s.doc.Waiters {
		if w := &s.doc.Waiters[i]; w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order && w.Verdict == "" {
			s.result.Outcome = Granted
			s.recordEnded(asEntry(w))
			w.Verdict, w.OverdueAt = op.Reason, LongAgo
		}
	}
	return s.end()
}

// Apply settles the document.
func (op Settle) Apply(before *Document, now time.Time) (*Document, Result) {
	return begin(before, op.Resource, op.Policy, now).end()
}
