package rules

import (
	"cmp"
	"slices"
	"time"
)

// Acquire requests the resource. All times are in milliseconds; a TTL of 0 has no end.
type Acquire struct {
	Resource string
	// Call is the random ID of the call. An operation that is repeated with the same ID gets the same
	// answer. Another call with the same part and order is superseded.
	Call string
	Caller
	// TakeOver is a run that the request's run may replace, even if that run's hold has expired.
	TakeOver     string
	Mode         string
	Limit        int64
	TTL, HoldTTL int64
	// Keep keeps the hold for HoldTTL after its last part. HoldOnly, with Keep, requests the hold
	// without a part; a waiter is then granted the hold at once, without a claim.
	Keep, HoldOnly bool
	// HeldSince, unless it is 0, is an order of the same run by which the lock ID must have kept the
	// resource, and since: otherwise it is lost. Reacquire permits the request to acquire again what was
	// lost. NewFence draws a new fence even if the request joins. Queue queues the request if it is busy,
	// or refreshes its position in the queue.
	HeldSince                  int64
	Reacquire, NewFence, Queue bool
	// LostSince is as in Verify: from this time on, losses of any run of the lock ID count like its own.
	LostSince time.Time
	// Queued is set if the request has queued before. If it is then neither queued nor granted, another
	// operation has ended it, and it is superseded.
	Queued bool
	// Upgrades is the ID of the part's shared entry, which has the same order. The request adds an
	// exclusive entry to the part. If the shared one is missing, it is lost.
	Upgrades string
	// Refresh refreshes the position in the queue without granting anything to the request. A lapsed
	// claim becomes a waiter at the head again. If there is neither a waiter nor a lapsed claim, or
	// without Queue, the outcome is Busy.
	Refresh   bool
	WaiterTTL int64
	// NextRefresh is the time until the waiter's next refresh. After twice that time the waiter is
	// overdue, and passed over until its next refresh. Defaults to half of WaiterTTL.
	NextRefresh                 int64
	MaxWaiters                  int64
	Owner, Host, Comment, Trace string
	// Started and NeverVictim are stored in the queue, where the choice of a deadlock's victim reads
	// them. Started may be zero.
	Started     time.Time
	NeverVictim bool
	// Priority is 1, which is first, to 5; 0 is DefaultPriority. It counts only in a collection that has had a policy: builds
	// that do not know priorities must be refused before one is stored.
	Priority int64

	// member is the member of a pool that the request must get.
	member string
}

// OverdueAfter returns the time after which the waiter is overdue unless it is refreshed.
func (op *Acquire) OverdueAfter() int64 {
	if op.NextRefresh == 0 {
		return op.WaiterTTL
	}
	return min(2*op.NextRefresh, op.WaiterTTL)
}

// ResourceName returns the name of the resource.
func (op Acquire) ResourceName() string { return op.Resource }

// Apply acquires the resource, or queues.
func (op Acquire) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	if run, other := s.doc.otherRun(op.LockID, op.Run, op.TakeOver); other {
		s.result.Outcome, s.result.Note = OtherRun, run
		return s.end()
	}
	s.takeOver(op.LockID, op.Run)
	op.member = s.lostMember(&op)
	if s.superseded(&op) {
		s.result.Outcome = Superseded
		return s.end()
	}
	s.grantOrQueue(&op)
	if s.result.Outcome == Queued && op.Keep { // a sign of life of what it keeps
		s.renewKept(op.LockID)
	}
	return s.end()
}

// superseded reports whether a release, a bar, a later request of the same part, or another call with
// the same order came first. The package documentation defines part, order, bar and call.
func (s *state) superseded(op *Acquire) bool {
	if _, superseded := s.doc.SupersededBy(op.Caller); superseded {
		return true
	}
	p := s.doc.Part(op.Caller)
	if op.Queued && p == nil && s.claim(op.Caller) == nil {
		return !slices.ContainsFunc(s.doc.Waiters, func(w Waiter) bool { return w.SamePart(&op.Caller) })
	}
	return p != nil && p.Alive(s.now) && p.ID != op.Call && p.ID != op.Upgrades
}

// isLost reports whether the lock ID has lost what it held, and the request must not acquire it again.
func (s *state) isLost(op *Acquire) bool {
	p := s.doc.Part(op.Caller)
	switch {
	case op.Upgrades != "" && (p == nil || (p.ID != op.Upgrades && p.ID != op.Call)):
		return true
	case op.Reacquire: // of a pool, only with the member that it had
		return op.Mode == Pool && op.HeldSince > 0 && op.Party().with(s.doc).Member == ""
	}
	return (op.Keep && s.doc.Lost(op.LockID, op.Run, op.LostSince) != nil) || (op.HeldSince > 0 && !s.doc.Keeps(op.LockID, op.HeldSince))
}

// grantOrQueue grants the request if it is admitted, and queues it otherwise. The cases are in the order of
// the rules in the package documentation.
func (s *state) grantOrQueue(op *Acquire) {
	claim := s.claim(op.Caller)
	tombstone := s.doc.Tombstone(op.Caller)
	index := slices.IndexFunc(s.doc.Waiters, func(w Waiter) bool { return w.SamePart(&op.Caller) })
	// A lock ID that already holds, for example one that upgrades, goes ahead of the queue, because the
	// waiters there wait for its own hold. A request that is already queued is not granted here: the
	// write that frees the resource gives it a claim.
	ahead := skipsQueue(s.doc, op.Party()) || op.member != ""
	view := s.view()
	next := ahead || ((!op.Queue || index < 0) && !slices.ContainsFunc(s.doc.Waiters, func(w Waiter) bool { return s.doc.holdsUp(view, &w) }))
	unfit := claim != nil && (!confirms(s.doc, claim, op.Party()) || (op.Refresh && !claim.Alive(s.now)))
	switch {
	case tombstone != nil:
		s.result.Outcome, s.result.Note = Deadlock, tombstone.Verdict
	case s.isLost(op):
		s.result.Outcome = Lost
		s.leaveQueue(op)
	case (index >= 0 || unfit) && s.doc.refuses(op.Party()) == OnlyPool && !s.covered(op.LockID, op.Mode):
		s.result.Outcome, s.changed = OnlyPool, true
		s.leaveQueue(op)
	case op.Refresh && (!op.Queue || (claim == nil && index < 0) || (claim != nil && claim.Alive(s.now))):
		s.result.Outcome = Busy
	case op.Refresh:
		s.enqueue(op, index, true)
	case s.grantedBefore(op):
		s.result.Outcome = Again
	case claim == nil && index < 0 && s.tooLarge(ahead):
		s.result.Outcome = Full
	case s.covered(op.LockID, op.Mode) && allowsJoin(s.doc, op.Party()):
		s.result.Outcome = Joined
		s.grant(op, true)
	case (claim != nil && confirms(s.doc, claim, op.Party())) || (next && s.doc.Admits(op.Party())):
		s.result.Outcome = Granted
		s.grant(op, false)
	case claim == nil && index < 0 && s.doc.refuses(op.Party()) != "":
		s.result.Outcome = s.doc.refuses(op.Party())
	case !op.Queue:
		s.result.Outcome = Busy
	default:
		s.enqueue(op, index, ahead || claim != nil)
	}
}

// leaveQueue ends the claim and the waiter of a request that is refused. Otherwise it would be granted later.
func (s *state) leaveQueue(op *Acquire) {
	s.endEntries(func(e *Entry) bool {
		return e.State == StateClaimed && e.ofPart(&op.Caller) && e.Order <= op.Order
	})
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return w.isUpTo(&op.Caller) })
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
		return s.anyEntry(func(e *Entry) bool {
			return e.BelongsTo(op.LockID) && e.State == StateKept && e.ID == op.Call && Covers(e.Mode, op.Mode)
		})
	}
	p := s.doc.Part(op.Caller)
	return p != nil && p.ID == op.Call && p.Alive(s.now) && Covers(p.Mode, op.Mode)
}

// grant adds the part, and with Keep what it keeps. With joins, the lock ID holds already in a mode that
// covers the request's. A grant extends everything that its lock ID keeps.
func (s *state) grant(op *Acquire, joins bool) {
	s.grants = true
	room := s.withMember(op.Party())
	if joins && room.Mode == Shared {
		room.Limit = 0
	}
	s.evictFor(room)
	hold := s.holdFor(op, joins)
	made := Entry{
		ID: op.Call, Caller: op.Caller, Mode: op.Mode, State: StateRunning,
		Fence: hold.Fence, FirstFence: hold.FirstFence, LeastFence: hold.LeastFence, Member: room.Member,
		TTL: op.TTL, ExpiresAt: expiry(s.now, op.TTL), Trace: op.Trace,
	}
	if c := s.claim(op.Caller); c != nil {
		made.Since, made.ClaimedAt, made.Predecessor = c.Since, c.ClaimedAt, c.Predecessor
	}
	if old := s.upgraded(op); old != nil { // a bar must match both entries of a part, or none
		made.Within, made.Saga = old.Within, old.Saga
	}
	kept := made
	kept.ID, kept.State, kept.Part, kept.FirstOrder = keptID(op.Call), StateKept, "", op.Order
	kept.Since, kept.ClaimedAt, kept.Predecessor = nil, nil, nil
	describe := func(e *Entry) {
		e.CreatedAt, e.Owner, e.Host, e.Comment, e.Limit = hold.CreatedAt, hold.Owner, op.Host, op.Comment, op.Limit
	}
	s.supersede(op)
	s.doc.Waiters = without(s.doc.Waiters, func(w *Waiter) bool { return w.SamePart(&op.Caller) })
	s.renewKept(op.LockID)
	switch {
	case op.HoldOnly:
		kept.ID = op.Call
	case !op.Keep:
		describe(&made)
		s.doc.Entries = append(s.doc.Entries, made)
		return
	default:
		s.doc.Entries = append(s.doc.Entries, made)
	}
	describe(&kept)
	kept.TTL, kept.ExpiresAt = op.HoldTTL, Later(expiry(s.now, op.HoldTTL), expiry(s.now, op.TTL))
	if op.Reacquire {
		if e := s.doc.LossEvidence(op.LockID, op.Run, op.LostSince); e != nil {
			kept.Regained = e.Number
		}
	}
	s.doc.Entries = append(s.doc.Entries, kept)
}

// holdFor returns the fences of the hold that the request begins or joins, its owner, and the time at
// which it began.
func (s *state) holdFor(op *Acquire, joins bool) Entry {
	hold := Entry{Owner: op.Owner, FirstFence: s.doc.FirstFence(op.LockID), CreatedAt: &s.now}
	if op.Owner == op.LockID {
		hold.Owner = ""
	}
	if old := s.upgraded(op); old != nil && old.CreatedAt != nil {
		hold.CreatedAt = old.CreatedAt
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
		}
		again = again || (e.Part == op.Part && (e.State == StateRunning || (e.State == StateClaimed && !e.Forfeited(s.now))))
	}
	// The hold needs a new fence if it is new, if the request demands one, if a hold within this one got
	// a later fence, or if the same part runs again.
	if !joins || op.NewFence || s.doc.Fence > hold.Fence || again {
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

// upgraded returns the part's entry to which the request adds an exclusive one, or nil.
func (s *state) upgraded(op *Acquire) *Entry {
	if p := s.doc.Part(op.Caller); p != nil && op.Upgrades != "" && p.ID == op.Upgrades {
		return p
	}
	return nil
}

// supersede ends what a grant replaces: the part's claim, and the part's earlier request, which drains if it
// has not expired, since it keeps others out until its lease ends. An upgrade replaces no entry of its own
// request. What the lock ID keeps without a part merges; what a step keeps while it waits ends.
func (s *state) supersede(op *Acquire) {
	kept := s.doc.Entries[:0:0]
	var draining []Entry
	for _, e := range s.doc.Entries {
		own, mine := e.BelongsTo(op.LockID), e.Part == op.Part
		switch {
		case own && mine && e.State == StateClaimed:
		case own && e.waitsForMore():
			s.homeless = append(s.homeless, e.Bars...)
		case !own || op.HoldOnly || !mine || e.State != StateRunning || (op.Upgrades != "" && e.Order == op.Order):
			kept = append(kept, e)
		case e.Alive(s.now):
			draining = append(draining, s.drain(e))
		}
	}
	s.doc.Entries = append(kept, draining...)
	s.merge(func(e *Entry) bool {
		_, madeWithPart := e.partOf()
		return e.BelongsTo(op.LockID) && !madeWithPart && e.ID != op.Call
	})
}

// enqueue queues the request, or refreshes its waiter at the given index, which is negative if there
// is none.
func (s *state) enqueue(op *Acquire, index int, ahead bool) {
	if index < 0 && !ahead && int64(len(s.doc.Waiters)) >= op.MaxWaiters {
		s.result.Outcome = Full
		return
	}
	w := s.waiter(op)
	claim := s.claim(op.Caller)
	switch {
	case index >= 0:
		was := s.doc.Waiters[index]
		w.Since, w.ClaimTTL, w.Ahead, w.Priority, w.Promoted = was.Since, was.ClaimTTL, was.Ahead, was.Priority, was.Promoted
		w.Member = cmp.Or(w.Member, was.Member)
		if op.Refresh {
			w.Hold, w.Saga, w.Owner = was.Hold, was.Saga, was.Owner
		}
		s.doc.Waiters[index] = w
	case ahead: // an upgrade, a lost member of a pool, or a claim that has lapsed or no longer fits
		w.Ahead = true
		if claim != nil {
			w.Since, w.ClaimTTL = sinceOf(claim), claim.ClaimTTL
			if op.Refresh {
				w.Saga = claim.Saga
			}
			if !claim.Alive(s.now) {
				w.ClaimTTL = min(2*max(s.settings.ClaimTTL, claim.ClaimTTL), 4*s.settings.ClaimTTL)
			}
		}
		index = len(filter(s.doc.Waiters, func(w *Waiter) bool { return w.Ahead }))
		s.doc.Waiters = slices.Insert(s.doc.Waiters, index, w)
	default:
		index = s.insert(w)
	}
	s.doc.Entries = without(s.doc.Entries, func(e *Entry) bool {
		return e.ofPart(&op.Caller) && e.State == StateClaimed
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
		Caller: op.Caller, Mode: op.Mode, Limit: op.Limit, Member: op.member,
		Since: s.now, ExpiresAt: s.now.Add(ms(op.WaiterTTL)), OverdueAt: s.now.Add(ms(op.OverdueAfter())), NeverVictim: op.NeverVictim,
	}
	if op.Priority != DefaultPriority && s.settings.Policies != nil {
		w.Priority = op.Priority
	}
	if !op.Started.IsZero() {
		w.Started = &op.Started
	}
	if op.Owner != op.LockID {
		w.Owner = op.Owner
	}
	if op.HoldOnly {
		w.Hold = &WaitingHold{ID: op.Call, TTL: op.HoldTTL, Host: op.Host, Comment: op.Comment, Trace: op.Trace, Reacquire: op.Reacquire}
	}
	return w
}
