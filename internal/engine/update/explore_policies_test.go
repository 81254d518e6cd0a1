package update

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// adoptWithin is the number of ticks for which a process follows the policies that it has read, as policiesLast.
const adoptWithin = 1

// policyChange is a change of the resource's policy: to a limit, which ends after some ticks unless lasts is 0. A limit of 0
// removes the policy, unless it has the members of a pool.
type policyChange struct {
	limit   int64
	lasts   int
	members []rules.Member
}

// policySet contains the policies that are stored from a tick on.
type policySet struct {
	from int
	*rules.Policies
}

// follower has the policies that a process knows, and the state of its watcher.
type follower struct {
	identity   rules.Identity
	identified time.Time
	// polls is set if the watcher must poll because the policies have changed, and watched once it has polled.
	polls, watched bool
	// polled is the version of the document that it has read. pollBy is the tick at which time alone may change what
	// it found, or 0.
	polled rules.Version
	pollBy int
}

// setPolicy carries out the next change of the policies.
func (w *world) setPolicy() {
	c := w.changes[0]
	w.changes = w.changes[1:]
	next := &rules.Policies{Version: rules.Version{N: int64(len(w.set)), R: "policies"}}
	if c.limit > 0 || len(c.members) > 0 {
		one := rules.Policy{PolicyID: rules.PolicyID{Name: resource}, Limit: c.limit, Members: c.members}
		if c.lasts > 0 {
			until := at(w.now + c.lasts)
			one.Until = &until
		}
		next.List = []rules.Policy{one}
	}
	w.set = append(slices.Clip(w.set), policySet{w.now, next})
}

// policies returns the stored ones, or nil in a scenario without any.
func (w *world) policies() *rules.Policies {
	if len(w.set) == 0 {
		return nil
	}
	return w.set[len(w.set)-1].Policies
}

// read returns the stored document as a read finds it, or nil.
func (w *world) read(d *rules.Document) *rules.Document {
	if d == nil {
		return nil
	}
	read := *d
	read.At, read.Policy = at(w.now), w.policies().For(resource, at(w.now))
	return &read
}

// adopt passes the identity, read by a command that was sent at a tick, to the process, as Lines does.
func (w *world) adopt(p *process, sent int) {
	if w.set == nil {
		return
	}
	ls := &Lines{identity: p.identity, identified: p.identified, PoliciesChanged: func() { p.polls = true }}
	ls.Adopt(&rules.Identity{PolicyVersion: w.policies().Version, Policies: w.policies()}, at(sent))
	p.identity, p.identified = ls.identity, ls.identified
}

// guess returns what the process knows without a read, as Lines.guess.
func (w *world) guess(p *process) Now {
	if w.set != nil && w.now-tickOf(p.identified) > adoptWithin {
		return Now{}
	}
	now := p.sample.guess(w.now)
	now.Policies = p.identity.Policies
	return now
}

// adopted reports whether the process follows the policies that are stored.
func (w *world) adopted(p *process) bool { return p.identity.PolicyVersion == w.policies().Version }

// pollIsDue reports whether the watcher of a process polls without a change of the document.
func (w *world) pollIsDue(p *process) bool {
	return p.polls || !p.watched || p.pollBy > 0 && p.pollBy <= w.now
}

// policyActions calls do with a read of the identity by a process, and a poll by its watcher.
func (w *world) policyActions(p *process, do func(string, func(*world, *process))) {
	if w.set == nil {
		return
	}
	if !w.adopted(p) {
		do("identify by", func(w *world, p *process) {
			w.adopt(p, w.now)
			if p.polls {
				w.poll(p)
			}
		})
	}
	if w.doc != nil && w.pollIsDue(p) && p.line.Sleeps() {
		do("poll by", (*world).poll)
	}
}

// poll does what the watcher of package lockcore does when a poll is due.
func (w *world) poll(p *process) {
	p.polls, p.watched, p.pollBy = false, true, 0
	d := w.read(w.doc)
	if d == nil {
		return
	}
	q := d.Queue()
	p.polled = d.Version
	var wakes []*Call
	valid := q.ValidFor()
	for _, n := range p.notes {
		op, ok := n.call.Op.(rules.Acquire)
		if !ok || !n.call.asleep {
			continue
		}
		next := q.Next(op.Waiter())
		if next.Answer == rules.NextGo || next.Answer == rules.NextGone {
			wakes = append(wakes, n.call)
		}
		if next.ValidFor > 0 && (valid == 0 || next.ValidFor < valid) {
			valid = next.ValidFor
		}
	}
	if valid > 0 {
		p.pollBy = tickOf(at(w.now).Add(valid))
	}
	for _, c := range wakes {
		if i := slices.IndexFunc(p.notes, func(n note) bool { return n.call == c }); i >= 0 {
			w.wake(p, i)
		}
	}
	if q.Due() {
		w.add(p, -1, settle, "", &Call{Op: rules.Settle{Resource: resource}})
	}
}

// checkFollowed is I9 under policies: if the next write would grant the resource, a process that follows the policies and
// watches for the request has made that write, or will poll.
func (w *world) checkFollowed() {
	d := w.read(w.doc)
	if w.set == nil || d == nil || !d.Queue().Due() {
		return
	}
	for _, p := range w.processes {
		if !p.crashed && w.adopted(p) && p.line.Sleeps() && p.polled == d.Version && !w.pollIsDue(p) {
			w.fail("I9: the limit has room, and %s, which follows the policies, sleeps on: %+v", p.name, d.Waiters)
		}
	}
}

// checkGrants is I2 and I4 for a swap that a process sends: what it grants is within the greatest limit that was in force
// while a process may follow it, and no waiter is passed.
func (w *world) checkGrants(p *process, next *rules.Document) {
	prev := &rules.Document{}
	if p.line.doc != nil {
		prev = w.read(p.line.doc)
	}
	now := at(w.now)
	granted := func(d *rules.Document, lockID string) bool {
		return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.LockID == lockID })
	}
	for i := range next.Entries {
		e := &next.Entries[i]
		if e.Mode == rules.Pool && !granted(prev, e.LockID) && !w.wasInService(e.Member) {
			w.fail("I13: %s is granted the member %q, which was not in service", e.LockID, e.Member)
		}
		if e.Mode != rules.Shared || e.Limit == 0 || granted(prev, e.LockID) {
			continue
		}
		parties := map[string]bool{}
		for j := range next.Entries {
			if o := &next.Entries[j]; o.Alive(now) {
				parties[o.LockID] = true
			}
		}
		if limit := w.greatest(e.Limit); int64(len(parties)) > limit {
			w.fail("I2: %s is granted %s, which %d then hold, and no limit greater than %d was in force", e.LockID, resource, len(parties), limit)
		}
		for k := range prev.Waiters {
			v := &prev.Waiters[k]
			if v.LockID == e.LockID {
				break
			}
			if prev.Precedes(v) && !granted(next, v.LockID) && slices.ContainsFunc(next.Waiters, func(o rules.Waiter) bool { return o.LockID == v.LockID }) {
				w.fail("I4: %s is granted %s ahead of %s", e.LockID, resource, v.LockID)
			}
		}
	}
}

// greatest returns the greatest limit that was in force, for a request with a limit of its own, while a process may follow it.
func (w *world) greatest(own int64) (limit int64) {
	if w.set == nil {
		return own
	}
	for i, s := range w.set {
		last := w.now
		if i+1 < len(w.set) {
			last = w.set[i+1].from
		}
		for tick := max(s.from, w.now-adoptWithin); tick <= last; tick++ {
			d := rules.Document{Policy: s.For(resource, at(tick))}
			limit = max(limit, d.LimitFor(own))
		}
	}
	return limit
}

// wasInService reports whether a member of the pool was in service while a process may follow that policy.
func (w *world) wasInService(member string) bool {
	for i, s := range w.set {
		last := i+1 == len(w.set) || w.set[i+1].from >= w.now-adoptWithin
		p := s.For(resource, at(s.from))
		if last && p != nil && slices.ContainsFunc(p.Members, func(m rules.Member) bool { return m.Name == member && !m.Out }) {
			return true
		}
	}
	return false
}

// policies writes what influences the future of a world under policies.
func (e *encoder) policies(w *world) {
	e.num(len(w.changes))
	for i, s := range w.set {
		if i+1 == len(w.set) || w.set[i+1].from >= w.now-adoptWithin {
			e.num(i, max(s.from-w.now, -adoptWithin-1))
			e.policy(s.For(resource, at(s.from)))
		}
	}
	for _, p := range w.processes {
		e.num(int(p.identity.PolicyVersion.N), min(w.now-tickOf(p.identified), adoptWithin+1), max(p.pollBy-w.now, 0))
		e.flags(p.polls, p.watched, p.pollBy > 0, w.doc != nil && p.polled == w.doc.Version)
		if p.line.fresh && p.line.at.Policies != nil {
			e.num(int(p.line.at.Policies.Version.N))
		}
	}
}

func (e *encoder) policy(p *rules.Policy) {
	if p == nil {
		return
	}
	e.num(int(p.Limit))
	e.pointer(p.Until)
	for _, m := range p.Members {
		e.text(m.Name)
		e.flags(m.Out)
	}
}
