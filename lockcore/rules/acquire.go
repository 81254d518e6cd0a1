package rules

import (
	"cmp"
	"slices"
	"time"
)

// Apply acquires the resource, or queues.
func (op Acquire) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
	if label, other := s.doc.otherRun(op.LockID, op.Label, op.TakeOver); other {
		s.result.Outcome, s.result.Note = OtherRun, label
		return s.end()
	}
	s.takeOver(op.LockID, op.Label)
	s.barUndone(&op)
	if s.superseded(&op) {
		s.result.Outcome = Superseded
		return s.end()
	}
	s.grantOrQueue(&op)
	if granted := s.result.Outcome == Granted || s.result.Outcome == Joined; !granted && op.Persist {
		s.renewKept(op.LockID, false)
	}
	return s.end()
}

// superseded reports whether a release, a bar, a later request of the same part, or another call with
// the same order came first. The package documentation defines part, order, bar and call.
func (s *state) superseded(op *Acquire) bool {
	if _, overtaken := s.doc.SupersededBy(op.Request()); overtaken {
		return true
	}
	p := s.doc.Part(op.LockID, op.Part, op.Order)
	if op.Queued && p == nil && s.claim(op.LockID, op.Part) == nil {
		return !slices.ContainsFunc(s.doc.Waiters, func(w Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	}
	return p != nil && p.Alive(s.now) && p.ID != op.Call && p.ID != op.Upgrades
}

// isLost reports whether the lock ID has lost its hold, and the request must not acquire it again.
func (s *state) isLost(op *Acquire) bool {
	evicted := op.Persist && s.doc.LossEvidence(op.LockID, op.Label) != nil
	if op.Reacquire {
		return false
	}
	if s.holds(op.LockID) { // perhaps only because another run of the workflow has acquired it since the eviction
		return op.Label != "" && evicted
	}
	return op.Held || evicted
}

// grantOrQueue grants the request if it fits, and queues it otherwise. The cases are in the order of
// the rules in the package documentation.
func (s *state) grantOrQueue(op *Acquire) {
	claim := s.claim(op.LockID, op.Part)
	tombstone := s.doc.Tombstone(op.LockID, op.Part)
	index := slices.IndexFunc(s.doc.Waiters, func(w Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	// A lock ID that already holds, for example one that upgrades, goes ahead of the queue, because the
	// waiters there wait for its own hold. A request that is already queued is not granted here: the
	// write that frees the resource gives it a claim.
	ahead := s.holds(op.LockID) || s.doc.HeldByEnclosing(op.Party())
	next := claim != nil || ahead || ((!op.Queue || index < 0) && !slices.ContainsFunc(s.doc.Waiters, s.eligible))
	switch {
	case tombstone != nil:
		s.result.Outcome, s.result.Note = Deadlock, tombstone.Verdict
	case s.isLost(op):
		s.result.Outcome = Lost
	case op.Refresh && (!op.Queue || (claim == nil && index < 0) || (claim != nil && claim.Alive(s.now))):
		s.result.Outcome = Busy
	case op.Refresh:
		s.enqueue(op, index, true)
	case s.grantedBefore(op):
		s.result.Outcome = Again
	case claim == nil && index < 0 && s.tooLarge(ahead):
		s.result.Outcome = Full
	case s.covered(op.LockID, op.Mode) && s.doc.AllowsJoin(op.Party()):
		s.result.Outcome = Joined
		if op.Label != "" { // makes end evict expired entries, which must not be renewed any longer
			s.granted = op
		}
		s.grant(op)
	case next && s.fits(op.Party(), op.Room()):
		s.result.Outcome = Granted
		s.granted = op
		s.grant(op)
	case !op.Queue:
		s.result.Outcome = Busy
	default:
		s.enqueue(op, index, ahead || claim != nil)
	}
}

// tooLarge reports whether the document has no room for another entry or waiter. Lock IDs that hold
// have more room, because others wait for them.
func (s *state) tooLarge(holds bool) bool {
	if holds {
		return s.doc.Bytes() > MaxBytesOfHolders
	}
	return s.doc.Bytes() > MaxBytes
}

// grantedBefore reports whether the same call was granted before.
func (s *state) grantedBefore(op *Acquire) bool {
	if op.HoldOnly {
		k := s.doc.Kept(op.LockID)
		return k != nil && k.ID == op.Call && Covers(k.Mode, op.Mode)
	}
	p := s.doc.Part(op.LockID, op.Part, op.Order)
	return p != nil && p.ID == op.Call && p.Alive(s.now) && Covers(p.Mode, op.Mode)
}

// grant begins or joins the hold, and adds the part.
func (s *state) grant(op *Acquire) {
	hold := s.holdFor(op)
	part := Entry{
		ID: op.Call, LockID: op.LockID, Label: op.Label, Part: op.Part, Order: op.Order, Mode: hold.Mode, State: StateRunning,
		Fence: hold.Fence, FirstFence: hold.FirstFence, LeastFence: hold.LeastFence, Within: op.Within, Saga: op.Saga,
		TTL: op.TTL, ExpiresAt: expiry(s.now, op.TTL), Trace: op.Trace,
	}
	if !op.Persist {
		part.CreatedAt, part.Owner, part.Host, part.Comment, part.Limit = &s.now, hold.Owner, op.Host, op.Comment, op.Limit
		if old := s.upgraded(op); old != nil && old.CreatedAt != nil {
			part.CreatedAt = old.CreatedAt
		}
	}
	if c := s.claim(op.LockID, op.Part); c != nil {
		part.Since, part.ClaimedAt, part.Predecessor = c.Since, c.ClaimedAt, c.Predecessor
	}
	var made []Entry
	if op.Persist {
		made = append(made, s.kept(op, hold))
	}
	if !op.HoldOnly {
		made = append(made, part)
	}
	s.doc.Entries = append(s.replaced(op), made...)
	s.doc.Waiters = without(s.doc.Waiters, func(w *Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	if op.Persist {
		s.clearEvidence(op.LockID, op.Label)
	}
}

// holdFor returns the mode and the fences of the hold that the request begins or joins. A request
// in a stronger mode gives it to the whole hold.
func (s *state) holdFor(op *Acquire) Entry {
	hold := Entry{Mode: op.Mode, Owner: op.Owner, FirstFence: s.doc.HoldFence(op.LockID)}
	if op.Owner == op.LockID {
		hold.Owner = ""
	}
	again := false
	for i := range s.doc.Entries {
		e := &s.doc.Entries[i]
		if !e.BelongsTo(op.LockID) {
			continue
		}
		hold.Fence = max(hold.Fence, e.Fence)
		if e.Holds() {
			hold.LeastFence = max(hold.LeastFence, e.LeastFence)
			hold.Mode = Stronger(hold.Mode, e.Mode)
		}
		e.Mode = Stronger(e.Mode, op.Mode)
		again = again || (e.Part == op.Part && (e.State == StateRunning || (e.State == StateClaimed && !e.Forfeited(s.now))))
	}
	// The hold needs a new fence if it is new, if the request demands one, if a hold within this one got
	// a later fence, or if the same part runs again.
	if s.result.Outcome == Granted || op.NewFence || s.doc.Fence > hold.Fence || again {
		hold.Fence = s.nextFence()
		s.doc.Fence = hold.Fence
	}
	hold.FirstFence = cmp.Or(hold.FirstFence, hold.Fence)
	hold.LeastFence = cmp.Or(hold.LeastFence, hold.FirstFence)
	return hold
}

// nextFence returns a fence that is greater than every earlier one. Because fences are not less than
// the time in milliseconds, this holds even if the document was removed in between.
func (s *state) nextFence() int64 { return max(s.doc.Fence+1, s.now.UnixMilli()) }

// clearEvidence drops the evidence of a lock ID's losses. With a label it drops only those of that run.
func (s *state) clearEvidence(lockID, label string) {
	s.doc.Evidence = without(s.doc.Evidence, func(e *Evidence) bool {
		return e.LockID == lockID && (label == "" || (e.Label == label && e.To == ""))
	})
}

// upgraded returns the part's entry that the request makes exclusive, or nil.
func (s *state) upgraded(op *Acquire) *Entry {
	if p := s.doc.Part(op.LockID, op.Part, op.Order); p != nil && op.Upgrades != "" && p.ID == op.Upgrades {
		return p
	}
	return nil
}

// replaced returns the entries that stay, with the lock ID's own entries last. A grant replaces the part's
// claim, the kept entry, and the part's earlier request, which drains if it has not expired: it keeps
// others out until its lease ends.
func (s *state) replaced(op *Acquire) []Entry {
	var rest, own []Entry
	for _, e := range s.doc.Entries {
		mine := e.Part == op.Part
		switch {
		case !e.BelongsTo(op.LockID):
			rest = append(rest, e)
		case op.Persist && (e.State == StateKept || (!e.Holds() && !e.Alive(s.now))), mine && e.State == StateClaimed:
		case op.HoldOnly, !mine || e.State != StateRunning:
			own = append(own, e)
		case !e.Alive(s.now), op.Upgrades != "" && e.Order == op.Order:
		default:
			own = append(own, s.drain(e))
		}
	}
	return append(rest, own...)
}

// kept returns the kept entry of the hold, new or extended. It is the entry that outlives the parts.
func (s *state) kept(op *Acquire, hold Entry) Entry {
	k := Entry{
		ID: op.Call + "/k", LockID: op.LockID, Label: op.Label, State: StateKept, FirstFence: hold.FirstFence,
		FirstOrder: op.Order, CreatedAt: &s.now,
	}
	if op.HoldOnly {
		k.ID = op.Call
	}
	if was := s.doc.Kept(op.LockID); was != nil {
		k = *was
		k.Joined = true
	}
	ends := later(expiry(s.now, op.HoldTTL), expiry(s.now, op.TTL))
	if op.Within == "" || k.Within == "" {
		ends = later(k.ExpiresAt, ends)
	} // otherwise Leave.Keep may have given it a later end, which no longer counts
	k.ExpiresAt = ends
	k.Owner, k.Host, k.Comment = cmp.Or(k.Owner, hold.Owner), cmp.Or(k.Host, op.Host), cmp.Or(k.Comment, op.Comment)
	k.Limit, k.Within, k.Saga = cmp.Or(k.Limit, op.Limit), cmp.Or(k.Within, op.Within), cmp.Or(k.Saga, op.Saga)
	k.FirstOrder = min(k.FirstOrder, op.Order)
	k.Mode, k.Order, k.Fence, k.LeastFence = hold.Mode, max(k.Order, op.Order), hold.Fence, hold.LeastFence
	k.TTL, k.Trace = op.HoldTTL, op.Trace
	return k
}

// enqueue queues the request, or refreshes its waiter at the given index, which is negative if there
// is none.
func (s *state) enqueue(op *Acquire, index int, ahead bool) {
	if index < 0 && !ahead && int64(len(s.doc.Waiters)) >= op.MaxWaiters {
		s.result.Outcome = Full
		return
	}
	w := s.waiter(op)
	claim := s.claim(op.LockID, op.Part)
	switch {
	case index >= 0:
		was := s.doc.Waiters[index]
		w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead
		if op.Refresh {
			w.Hold, w.Saga, w.Owner = was.Hold, was.Saga, was.Owner
		}
		s.doc.Waiters[index] = w
	case ahead: // an upgrade, or a claim that has lapsed or no longer fits
		w.Ahead = true
		if claim != nil {
			w.Since, w.ClaimTTL = sinceOf(claim), claim.ClaimTTL
			if op.Refresh {
				w.Saga = claim.Saga
			}
			if !claim.Alive(s.now) {
				w.ClaimTTL = min(2*max(op.ClaimTTL, claim.ClaimTTL), op.LongestClaim())
			}
		}
		index = len(filter(s.doc.Waiters, func(w *Waiter) bool { return w.Ahead }))
		s.doc.Waiters = slices.Insert(s.doc.Waiters, index, w)
	default:
		index = len(s.doc.Waiters)
		s.doc.Waiters = append(s.doc.Waiters, w)
	}
	s.doc.Entries = without(s.doc.Entries, func(e *Entry) bool {
		return e.BelongsTo(op.LockID) && e.Part == op.Part && e.State == StateClaimed
	})
	s.result.Outcome = Queued
	s.result.Position = int64(index) + 1
}

// sinceOf returns the time at which a claim's request queued. It is missing only in damaged documents.
func sinceOf(claim *Entry) time.Time {
	if claim.Since == nil {
		return LongAgo
	}
	return *claim.Since
}

// waiter returns the waiter of a request that queues now.
func (s *state) waiter(op *Acquire) Waiter {
	w := Waiter{
		LockID: op.LockID, Label: op.Label, Within: op.Within, Saga: op.Saga, Part: op.Part, Order: op.Order, Mode: op.Mode, Limit: op.Limit,
		Since: s.now, ExpiresAt: s.now.Add(ms(op.WaiterTTL)), OverdueAt: s.now.Add(ms(op.OverdueAfter())), NeverVictim: op.NeverVictim,
	}
	if !op.Started.IsZero() {
		w.Started = &op.Started
	}
	if op.Mode == Exclusive {
		w.Limit = op.Room()
	}
	if op.Owner != op.LockID {
		w.Owner = op.Owner
	}
	if op.HoldOnly {
		w.Hold = &WaitingHold{ID: op.Call, TTL: op.HoldTTL, Host: op.Host, Comment: op.Comment, Trace: op.Trace, Reacquire: op.Reacquire}
	}
	return w
}
