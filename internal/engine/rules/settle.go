package rules

import (
	"maps"
	"slices"
	"time"
)

// state is a document to which an operation is being applied. Each operation calls begin, makes its
// own change, and returns the result of end.
type state struct {
	doc      *Document
	result   Result
	now      time.Time
	settings Settings
	// grants is set once the operation has granted something: a hold, a part or a claim.
	grants bool
	// changed is set if the operation changed something although its outcome is a refusal.
	changed bool
	// downgraded contains the exclusive entries that the operation downgraded, in their earlier state.
	downgraded []Entry
	// homeless contains the bars of kept entries that the operation has ended, unless they end too.
	homeless []Bar
	// evidence contains the records that the operation adds.
	evidence []Evidence
}

// begin copies the document and drops expired waiters, and what it has remembered for long enough.
func begin(before *Document, resource string, now time.Time, settings Settings) *state {
	if before == nil {
		before = &Document{}
	}
	d := before.Clone()
	d.ID, d.At, d.Policy = resource, now, settings.Policies.For(resource, now)
	d.Waiters = without(d.Waiters, func(w *Waiter) bool { return !w.ExpiresAt.After(now) })
	d.Missed = without(d.Missed, func(m *Missed) bool { return !m.Recent(now) })
	if d.EvidenceSince.IsZero() {
		d.EvidenceSince = now.Add(-Retention)
	}
	return &state{doc: d, result: Result{Outcome: Granted}, now: now, settings: settings}
}

// end settles the document and completes the result.
func (s *state) end() (*Document, Result) {
	s.settle()
	s.mergeEnded()
	s.moveBars()
	if s.grants {
		s.passClaims()
	}
	s.addEvidence()
	s.doc.Attn, s.doc.IdleAt = s.attn(), s.idleAt()
	r := &s.result
	r.Length = int64(len(s.doc.Waiters))
	r.ReadOnly = r.refused() && !s.changed
	return s.doc, *r
}

// refused reports whether the request was refused in a way that a read can show.
func (r *Result) refused() bool {
	return r.Outcome == Busy || r.Outcome == Full || r.Outcome == Unreadable || r.Outcome == NoPool || r.Outcome == OnlyPool || r.Outcome == OtherRun
}

// settle grants the resource to waiters, each in addition to all entries, those included that this write has made.
func (s *state) settle() {
	i := 0
	for range SettleMost {
		if i = nextGrant(s.doc, s.view(), i); i < 0 {
			return
		}
		w := s.doc.Waiters[i]
		s.doc.Waiters = slices.Delete(s.doc.Waiters, i, i+1)
		s.grantWaiter(&w)
	}
}

// view returns the document for the questions of all waiters.
func (s *state) view() view {
	if s.doc.Policy.IsPool() {
		return s.doc.prepare()
	}
	return s.doc
}

// nextGrant returns the index of the waiter that is granted the resource next, from an index on, or -1. That is the
// first one, as long as it is admitted: those behind it wait for it, whatever their limits. Overdue waiters and
// tombstones are passed over, and so are waiters for a certain member of a pool, while it is not free.
func nextGrant(d *Document, v view, from int) int {
	for i := from; i < len(d.Waiters); i++ {
		w := &d.Waiters[i]
		switch {
		case !d.Precedes(w):
		case v.Admits(w.Party()):
			return i
		case d.holdsUp(v, w):
			return -1
		}
	}
	return -1
}

// holdsUp reports whether the waiters behind w are granted nothing while w is not admitted. They are if it must get a certain
// member of a pool.
func (d *Document) holdsUp(v view, w *Waiter) bool {
	return d.Precedes(w) && w.Party().with(v).Member == ""
}

// grantWaiter grants a waiter a claim, which it must confirm. If it requested no part, it holds at once.
func (s *state) grantWaiter(w *Waiter) {
	room := s.withMember(w.Party())
	s.evictFor(room)
	s.grants = true
	claim := Entry{
		Caller: w.Caller, Mode: w.Mode, Limit: w.Limit, Member: room.Member, Owner: w.Owner,
		Since: &w.Since, ClaimedAt: &s.now, Predecessor: s.predecessor(), State: StateClaimed, QueuedUntil: &w.ExpiresAt, ClaimTTL: w.ClaimTTL,
		ExpiresAt: s.now.Add(ms(max(s.settings.ClaimTTL, w.ClaimTTL))),
	}
	if w.Hold == nil {
		s.doc.Entries = append(s.doc.Entries, claim)
		return
	}
	op := w.holdRequest()
	op.member = room.Member
	s.grant(&op, s.covered(op.LockID, op.Mode))
	hold := &s.doc.Entries[len(s.doc.Entries)-1]
	hold.Since, hold.ClaimedAt, hold.Predecessor = claim.Since, claim.ClaimedAt, claim.Predecessor
	granted := *hold
	granted.Part, granted.Priority = w.Part, w.Priority
	s.result.Holds = append(s.result.Holds, granted)
}

// holdRequest returns the request of a waiter that is granted its hold at once.
func (w *Waiter) holdRequest() Acquire {
	return Acquire{
		Call: w.Hold.ID, Caller: w.Caller, Mode: w.Mode,
		Limit: w.Limit, Owner: w.Owner, Keep: true, HoldOnly: true, TTL: w.Hold.TTL, HoldTTL: w.Hold.TTL, Reacquire: w.Hold.Reacquire,
		Host: w.Hold.Host, Comment: w.Hold.Comment, Trace: w.Hold.Trace,
	}
}

// passClaims marks the claims that have lapsed: another party may have been granted their room, or their member.
func (s *state) passClaims() {
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.State == StateClaimed && !e.Alive(s.now) {
			e.Passed, e.Member = true, ""
		}
	}
}

// attn returns the states of entries other than running parts, the mode of the first waiter, and AttnMissed. A claim
// that this write made counts with its mode, so that the index need not change.
func (s *state) attn() []string {
	found := map[string]bool{}
	for i := range s.doc.Entries {
		switch e := &s.doc.Entries[i]; {
		case e.State == StateClaimed && e.ClaimedAt != nil && e.ClaimedAt.Equal(s.now):
			found[e.Mode] = true
		case e.State != StateRunning:
			found[e.State] = true
		}
	}
	if len(s.doc.Missed) > 0 {
		found[AttnMissed] = true
	}
	if len(s.doc.Waiters) > 0 {
		found[s.doc.Waiters[0].Mode] = true
	}
	return append([]string{}, slices.Sorted(maps.Keys(found))...) // not nil, which would be stored as null
}

// predecessor returns the hold for which a waiter that is granted the resource now has waited: the first
// one that the operation ended, downgraded or evicted. Nil if there is none.
func (s *state) predecessor() *EndedHold {
	if len(s.result.Ended)+len(s.downgraded)+len(s.result.Expired) == 0 {
		return nil
	}
	for _, e := range holdsIn(slices.Concat(s.result.Ended, s.downgraded, s.result.Expired)) {
		if e.CreatedAt != nil || e.State == StateDraining {
			return &EndedHold{LockID: e.LockID, Fence: e.FirstFence, Owner: e.Owner, Trace: e.Trace}
		}
	}
	return nil
}

// evictFor evicts the expired holds whose room a party is given: those whose mode excludes it, and all
// others if together they would exceed its limit should their owners renew them, or if they are more than
// Crowd. Of a pool, only the hold with the party's member is evicted.
//
// What the party's enclosing lock ID keeps is not evicted. Expired parts of that lock ID end without
// evidence, because the enclosing hold is not lost.
func (s *state) evictFor(p Party) {
	enclosed := s.doc.HeldByEnclosing(p)
	parties, live := map[partyKey]bool{{lockID: p.LockID}: true}, map[partyKey]bool{}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; !e.BelongsTo(p.LockID) && !p.enclosedBy(e) && (e.Holds() || e.Alive(s.now)) {
			key := e.partyKey()
			parties[key] = true
			live[key] = live[key] || e.Alive(s.now)
		}
	}
	most, limit := int64(Crowd), s.doc.LimitFor(p.Limit)
	if limit > 0 {
		most = min(most, limit)
	}
	crowded := int64(len(parties)) > most && p.Mode != Pool
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, func(e Entry) bool {
		around := enclosed && e.BelongsTo(p.Within)
		switch {
		case !e.Holds() || e.Alive(s.now) || e.BelongsTo(p.LockID):
			return false
		case around && e.State != StateRunning:
			return false
		case !around && !p.Excludes(e.Mode, e.Member) && (!crowded || live[e.partyKey()]):
			return false
		}
		s.result.Expired = append(s.result.Expired, e)
		s.homeless = append(s.homeless, e.Bars...)
		if !around {
			s.lose(&e, Evidence{By: p.LockID})
		}
		return true
	})
}

// lose adds evidence that a lock ID has lost an entry of its hold, one record for each hold.
func (s *state) lose(e *Entry, of Evidence) {
	of.LockID, of.Run, of.Fence, of.Order, of.Member, of.At = e.LockID, e.Run, e.FirstFence, e.Order, e.Member, s.now
	for i := range s.evidence {
		if r := &s.evidence[i]; r.LockID == of.LockID && r.Run == of.Run && r.Fence == of.Fence && r.To == "" {
			r.Order = max(r.Order, of.Order)
			return
		}
	}
	s.doc.LastEvidence++
	of.Number = s.doc.LastEvidence
	s.evidence = append(s.evidence, of)
}

// addEvidence adds the records of this operation. If there were more than MaxEvidence before, it drops
// the oldest ones and moves EvidenceSince forward.
func (s *state) addEvidence() {
	if len(s.evidence) == 0 {
		return
	}
	if over := len(s.doc.Evidence) - MaxEvidence; over > 0 {
		s.doc.EvidenceSince = Later(s.doc.EvidenceSince, s.doc.Evidence[over-1].At)
	}
	s.doc.Evidence = append(tail(s.doc.Evidence, MaxEvidence), s.evidence...)
}

// idleAt returns the latest expiry of the entries and of Missed, rounded up to IdleGrain. Claims end much sooner than
// the document is removed.
func (s *state) idleAt() time.Time {
	at := s.now
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.State != StateClaimed {
			at = Later(at, e.ExpiresAt)
		}
	}
	for i := range s.doc.Missed {
		at = Later(at, s.doc.Missed[i].ReleasedAt.Add(Retention))
	}
	return IdleAt(at)
}

// IdleAt rounds a time up to IdleGrain.
func IdleAt(at time.Time) time.Time {
	grain := IdleGrain.Milliseconds()
	return time.UnixMilli((at.UnixMilli()/grain + 1) * grain).UTC()
}

// covered reports whether the lock ID holds in this mode or a stronger one.
func (s *state) covered(lockID, mode string) bool {
	return s.doc.holds(lockID, func(e *Entry) bool { return Covers(e.Mode, mode) })
}

func (s *state) anyEntry(which func(*Entry) bool) bool {
	for i := range s.doc.Entries {
		if which(&s.doc.Entries[i]) {
			return true
		}
	}
	return false
}

// dropDead drops draining parts that have expired, and forfeited claims.
func (s *state) dropDead() {
	s.doc.Entries = without(s.doc.Entries, func(e *Entry) bool {
		return e.Forfeited(s.now) || (e.State == StateDraining && !e.Alive(s.now))
	})
}

// recordEnded adds entries to the result that the operation ended.
func (s *state) recordEnded(entries ...Entry) { s.result.Ended = append(s.result.Ended, entries...) }

// drain returns a part as a draining entry. It blocks others while its lease may be trusted, which is
// until it expires. A lease without an end is trusted for EndlessTTL after it was confirmed. A lease
// with an end must not be shortened: since now may be before the time of the grant if the server's
// clock was set back, the bound is twice the TTL. The entry gets a new ID because extensions name
// entries by ID: an extension must not prolong a draining part.
func (s *state) drain(e Entry) Entry {
	if e.State != StateDraining {
		e.State, e.ID = StateDraining, drainingID(e.ID)
	}
	if end := s.now.Add(2*ms(e.TTL) + EndlessTTL); end.Before(e.ExpiresAt) {
		e.ExpiresAt = end
	}
	return e
}

// removeWaiters removes the matching waiters. It records the matching waiters of queue as ended.
func (s *state) removeWaiters(queue []Waiter, which func(*Waiter) bool) {
	for _, w := range filter(queue, which) {
		s.recordEnded(asEntry(&w))
	}
	s.doc.Waiters = without(s.doc.Waiters, which)
}

// asEntry converts a waiter to an entry without a state, for Result.Ended.
func asEntry(w *Waiter) Entry {
	return Entry{
		Caller: w.Caller, Mode: w.Mode, Limit: w.Limit, Member: w.Member, Owner: w.Owner,
		Since: &w.Since, ExpiresAt: w.ExpiresAt, ClaimTTL: w.ClaimTTL, Verdict: w.Verdict, Priority: w.Priority,
	}
}

// claim returns the claim of a part, or nil if there is none or it is forfeited.
func (s *state) claim(of Caller) *Entry {
	if c := s.doc.Claim(of); c != nil && !c.Forfeited(s.now) {
		return c
	}
	return nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// expiry returns the end of a TTL that begins now.
func expiry(now time.Time, ttl int64) time.Time {
	if ttl == 0 {
		return Never
	}
	return now.Add(ms(ttl))
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func filter[T any](in []T, which func(*T) bool) []T {
	var out []T
	for i := range in {
		if which(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}

func without[T any](in []T, which func(*T) bool) []T {
	return slices.DeleteFunc(in, func(v T) bool { return which(&v) })
}

func tail[T any](in []T, n int) []T {
	if len(in) > n {
		return in[len(in)-n:]
	}
	return in
}
