package rules

import (
	"maps"
	"slices"
	"time"
)

// state is a document to which an operation is being applied. Each operation calls begin, makes its
// own change, and returns the result of end.
type state struct {
	doc    *Document
	result Result
	now    time.Time
	policy Policy
	// attn becomes the document's Attn.
	attn map[string]bool
	// granted is the request that the operation granted, or nil.
	granted *Acquire
	// changed is set if the operation changed something although its outcome is a refusal.
	changed bool
	// downgraded contains the exclusive entries that the operation downgraded, in their earlier state.
	downgraded []Entry
	// evidence contains the records that the operation adds.
	evidence []Evidence
}

// begin copies the document and drops expired waiters.
func begin(before *Document, resource string, policy Policy, now time.Time) *state {
	if before == nil {
		before = &Document{}
	}
	d := before.Clone()
	d.ID, d.At = resource, now
	d.Waiters = without(d.Waiters, func(w *Waiter) bool { return !w.ExpiresAt.After(now) })
	if d.EvidenceSince.IsZero() {
		d.EvidenceSince = now.Add(-Retention)
	}
	return &state{doc: d, result: Result{Outcome: Granted}, now: now, policy: policy, attn: map[string]bool{}}
}

// end settles the document and completes the result.
func (s *state) end() (*Document, Result) {
	idle := s.idleAt() // before settling: new claims end sooner than any retention time
	for _, e := range s.doc.Entries {
		if e.State != StateRunning {
			s.attn[e.State] = true
		}
	}
	s.settle()
	if len(s.doc.Waiters) > 0 {
		s.attn[s.doc.Waiters[0].Mode] = true
	}
	s.doc.Attn = slices.AppendSeq([]string{}, maps.Keys(s.attn))
	slices.Sort(s.doc.Attn)
	s.addEvidence()
	s.doc.IdleAt = idle
	r := &s.result
	r.Length = int64(len(s.doc.Waiters))
	r.ReadOnly = (r.Outcome == Busy || r.Outcome == Full || r.Outcome == OtherRun) && !s.changed
	return s.doc, *r
}

// settle grants the resource to the head of the queue, and to the waiters directly behind it with the
// same limit, as many as there is room for and at most SettleMost. Overdue waiters and tombstones are
// passed over. Expired holds that the operation's own grant or these grants displace are evicted.
func (s *state) settle() {
	waiting := filter(s.doc.Waiters, func(w *Waiter) bool { return s.eligible(*w) })
	k := s.countGrantable(waiting)
	switch {
	case s.granted != nil:
		to := Party{LockID: s.granted.LockID, Limit: s.granted.Room(), Within: s.granted.Within}
		if s.result.Outcome == Joined { // limits apply to new holds only; the hold's mode counts
			to.Limit = Unlimited
			if s.covered(to.LockID, Exclusive) {
				to.Limit = 1
			}
		}
		s.evictExpired(waiting, k, to, "")
	case k > 0:
		head := &waiting[0]
		to, spared := Party{LockID: head.LockID, Limit: limitOf(head)}, head.Within
		if s.grantsHold(head) { // it holds at once
			to.Within, spared = head.Within, ""
		}
		s.evictExpired(waiting, k, to, spared)
	}
	after := s.predecessor()
	for i := range waiting[:k] {
		e := s.grantTo(&waiting[i])
		e.Predecessor = after
		if e.State == StateKept {
			of := e
			of.Part = waiting[i].Part
			s.result.Holds = append(s.result.Holds, of)
		}
		s.doc.Entries = append(s.doc.Entries, e)
	}
	s.doc.Waiters = without(s.doc.Waiters, func(w *Waiter) bool { return slices.Contains(waiting[:k], *w) })
}

// grantsHold reports whether a waiter is granted its hold at once, without a claim.
func (s *state) grantsHold(w *Waiter) bool {
	return w.Hold != nil && !s.holds(w.LockID)
}

// grantTo returns the entry that a waiter is granted: a claim, which it must confirm, or the kept hold
// if it requested no part.
func (s *state) grantTo(w *Waiter) Entry {
	e := Entry{
		LockID: w.LockID, Label: w.Label, Within: w.Within, Saga: w.Saga, Part: w.Part, Order: w.Order, Mode: w.Mode, Limit: w.Limit, Owner: w.Owner,
		Since: &w.Since, ClaimedAt: &s.now,
	}
	if !s.grantsHold(w) {
		s.attn[w.Mode] = true
		e.State, e.PositionExpiresAt, e.ClaimTTL = StateClaimed, &w.ExpiresAt, w.ClaimTTL
		e.ExpiresAt = s.now.Add(ms(max(s.policy.ClaimTTL, w.ClaimTTL)))
		return e
	}
	s.attn[StateKept] = true
	if w.Hold.Reacquire {
		s.clearEvidence(w.LockID, w.Label)
	}
	s.doc.Fence = s.nextFence()
	e.ID, e.State, e.Part, e.FirstOrder, e.CreatedAt = w.Hold.ID, StateKept, "", w.Order, &s.now
	e.Fence, e.FirstFence, e.LeastFence = s.doc.Fence, s.doc.Fence, s.doc.Fence
	e.TTL, e.ExpiresAt = w.Hold.TTL, expiry(s.now, w.Hold.TTL)
	e.Host, e.Comment, e.Trace = w.Hold.Host, w.Hold.Comment, w.Hold.Trace
	if w.Mode == Exclusive {
		e.Limit = 0
	}
	return e
}

// countGrantable returns the number of waiters that can be granted the resource now.
func (s *state) countGrantable(waiting []Waiter) int {
	if len(waiting) == 0 {
		return 0
	}
	head := &waiting[0]
	beside := filter(s.doc.Entries, func(e *Entry) bool {
		return e.Alive(s.now) && (head.Within == "" || !e.BelongsTo(head.Within) || e.State != StateKept)
	})
	// If the head's own lock ID holds exclusively, the head joins when it asks again, and the waiters
	// behind it must not be granted with it.
	if slices.ContainsFunc(beside, func(e Entry) bool { return e.Mode == Exclusive }) {
		return 0
	}
	limit := limitOf(head)
	// The same holds if its exclusive hold has expired but may still be renewed.
	if s.covered(head.LockID, Exclusive) {
		limit = 1
	}
	room := max(0, limit-others(beside, head.LockID))
	if head.Within != "" { // the exception for the enclosing hold is the head's alone
		room = min(room, 1)
	}
	k := 0
	for k < len(waiting) && k < int(min(room, SettleMost)) && waiting[k].Limit == head.Limit {
		k++
	}
	return k
}

// others counts the parties among entries that are not the lock ID's own.
func others(entries []Entry, lockID string) int64 {
	ids := map[string]bool{}
	for i := range entries {
		if e := &entries[i]; !e.BelongsTo(lockID) {
			ids[e.partyKey()] = true
		}
	}
	return int64(len(ids))
}

// eligible reports whether a waiter may be granted the resource.
func (s *state) eligible(w Waiter) bool { return w.Waits(s.now) && !w.Overdue(s.now) }

// predecessor returns the hold for which the waiters that are granted the resource now have waited:
// the first one that the operation ended, downgraded or evicted. Nil if there is none.
func (s *state) predecessor() *EndedHold {
	for _, e := range slices.Concat(s.result.Ended, s.downgraded, s.result.Expired) {
		if e.CreatedAt != nil || e.State == StateDraining {
			return &EndedHold{LockID: e.LockID, Fence: e.FirstFence, Owner: e.Owner, Trace: e.Trace}
		}
	}
	return nil
}

func limitOf(w *Waiter) int64 {
	if w.Limit == 0 {
		return Unlimited
	}
	return w.Limit
}

// fits reports whether no other living party holds exclusively, and fewer parties than the limit hold.
// The limit of an exclusive request is 1.
func (s *state) fits(p Party, limit int64) bool {
	p.Mode, p.Limit = Shared, limit
	return s.doc.Admits(p)
}

// evictExpired evicts the expired holds whose room is given to a party and to the waiters that are
// granted with it. These are the exclusive holds; and all others, if together they would exceed the
// smallest limit should their owners renew them, or if they are more than Crowd.
//
// The kept hold of the party's enclosing lock ID is not evicted. Expired parts of that lock ID end
// without evidence when the party is granted its hold, since the enclosing hold is not lost. While the
// party has only a claim, spared names the enclosing lock ID and its parts stay.
func (s *state) evictExpired(waiting []Waiter, served int, to Party, spared string) {
	around := ""
	if s.doc.HeldByEnclosing(to) {
		around = to.Within
	}
	limit := to.Limit
	if served > 0 {
		limit = min(limit, limitOf(&waiting[0]))
	}
	others, live := map[string]bool{}, map[string]bool{}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; !e.BelongsTo(to.LockID) {
			others[e.partyKey()] = true
			live[e.partyKey()] = live[e.partyKey()] || e.Alive(s.now)
		}
	}
	for i, w := range waiting {
		live[w.LockID] = live[w.LockID] || i < served
		live[w.Within] = live[w.Within] || i < served
	}
	for _, w := range waiting[:served] {
		others[w.LockID] = true
	}
	others[to.LockID] = true
	crowded := len(others) > int(min(limit, Crowd))
	s.evict(to.LockID, around, func(e *Entry) bool {
		if around != "" && e.BelongsTo(around) {
			return e.State == StateRunning
		}
		return !e.BelongsTo(to.LockID) && (spared == "" || !e.BelongsTo(spared)) && (e.Mode == Exclusive || (crowded && !live[e.partyKey()]))
	})
}

// evict ends the matching expired entries of holds. Those of the lock ID around leave no evidence.
func (s *state) evict(by, around string, which func(*Entry) bool) {
	gone := func(e *Entry) bool { return e.Holds() && !e.Alive(s.now) && which(e) }
	for _, e := range filter(s.doc.Entries, gone) {
		s.result.Expired = append(s.result.Expired, e)
		if around == "" || !e.BelongsTo(around) {
			s.evidence = append(s.evidence, Evidence{LockID: e.LockID, Label: e.Label, Fence: e.FirstFence, At: s.now, By: by})
		}
	}
	s.doc.Entries = without(s.doc.Entries, gone)
}

// addEvidence adds the records of this operation. If there were more than MaxEvidence before, it drops
// the oldest ones and moves EvidenceSince forward.
func (s *state) addEvidence() {
	if len(s.evidence) == 0 && len(s.result.Expired) == 0 {
		return
	}
	if over := len(s.doc.Evidence) - MaxEvidence; over > 0 {
		s.doc.EvidenceSince = later(s.doc.EvidenceSince, s.doc.Evidence[over-1].At)
	}
	s.doc.Evidence = append(tail(s.doc.Evidence, MaxEvidence), s.evidence...)
}

// idleAt returns the latest expiry of the entries, rounded up to IdleGrain.
func (s *state) idleAt() time.Time {
	at := s.now
	for _, e := range s.doc.Entries {
		at = later(at, e.ExpiresAt)
	}
	return IdleAt(at)
}

// IdleAt rounds a time up to IdleGrain.
func IdleAt(at time.Time) time.Time {
	grain := IdleGrain.Milliseconds()
	return time.UnixMilli((at.UnixMilli()/grain + 1) * grain).UTC()
}

// renewKept extends the kept hold of a lock ID.
func (s *state) renewKept(lockID string, handsOver bool) {
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.BelongsTo(lockID) && e.State == StateKept {
			e.ExpiresAt = later(e.ExpiresAt, expiry(s.now, e.TTL))
			e.HandedOver = e.HandedOver || handsOver
			s.changed = true
		}
	}
}

func (s *state) holds(lockID string) bool {
	return s.anyEntry(func(e *Entry) bool { return e.BelongsTo(lockID) && e.Holds() })
}

// covered reports whether the lock ID holds in this mode or a stronger one.
func (s *state) covered(lockID, mode string) bool {
	return s.anyEntry(func(e *Entry) bool { return e.BelongsTo(lockID) && e.Holds() && Covers(e.Mode, mode) })
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

// drainingID returns the ID of an entry while it drains.
func drainingID(id string) string { return id + "/d" }

// removeWaiters removes the matching waiters. The result reports those that are in queue.
func (s *state) removeWaiters(queue []Waiter, which func(*Waiter) bool) {
	for _, w := range filter(queue, which) {
		s.recordEnded(asEntry(&w))
	}
	s.doc.Waiters = without(s.doc.Waiters, which)
}

// asEntry converts a waiter to an entry without a state, for Result.Ended.
func asEntry(w *Waiter) Entry {
	return Entry{
		LockID: w.LockID, Label: w.Label, Within: w.Within, Part: w.Part, Order: w.Order, Mode: w.Mode, Limit: w.Limit, Owner: w.Owner,
		Since: &w.Since, ExpiresAt: w.ExpiresAt, ClaimTTL: w.ClaimTTL, Verdict: w.Verdict,
	}
}

// claim returns the claim of a part, or nil if there is none or it is forfeited.
func (s *state) claim(lockID, part string) *Entry {
	if c := s.doc.Claim(lockID, part); c != nil && !c.Forfeited(s.now) {
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

func later(a, b time.Time) time.Time {
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
