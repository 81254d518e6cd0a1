package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// finished takes down that an actor is done.
func (w *world) finished(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[a.name] = true
}

// owed reports whether a leave is the first on its resource since its call has ended.
func (w *world) owed(c *command) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := c.resources[0]
	if !c.call.done || c.call.left[r] {
		return false
	}
	c.call.left[r] = true
	return true
}

// owns takes down a session of nothing, to be ended with the play.
func (w *world) owns(s *lockcore.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, s)
}

// faultlessFor reports whether nothing has gone wrong for d. The mutex is held.
func (w *world) faultlessFor(d time.Duration) bool {
	return w.faultless && w.since() > w.plan.busy+d
}

// keptFirmly are the resources on which a lock ID has a kept hold that does not end by itself soon.
func (w *world) keptFirmly(lockID string) []string {
	var out []string
	for _, r := range w.plan.resources {
		d := w.db.Document(r)
		if slices.ContainsFunc(d.Entries, func(e rules.Entry) bool {
			return e.LockID == lockID && e.State == rules.StateKept && e.ExpiresAt.After(time.Now().Add(15*time.Second))
		}) {
			out = append(out, r)
		}
	}
	return out
}

// committed checks what a saga was told that it held, against what is known to have stood when it asked.
func (w *world) committed(a *actor, c *call, sure, told []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
	w.noted(a.name, a.lockID, "committed, and held %v", told)
	for _, r := range sure {
		if first, ok := c.first[r]; ok && !slices.Contains(told, r) && !w.releasedBy(a.lockID, r, c.began, first) && time.Since(c.began) < 12*time.Second {
			w.broken("I6 commit", a.lockID, "%s held %s until it committed, and is told that it did not", a.lockID, r)
		}
	}
}

// releasedBy reports whether another call released a lock ID's hold in that time.
func (w *world) releasedBy(lockID, resource string, from, to time.Time) bool {
	for _, r := range w.allReleases {
		if r.lockID == lockID && r.resource == resource && !r.at.Before(from) && r.at.Before(to) {
			return true
		}
	}
	return false
}

// renewedSeldom checks what a session costs.
func (w *world) renewedSeldom(a *actor, s *lockcore.Session, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.sessions[s]
	if st == nil || w.isOver() {
		return
	}
	if ttl == 0 || ttl == lockcore.Forever {
		ttl = w.plan.cfg.TTL
	}
	fair := 8 + 3*int(time.Since(st.began)/(ttl/3))
	for _, l := range s.Leases() {
		if n := w.renewals[partKey{l.Resource, l.LockID, l.Part}]; n > fair && !st.p.suffered(time.Since(st.began), l.Resource) {
			w.broken("cost", a.lockID, "%s of %s on %s was renewed %d times in %v", a.name, a.lockID, l.Resource, n, time.Since(st.began))
		}
	}
}

// settleDown waits until all have ended what they began, and then until every promise is over: everything can be had then.
func (w *world) settleDown(quiet <-chan struct{}) {
	began, endWithin := time.Now(), w.endWithin()
	for !w.over() {
		w.bury()
		w.mu.Lock()
		left := w.left()
		w.mu.Unlock()
		if left == "" {
			break
		}
		if time.Since(began) > endWithin {
			w.violate("I9 end", left, strings.Join(w.plan.resources, " "), "%s has not ended what it began within %v", left, endWithin)
		}
		w.phase(500*time.Millisecond, quiet)
	}
	w.phase(w.timesOver(), nil)
	w.bury()
	w.phase(2*w.plan.cfg.TTL, nil)
	for _, r := range w.plan.resources {
		if w.over() {
			return
		}
		ctx := context.Background()
		s, err := w.procs[0].locker.TryAcquire(ctx, lockcore.Request{LockID: "the last", Resources: []lockcore.Resource{lockcore.Exclusive(r)}})
		if err != nil {
			w.violate("I11", "the last", r, "all have ended or died, all times are over, and %s cannot be had: %v", r, err)
			return
		}
		_ = s.Leave(ctx)
	}
}

// timesOver is when no promise stands any more that was made before: a hold, a place, a claim of one that had slept, what
// drains without an end, and what a late command made.
func (w *world) timesOver() time.Duration {
	c := &w.plan.cfg
	return c.HoldTTL + 2*c.WaiterTTL + rules.EndlessTTL + rules.CommandTimeout
}

// endWithin is how long all that was begun may take to end: what the dead have left goes, and the living wait for each other.
func (w *world) endWithin() time.Duration { return w.timesOver() + parkedWithin + breakWithin }

// left is an actor that is not done, and not dead. The mutex is held.
func (w *world) left() string {
	for i := range w.plan.actors {
		if a := w.cast[i]; !w.done[a.name] && !a.p.dead() {
			return a.name
		}
	}
	return ""
}

// leftWithin is how long after a request gave up, or after its process's troubles, what it asked for may stand: a copy may
// come until the command timeout is over, and the cleanup pauses for up to 30 s after failures.
const leftWithin = rules.CommandTimeout + 35*time.Second

// nothingIsLeft is the half of I11 that is about requests that gave up: nothing stands of them that a living process should
// have taken back. The mutex is held.
func (w *world) nothingIsLeft() {
	left := func(key partKey, what string) {
		c := w.calls[key]
		if c == nil || c.gaveUp.IsZero() || !c.p.running() {
			return
		}
		since := c.gaveUp
		if last := c.p.lastTrouble(key.resource); last.After(since) {
			since = last
		}
		if time.Since(since) > leftWithin {
			w.broken("I11 left", key.lockID, "%s of %s gave up %v ago, and has a %s on %s", c.what, key.lockID, time.Since(c.gaveUp).Round(time.Millisecond), what, key.resource)
		}
	}
	for _, r := range w.plan.resources {
		d := w.db.Document(r)
		for i := range d.Entries {
			if e := &d.Entries[i]; e.State != rules.StateKept && lives(e, time.Now()) {
				left(partKey{r, e.LockID, e.Part}, e.State+" entry")
			}
		}
		for i := range d.Waiters {
			if q := &d.Waiters[i]; waits(q, time.Now()) {
				left(partKey{r, q.LockID, q.Part}, "place")
			}
		}
	}
}

// bury ends by force what has no end and belongs to processes that were killed.
func (w *world) bury() {
	for _, r := range w.plan.resources {
		d := w.db.Document(r)
		for _, e := range d.Entries {
			if e.State == rules.StateClaimed || e.TTL != 0 || !lives(&e, time.Now()) || !w.died(e.LockID) {
				continue
			}
			w.mourn(e.LockID)
			_, _ = w.procs[0].locker.ReleaseHeld(context.Background(), lockcore.Release{Force: true, LockID: e.LockID, Resources: []string{r}, FirstFence: e.FirstFence, Now: true, Reason: "its process was killed"})
		}
	}
}

// mourn takes the sessions of a lock ID whose processes were killed from those who trust: a release that does not wait says
// that they are known to be dead.
func (w *world) mourn(lockID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.sessions, func(_ *lockcore.Session, st *standing) bool { return st.lockID == lockID && st.p.dead() })
}

// died reports whether the processes of all actors of a lock ID were killed.
func (w *world) died(lockID string) bool {
	died := false
	for _, a := range w.cast {
		if a.lockID == lockID {
			if !a.p.dead() {
				return false
			}
			died = true
		}
	}
	return died
}

// wreck ends what is left in memory after the checks: everybody goes on, and all sessions end.
func (w *world) wreck() {
	w.cancel()
	for _, p := range w.procs {
		p.revive()
	}
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, s := range all {
		_ = s.Leave(context.Background())
	}
	for i, p := range w.procs {
		w.hush[i]()
		closeLocker(p.locker)
	}
}
