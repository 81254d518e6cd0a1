package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

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

// seeCircles notes who is in a deadlock now.
func (w *world) seeCircles() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.circlesStand()
}

// circlesStand is seeCircles, with the mutex held. It goes by what the documents say: that a waiter is dead they do not.
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
		d := w.db.Document(r)
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
			if !waits(q, time.Now()) || (mustEnd && !w.present(key, q)) {
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
	now := time.Now()
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

// verdictsAreTrue is the half of I12 that no request is told of a deadlock that is none.
func (w *world) verdictsAreTrue(c *command, before, after *rules.Document) {
	for _, key := range condemned(before, after) {
		kind := "I12"
		if time.Since(c.sent) > lateAfter { // it was no verdict of now
			kind = "I6"
		}
		if at, ever := w.circled[key]; !ever || time.Since(at) > recently {
			w.broken(kind, key.lockID, "%s is told of a deadlock on %s, and is in none", key.lockID, key.resource)
		}
	}
}

// recently is for how long a deadlock that has ended may still be told of: the read that saw it took time, and so does the
// command that ends it.
const recently = 2 * rules.CommandTimeout
