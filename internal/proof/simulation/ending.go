package simulation

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// finished records that an actor has ended.
func (w *world) finished(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[a.name] = true
}

// settleDown waits until all actors have ended, and then until every TTL has passed. After that every resource must be free.
func (w *world) settleDown(quiet <-chan struct{}) {
	began, endWithin := time.Now(), w.endWithin()
	for !w.over() {
		w.releaseDead()
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
	w.releaseDead()
	w.phase(2*w.plan.cfg.TTL, nil)
	for _, r := range w.plan.resources {
		if w.over() {
			return
		}
		ctx, last := context.Background(), lockcore.Exclusive(r)
		if w.plan.pool && r == "pool" {
			last = lockcore.Pool(r)
		}
		s, err := w.procs[0].locker.TryAcquire(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lastLockID}, Resources: []lockcore.Resource{last}})
		if err != nil {
			w.violate("I11", lastLockID, r, "all have ended or died, all times are over, and %s cannot be had: %v", r, err)
			return
		}
		_ = s.Leave(ctx)
	}
}

// timesOver returns the time after which no earlier hold, waiter, claim, draining part or late command is in force.
func (w *world) timesOver() time.Duration {
	c := &w.plan.cfg
	return c.HoldTTL + 2*c.WaiterTTL + rules.EndlessTTL + update.CommandTimeout + time.Duration(w.skew.Load())
}

// endWithin bounds the time for all actors to end: locks of dead processes expire, and living ones wait for each other.
func (w *world) endWithin() time.Duration { return w.timesOver() + parkedWithin + breakWithin }

// left returns the name of a living actor that has not ended, or "". The mutex is held.
func (w *world) left() string {
	for i := range w.plan.actors {
		if a := w.cast[i]; !w.done[a.name] && !a.p.dead() {
			return a.name
		}
	}
	return ""
}

// leftWithin bounds the time for which entries of a request may exist after it gave up, or after its process's troubles: a
// copy may arrive within the command timeout, and the cleanup pauses for up to 30 s after failures.
const leftWithin = update.CommandTimeout + 35*time.Second

// checkLeftovers is the half of I11 about requests that gave up: a living process must have taken back their entries and
// waiters. The mutex is held.
func (w *world) checkLeftovers() {
	left := func(key partKey, what string) {
		c := w.calls[partKey{"", key.lockID, key.part}]
		if c == nil || c.gaveUp.IsZero() || !c.p.running() {
			return
		}
		if time.Since(later(c.gaveUp, c.p.lastTrouble(key.resource))) > leftWithin {
			w.broken("I11 left", key.lockID, "%s of %s gave up %v ago, and has a %s on %s", c.what, key.lockID, time.Since(c.gaveUp).Round(time.Millisecond), what, key.resource)
		}
	}
	for _, r := range w.plan.resources {
		d := w.doc(r)
		for e := range each(d.Entries) {
			if e.State != rules.StateKept && lives(e, w.clock()) {
				left(partKey{r, e.LockID, e.Part}, e.State+" entry")
			}
		}
		for q := range each(d.Waiters) {
			if q.Waits(w.clock()) {
				left(partKey{r, q.LockID, q.Part}, "place")
			}
		}
	}
}

// releaseDead releases by force the endless holds of killed processes.
func (w *world) releaseDead() {
	for _, r := range w.plan.resources {
		d := w.document(r)
		for _, e := range d.Entries {
			if e.State == rules.StateClaimed || e.TTL != 0 || !lives(&e, w.clock()) || !w.died(e.LockID) {
				continue
			}
			w.dropSessionsOf(e.LockID)
			force := lockcore.Release{Force: true, LockID: e.LockID, Resources: []string{r}, FirstFence: e.FirstFence, Now: true, Reason: "its process was killed"}
			w.releasing(&call{began: time.Now()}, force)
			_ = w.procs[0].locker.Release(context.Background(), force)
		}
	}
}

// dropSessionsOf removes the sessions of killed processes of a lock ID from the checks of trust, since a release without
// draining asserts that they have stopped.
func (w *world) dropSessionsOf(lockID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.sessions, func(_ *lockcore.Session, st *openSession) bool { return st.lockID == lockID && st.p.dead() })
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

// shutDown ends all sessions and Lockers after the checks. Frozen and killed processes continue for this.
func (w *world) shutDown() {
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
	for _, p := range w.procs {
		p.stopListening()
		_ = p.locker.Close(context.Background())
	}
}

// lastLockID is the lock ID that acquires every resource at the end.
const lastLockID = "the last"
