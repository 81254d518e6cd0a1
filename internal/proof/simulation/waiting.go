package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// waiting is the state of the checks of waiting requests.
type waiting struct {
	// idle contains the time since which a request could have been granted.
	idle map[partKey]time.Time
	// stuck contains the time since which a request has been in a deadlock, and circled the last time at
	// which it was in one.
	stuck, circled map[partKey]time.Time
	// parked contains the sagas that wait without a process.
	parked map[partKey]*parking
	// victims contains the time since which a saga that waits without a process is the victim of a deadlock.
	victims map[partKey]time.Time
}

func newWaiting() waiting {
	return waiting{idle: map[partKey]time.Time{}, stuck: map[partKey]time.Time{}, circled: map[partKey]time.Time{}, parked: map[partKey]*parking{}, victims: map[partKey]time.Time{}}
}

const (
	// tickEvery is the pause between two checks of all answers and all waiting requests.
	tickEvery = 200 * time.Millisecond
	// grantWithin bounds the wait of the first waiter for a free resource. Its process polls, and writes if no write has
	// granted the claim. Twice, polls and writes of others may come in between.
	grantWithin = 3 * (pace.Poll + pace.SettleRetry)
	// parkedWithin is the same bound for parked requests. The process that sent the wake-up may have died, in which case the
	// request rechecks itself, at most twice as late.
	parkedWithin = 2 * pace.Recheck
	// breakWithin bounds the life of a deadlock. A search ends the cycles that existed when it began.
	breakWithin = 3 * pace.Search
	// toldWithin bounds the time after which the victim of a deadlock is woken, by a process that watches the resource for it. It
	// reads versions, and documents that have changed. Twice, a read may fail.
	toldWithin = 3 * (pace.VersionPoll + pace.SettleRetry)
)

// tick runs the periodic checks until the play is over.
func (w *world) tick() {
	for !w.over() {
		w.mu.Lock()
		w.checkGrants()
		w.checkAnswers()
		w.checkDeadlocksEnd()
		w.checkVictimsAreTold()
		for _, r := range w.plan.resources {
			w.checkTrust(r)
		}
		w.checkLossesReported()
		w.checkLeftovers()
		w.mu.Unlock()
		pause := tickEvery
		if w.calm() {
			pause *= 4 // because little happens
		}
		w.phase(pause, nil)
	}
}

// present reports whether the caller of a waiting request still waits and its process is alive.
func (w *world) present(key partKey, q *rules.Waiter) bool {
	if !q.Waits(w.clock()) {
		return false
	}
	if w.parked[key] != nil {
		return true
	}
	c := w.calls[partKey{"", key.lockID, key.part}]
	return c != nil && !c.done && !c.p.dead()
}

// well reports whether the process of a waiting request works, since when, and the bound for its grant.
func (w *world) well(key partKey) (since time.Time, within time.Duration, ok bool) {
	if p := w.parked[key]; p != nil {
		since, within = p.began, parkedWithin
		for _, proc := range w.procs {
			since = later(since, proc.lastTrouble(key.resource))
		}
		return since, within, true
	}
	c := w.calls[partKey{"", key.lockID, key.part}]
	return c.p.lastTrouble(key.resource), grantWithin + 2*w.answerWithin(), c.p.running()
}

// checkGrants is I9: the first who waits is granted what is free, and each that may join joins.
func (w *world) checkGrants() {
	now := time.Now()
	free := map[partKey]string{}
	for _, r := range w.plan.resources {
		d := *w.doc(r)
		d.At = w.clock().Add(-w.plan.jitter)
		ahead := false
		for q := range each(d.Waiters) {
			key := partKey{r, q.LockID, q.Part}
			switch here, admits := w.present(key, q), d.Admits(q.Party()) && !exclusivelyHeld(&d, q); {
			case !here && (admits || q.Overdue(w.clock())):
				// The dead is granted a claim, which then keeps others out, or is passed over.
			case !here:
				ahead = true
			case q.Run == "" && joins(&d, q), q.Run != "" && d.Queue().NeedsNoClaim(q.Party()):
				free[key] = "I9 join"
			case !ahead && admits:
				free[key] = "I9"
				ahead = true
			default:
				ahead = true
			}
		}
	}
	maps.DeleteFunc(w.idle, func(key partKey, _ time.Time) bool { return free[key] == "" })
	for key, kind := range free {
		trouble, within, ok := w.well(key)
		since := lasts(w.idle, key, now, trouble, !ok)
		if now.Sub(since) > within {
			w.broken(kind, key.lockID, "%s waits for %s, which has been there for it since %d ms", key.lockID, key.resource, since.Sub(w.began).Milliseconds())
		}
	}
}

// lasts records that a state lasts, and returns since when: from now if it is new, is excused, or had trouble meanwhile.
func lasts(state map[partKey]time.Time, key partKey, now, trouble time.Time, excused bool) time.Time {
	since, known := state[key]
	if !known || excused || trouble.After(since) {
		since = now
	}
	state[key] = since
	return since
}

// exclusivelyHeld reports whether there is a live exclusive entry, in addition to which no claim is granted, not even to its
// own party. See "No claim is granted while a lock ID holds exclusively" in docs/internals.md.
func exclusivelyHeld(d *rules.Document, q *rules.Waiter) bool {
	return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool {
		around := q.Within != "" && e.LockID == q.Within && e.State == rules.StateKept
		return e.Mode == rules.Exclusive && lives(&e, d.At) && !around
	})
}

// joins reports whether the request's lock ID holds what it asks for.
func joins(d *rules.Document, q *rules.Waiter) bool {
	for e := range each(d.Entries) {
		if e.LockID == q.LockID && e.Holds() && lives(e, d.At) && rules.Covers(e.Mode, q.Mode) {
			return true
		}
	}
	return false
}

// checkDeadlocksEnd is the half of I12 that no deadlock stays.
func (w *world) checkDeadlocksEnd() {
	now := time.Now()
	in := map[partKey]bool{}
	stuck := w.deadlockedRequests(true)
	for _, s := range stuck {
		in[s.key] = true
		trouble, _, ok := w.well(s.key)
		since := lasts(w.stuck, s.key, now, trouble, !ok)
		if now.Sub(since) > breakWithin {
			w.broken("I12 stays", s.key.lockID, "%s has been in a deadlock on %s since %d ms:%s", s.key.lockID, s.key.resource, since.Sub(w.began).Milliseconds(), listed(stuck))
		}
	}
	maps.DeleteFunc(w.stuck, func(key partKey, _ time.Time) bool { return !in[key] })
}

// checkVictimsAreTold finds a parked victim of a deadlock that no process wakes, whichever has withdrawn it.
func (w *world) checkVictimsAreTold() {
	now := time.Now()
	untold := map[partKey]bool{}
	for _, r := range w.plan.resources {
		for _, q := range w.doc(r).Waiters {
			key := partKey{r, q.LockID, q.Part}
			p := w.parked[key]
			if q.Verdict == "" || p == nil || p.watched == nil || p.watched.plain {
				continue
			}
			untold[key] = true
			since := lasts(w.victims, key, now, p.watched.lastTrouble(r), !p.watched.running() || p.watched.dead() || len(p.turn) > 0)
			if now.Sub(since) > toldWithin {
				w.broken("I12 told", q.LockID, "%s is the victim of a deadlock on %s since %d ms, and waits on", q.LockID, r, since.Sub(w.began).Milliseconds())
			}
		}
	}
	maps.DeleteFunc(w.victims, func(key partKey, _ time.Time) bool { return !untold[key] })
}

// listed describes the requests that are in deadlocks.
func listed(all []*waitNode) string {
	out := ""
	for _, s := range all {
		out += " " + s.key.lockID + " waits for " + s.key.resource + ";"
	}
	return out
}

// deadlockSearch finds the deadlocks in the current documents, with another algorithm than the library: each request that
// can proceed does and gives up its holds, until none can. The remaining requests wait forever.
type deadlockSearch struct {
	docs  []rules.Document
	waits []*waitNode
	// mustEnd restricts the search to deadlocks that the library must end.
	mustEnd bool
	// stays contains the owners that cannot proceed.
	stays map[string]bool
}

// waitNode is a live waiter.
type waitNode struct {
	key   partKey
	owner string
	d     *rules.Document
	w     *rules.Waiter
	ahead []*waitNode
	// gone is set if it no longer waits or is passed over, and granted if it can be granted.
	gone, granted bool
}

// recordDeadlocks records the waiters that are in a deadlock according to the documents, which do not show that a process is dead.
func (w *world) recordDeadlocks() {
	for _, s := range w.deadlockedRequests(false) {
		w.circled[s.key] = time.Now()
	}
}

// deadlockedRequests returns the waiters that are in a deadlock. With mustEnd it ignores requests with limits above 1, and
// waiters whose callers no longer wait.
func (w *world) deadlockedRequests(mustEnd bool) []*waitNode {
	c := w.newDeadlockSearch(mustEnd)
	if c == nil {
		return nil
	}
	for changed := true; changed; {
		changed = false
		for _, s := range c.waits {
			if !s.gone && c.canProceed(s) {
				s.gone, s.granted, changed = true, true, true
			}
		}
		c.updateStays()
	}
	var out []*waitNode
	for _, s := range c.waits {
		if !s.gone && c.reaches(s) {
			out = append(out, s)
		}
	}
	return out
}

// newDeadlockSearch returns nil if no request waits.
func (w *world) newDeadlockSearch(mustEnd bool) *deadlockSearch {
	c := &deadlockSearch{mustEnd: mustEnd, stays: map[string]bool{}}
	some := false
	for _, r := range w.plan.resources {
		d := *w.doc(r)
		d.At = w.clock()
		some = some || len(d.Waiters) > 0
		c.docs = append(c.docs, d)
	}
	if !some {
		return nil
	}
	for d := range each(c.docs) {
		var ahead []*waitNode
		for q := range each(d.Waiters) {
			key := partKey{d.ID, q.LockID, q.Part}
			owner := cmp.Or(q.Owner, q.LockID)
			if !q.Waits(w.clock()) || (mustEnd && !w.present(key, q)) {
				continue
			}
			s := &waitNode{key: key, owner: owner, d: d, w: q, ahead: ahead}
			s.gone = mustEnd && q.Mode == rules.Shared && d.LimitFor(q.Limit) > 1
			c.waits, ahead = append(c.waits, s), append(ahead, s)
		}
	}
	c.updateStays()
	return c
}

// updateStays determines the owners that wait for something. All others proceed.
func (c *deadlockSearch) updateStays() {
	stays := map[string]bool{}
	for _, s := range c.waits {
		if !s.gone {
			stays[s.owner] = true
		}
	}
	c.stays = stays
}

// ownerOf returns the owner of an entry. The kept hold of a lock ID contains the owner of its parts.
func ownerOf(d *rules.Document, e *rules.Entry) string {
	owner := e.Owner
	for k := range each(d.Entries) {
		if k.LockID == e.LockID && k.State == rules.StateKept && e.CreatedAt == nil {
			owner = cmp.Or(owner, k.Owner)
		}
	}
	return cmp.Or(owner, e.LockID)
}

// obstacles returns the owners that cannot proceed and for which a request waits.
func (c *deadlockSearch) obstacles(s *waitNode) []string {
	for _, o := range c.waits {
		if o.granted && o.d == s.d && o.w.LockID == s.w.LockID && rules.Covers(o.w.Mode, s.w.Mode) {
			return nil // it joins the hold that was granted in between
		}
	}
	var out []string
	now := s.d.At
	party := s.w.Party()
	joined := joins(s.d, s.w)
	if joined && s.w.Run == "" {
		return nil
	}
	others := map[string]string{}
	for e := range each(s.d.Entries) {
		if e.LockID == s.w.LockID || !e.Counts(party, now) || e.State == rules.StateDraining || !c.outlasts(s.d, e) {
			continue
		}
		others[e.LockID] = ownerOf(s.d, e)
		if e.Blocks(party, now) {
			out = append(out, ownerOf(s.d, e))
		}
	}
	if joined { // it waits for running parts alone
		return out
	}
	if a := s.leader(); a != nil {
		return c.obstacles(a)
	}
	if limit := s.d.LimitFor(party.Limit); limit > 0 && int64(len(others)) >= limit {
		out = slices.AppendSeq(out, maps.Values(others))
	}
	for _, a := range s.ahead {
		if !a.gone && a.w.LockID != s.w.LockID {
			out = append(out, a.owner)
		}
	}
	// A request that is granted holds the resource while its owner waits for something else. Such a deadlock need not end before
	// it exists.
	for _, o := range c.waits {
		if c.mustEnd {
			break
		}
		if o.granted && o.d == s.d && o.w.LockID != s.w.LockID && c.stays[o.owner] && !rules.Compatible(o.w.Mode, s.w.Mode) {
			out = append(out, o.owner)
		}
	}
	return out
}

// outlasts reports whether an entry exists as long as its owner waits for something. A running part of a workflow ends by
// itself, unless its own step waits for more locks.
func (c *deadlockSearch) outlasts(d *rules.Document, e *rules.Entry) bool {
	if e.Run == "" || e.State != rules.StateRunning {
		return c.stays[ownerOf(d, e)]
	}
	return slices.ContainsFunc(c.waits, func(o *waitNode) bool { return !o.gone && o.w.LockID == e.LockID && o.w.Part == e.Part })
}

// leader returns the first waiter ahead with the same lock ID that requests at least the same mode, or nil. Since queues are
// served in order, s joins only after its leader is granted.
func (s *waitNode) leader() *waitNode {
	for _, a := range s.ahead {
		if !a.gone && a.w.LockID == s.w.LockID && rules.Covers(a.w.Mode, s.w.Mode) {
			return a
		}
	}
	return nil
}

func (c *deadlockSearch) canProceed(s *waitNode) bool { return len(c.obstacles(s)) == 0 }

// reaches reports whether a cycle of waits leads back to the request's owner.
func (c *deadlockSearch) reaches(s *waitNode) bool {
	seen := map[string]bool{}
	next := c.obstacles(s)
	for len(next) > 0 {
		owner := next[0]
		next = next[1:]
		if owner == s.owner {
			return true
		}
		if seen[owner] {
			continue
		}
		seen[owner] = true
		for _, o := range c.waits {
			if !o.gone && o.owner == owner {
				next = append(next, c.obstacles(o)...)
			}
		}
	}
	return false
}

// recently bounds the time after a deadlock has ended in which a victim may still be withdrawn: the read that found it took
// time, and so does the command that ends it.
const recently = 2*update.CommandTimeout + time.Second
