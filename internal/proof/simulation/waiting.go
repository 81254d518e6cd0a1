package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// waiting is what the checks of those who wait remember.
type waiting struct {
	// idle is since when a request could be granted, and is not.
	idle map[partKey]time.Time
	// stuck is since when a request is in a deadlock without a break, and circled when it was in one last.
	stuck, circled map[partKey]time.Time
	// parked are the sagas that wait without a process.
	parked map[partKey]*parking
}

func newWaiting() waiting {
	return waiting{idle: map[partKey]time.Time{}, stuck: map[partKey]time.Time{}, circled: map[partKey]time.Time{}, parked: map[partKey]*parking{}}
}

const (
	// tickEvery is the pause between two looks at all that is told and all who wait.
	tickEvery = 200 * time.Millisecond
	// grantWithin is how long what is free may be refused to the first who waits: its process looks, and writes if no
	// write has granted it its claim. Looks and writes of others may come between, twice.
	grantWithin = 3 * (pace.Poll + pace.SettleRetry)
	// parkedWithin is the same for those who wait without a process. The process that told of the turn may have died then: so it
	// counts until the request looks itself, which it does twice as late at most.
	parkedWithin = 2 * pace.Recheck
	// breakWithin is how long a deadlock may stand. A search ends what stood when it began, and a shortest circle in each.
	breakWithin = 3 * pace.Search
)

// tick looks again and again.
func (w *world) tick() {
	for !w.over() {
		w.mu.Lock()
		w.everyWaiterGetsItsTurn()
		w.deadlocksEnd()
		for _, r := range w.plan.resources {
			w.trustIsExclusive(r)
		}
		w.lossesAreTold()
		w.nothingIsLeft()
		w.mu.Unlock()
		pause := tickEvery
		if w.calm() {
			pause *= 4 // little happens any more
		}
		w.phase(pause, nil)
	}
}

// present reports whether a request waits in earnest: its caller has not given up, and its process lives.
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

// well reports whether nothing troubles the process that waits for a request, and since when.
func (w *world) well(key partKey) (since time.Time, within time.Duration, ok bool) {
	if p := w.parked[key]; p != nil {
		since, within = p.began, parkedWithin
		for _, proc := range w.procs {
			if last := proc.lastTrouble(key.resource); last.After(since) {
				since = last
			}
		}
		return since, within, true
	}
	c := w.calls[partKey{"", key.lockID, key.part}]
	return c.p.lastTrouble(key.resource), grantWithin, c.p.running()
}

// everyWaiterGetsItsTurn is I9: the first who waits is granted what is free, and each that may join joins.
func (w *world) everyWaiterGetsItsTurn() {
	now := time.Now()
	free := map[partKey]string{}
	for _, r := range w.plan.resources {
		d := *w.doc(r)
		d.At = w.clock().Add(-w.plan.jitter)
		ahead := false
		for i := range d.Waiters {
			q := &d.Waiters[i]
			key := partKey{r, q.LockID, q.Part}
			switch here, admits := w.present(key, q), d.Admits(q.Party()) && !exclusivelyHeld(&d, q); {
			case !here && (admits || q.Overdue(w.clock())):
				// The dead is granted a claim, which then keeps others out, or is passed over.
			case !here:
				ahead = true
			case q.Label == "" && joins(&d, q), q.Label != "" && d.NeedsNoClaim(q.Party()):
				free[key] = "I9 join"
			case !ahead && admits:
				free[key] = "I9"
				ahead = true
			default:
				ahead = true
			}
		}
	}
	for key := range w.idle {
		if free[key] == "" {
			delete(w.idle, key)
		}
	}
	for key, kind := range free {
		since, known := w.idle[key]
		if !known {
			since = now
		}
		trouble, within, ok := w.well(key)
		if trouble.After(since) || !ok {
			since = now
		}
		w.idle[key] = since
		if now.Sub(since) > within {
			w.broken(kind, key.lockID, "%s waits for %s, which has been there for it since %d ms", key.lockID, key.resource, since.Sub(w.began).Milliseconds())
		}
	}
}

// exclusivelyHeld reports whether an exclusive entry stands. Beside it none is granted a claim, not even its own party,
// which waits until what drains of it has ended: see "No claim is granted while a lock ID holds exclusively" in docs/internals.md.
func exclusivelyHeld(d *rules.Document, q *rules.Waiter) bool {
	return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool {
		around := q.Within != "" && e.LockID == q.Within && e.State == rules.StateKept
		return e.Mode == rules.Exclusive && lives(&e, d.At) && !around
	})
}

// joins reports whether the request's lock ID holds what it asks for.
func joins(d *rules.Document, q *rules.Waiter) bool {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.LockID == q.LockID && e.Holds() && lives(e, d.At) && rules.Covers(e.Mode, q.Mode) {
			return true
		}
	}
	return false
}

// deadlocksEnd is the half of I12 that no deadlock stays.
func (w *world) deadlocksEnd() {
	now := time.Now()
	in := map[partKey]bool{}
	stuck := w.inCircles(true)
	for _, s := range stuck {
		in[s.key] = true
		since, known := w.stuck[s.key]
		if !known {
			since = now
		}
		trouble, _, ok := w.well(s.key)
		if trouble.After(since) || !ok {
			since = now
		}
		w.stuck[s.key] = since
		if now.Sub(since) > breakWithin {
			w.broken("I12 stays", s.key.lockID, "%s has been in a deadlock on %s since %d ms:%s", s.key.lockID, s.key.resource, since.Sub(w.began).Milliseconds(), listed(stuck))
		}
	}
	for key := range w.stuck {
		if !in[key] {
			delete(w.stuck, key)
		}
	}
}

// listed says who is in deadlocks, and on what.
func listed(all []*stander) string {
	out := ""
	for _, s := range all {
		out += " " + s.key.lockID + " waits for " + s.key.resource + ";"
	}
	return out
}

// circles is the truth about deadlocks in the documents as they stand. It is found the other way round than the library does:
// each that can go on goes on, and gives up what it has, until none is left that can. Those who are left wait for ever.
type circles struct {
	docs  []rules.Document
	waits []*stander
	// mustEnd says that only deadlocks count that must end.
	mustEnd bool
	// stays are the owners that cannot go on.
	stays map[string]bool
}

// stander is a live place in a queue.
type stander struct {
	key   partKey
	owner string
	d     *rules.Document
	w     *rules.Waiter
	ahead []*stander
	// gone says that it waits no more, or is passed over, and granted that it can be granted.
	gone, granted bool
}

// circlesStand records which waiters are in a deadlock now, as the documents show it: they do not show that a waiter is dead.
func (w *world) circlesStand() {
	for _, s := range w.inCircles(false) {
		w.circled[s.key] = time.Now()
	}
}

// inCircles are the waits that are in a deadlock. If it must end, neither those with limits above 1 count, nor those that
// no request waits for any more.
func (w *world) inCircles(mustEnd bool) []*stander {
	c := w.newCircles(mustEnd)
	if c == nil {
		return nil
	}
	for changed := true; changed; {
		changed = false
		for _, s := range c.waits {
			if !s.gone && c.canGo(s) {
				s.gone, s.granted, changed = true, true, true
			}
		}
		c.goOn()
	}
	var out []*stander
	for _, s := range c.waits {
		if !s.gone && c.reaches(s) {
			out = append(out, s)
		}
	}
	return out
}

// newCircles is nil if nobody waits.
func (w *world) newCircles(mustEnd bool) *circles {
	c := &circles{mustEnd: mustEnd, stays: map[string]bool{}}
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
	for i := range c.docs {
		d := &c.docs[i]
		var ahead []*stander
		for j := range d.Waiters {
			q := &d.Waiters[j]
			key := partKey{d.ID, q.LockID, q.Part}
			owner := cmp.Or(q.Owner, q.LockID)
			if !q.Waits(w.clock()) || (mustEnd && !w.present(key, q)) {
				continue
			}
			s := &stander{key: key, owner: owner, d: d, w: q, ahead: ahead}
			s.gone = mustEnd && q.Mode == rules.Shared && q.Limit > 1
			c.waits, ahead = append(c.waits, s), append(ahead, s)
		}
	}
	c.goOn()
	return c
}

// goOn sees which owners wait for something: all others go on.
func (c *circles) goOn() {
	stays := map[string]bool{}
	for _, s := range c.waits {
		if !s.gone {
			stays[s.owner] = true
		}
	}
	c.stays = stays
}

// ownerOf is the owner of an entry. A kept hold tells it for the parts of its lock ID.
func ownerOf(d *rules.Document, e *rules.Entry) string {
	owner := e.Owner
	for i := range d.Entries {
		if k := &d.Entries[i]; k.LockID == e.LockID && k.State == rules.StateKept && e.CreatedAt == nil {
			owner = cmp.Or(owner, k.Owner)
		}
	}
	return cmp.Or(owner, e.LockID)
}

// obstacles are the owners that a wait waits for, of those who stay.
func (c *circles) obstacles(s *stander) []string {
	for _, o := range c.waits {
		if o.granted && o.d == s.d && o.w.LockID == s.w.LockID && rules.Covers(o.w.Mode, s.w.Mode) {
			return nil // it joins what was granted on the way
		}
	}
	var out []string
	now := s.d.At
	party := s.w.Party()
	joined := joins(s.d, s.w)
	if joined && s.w.Label == "" {
		return nil
	}
	others := map[string]string{}
	for i := range s.d.Entries {
		e := &s.d.Entries[i]
		if e.LockID == s.w.LockID || !e.Counts(party, now) || e.State == rules.StateDraining || !c.stands(s.d, e) {
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
	if party.Limit > 0 && int64(len(others)) >= party.Limit {
		out = slices.AppendSeq(out, maps.Values(others))
	}
	for _, a := range s.ahead {
		if !a.gone && a.w.LockID != s.w.LockID {
			out = append(out, a.owner)
		}
	}
	// A request that gets what it waits for holds it as long as its owner waits for something else. A deadlock that is made so need
	// not end before it is made.
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

// stands reports whether an entry stands as long as its owner waits for something. A running part of a workflow ends by
// itself, unless its own step waits for more locks.
func (c *circles) stands(d *rules.Document, e *rules.Entry) bool {
	if e.Label == "" || e.State != rules.StateRunning {
		return c.stays[ownerOf(d, e)]
	}
	return slices.ContainsFunc(c.waits, func(o *stander) bool { return !o.gone && o.w.LockID == e.LockID && o.w.Part == e.Part })
}

// leader is the first place ahead of its own lock ID that asks for as much, or nil. A queue is served in its order, also
// among requests of one party: s joins when its leader is granted, and not before.
func (s *stander) leader() *stander {
	for _, a := range s.ahead {
		if !a.gone && a.w.LockID == s.w.LockID && rules.Covers(a.w.Mode, s.w.Mode) {
			return a
		}
	}
	return nil
}

func (c *circles) canGo(s *stander) bool { return len(c.obstacles(s)) == 0 }

// reaches reports whether a wait leads back to its own owner.
func (c *circles) reaches(s *stander) bool {
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

// recently is for how long a deadlock that has ended may still be told of: the read that saw it took time, and so does the
// command that ends it.
const recently = 2*update.CommandTimeout + time.Second
