package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// told is what the parties were told.
type told struct {
	sessions map[*lockcore.Session]*standing
	// all are those that there ever were.
	all      []*lockcore.Session
	lastCall int
	// done are the actors that have ended.
	done map[string]bool
	// renewals are counted by part.
	renewals map[partKey]int
	// releases are when each lock ID was released last, by whomever.
	releases    map[string]time.Time
	allReleases []released
}

// released is that a release took effect.
type released struct {
	lockID, resource string
	at               time.Time
}

func newTold() told {
	return told{sessions: map[*lockcore.Session]*standing{}, done: map[string]bool{}, renewals: map[partKey]int{}, releases: map[string]time.Time{}}
}

// standing is a session that a process has, and has not ended.
type standing struct {
	s      *lockcore.Session
	p      *process
	actor  string
	lockID string
	began  time.Time
	// untrusted is since when it has a lease that is over, and hadLost says that it has told of a loss.
	untrusted time.Time
	hadLost   bool
}

// holds takes down that an actor was given a session.
func (w *world) holds(a *actor, p *process, lockID string, s *lockcore.Session, kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := &standing{s: s, p: p, actor: a.name, lockID: lockID, began: time.Now()}
	w.sessions[s] = st
	w.all = append(w.all, s)
	for _, l := range s.Leases() {
		w.noted(a.name, lockID, "holds %s %s in %s with fence %d", l.Resource, l.Mode, p.name, l.Fence)
		if d := w.db.Document(l.Resource); kept && d.HoldFence(lockID) == l.FirstFence { // or it was released while the answer was on its way
			w.relied[partKey{l.Resource, lockID, l.Part}] = true
		}
	}
	for _, l := range s.Leases() {
		w.trustIsExclusive(l.Resource)
	}
	context.AfterFunc(s.Context(), func() { w.lost(st) })
}

// ends takes down that an actor ends its session: from now on it trusts nothing.
func (w *world) ends(s *lockcore.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, s)
}

// trusted are a session's leases on a resource that are valid and not known to be lost.
func (st *standing) trusted(resource string) (lockcore.Lease, bool) {
	if lossOf(st.s) != nil {
		return lockcore.Lease{}, false
	}
	for _, l := range st.s.Leases() {
		if l.Resource == resource && l.Valid() {
			return l, true
		}
	}
	return lockcore.Lease{}, false
}

// trustIsExclusive is I1. The mutex is held.
func (w *world) trustIsExclusive(resource string) {
	type trust struct {
		st *standing
		l  lockcore.Lease
	}
	var all []trust
	for _, st := range w.sessions {
		l, ok := st.trusted(resource)
		if !ok {
			continue
		}
		for _, o := range all {
			if o.l.LockID == l.LockID && (o.l.Run != l.Run || undoes(o.l, l) || undoes(l, o.l)) {
				w.broken("I1 run", l.LockID, "%s of run %s (in %s) and %s of run %s (in %s) both trust %s: one was cut off", l.Part, l.Run, st.p.name, o.l.Part, o.l.Run,
					o.st.p.name, resource)
			}
			if o.l.LockID != l.LockID && !rules.Compatible(string(o.l.Mode), string(l.Mode)) {
				w.broken("I1", l.LockID, "%s of %s (%s, fence %d, in %s) and %s of %s (%s, fence %d, in %s) both trust %s", st.actor, l.LockID, l.Mode, l.Fence,
					st.p.name, o.st.actor, o.l.LockID, o.l.Mode, o.l.Fence, o.st.p.name, resource)
			}
		}
		all = append(all, trust{st, l})
	}
}

// undoes reports whether a lease is that of a compensation of another one's step.
func undoes(l, of lockcore.Lease) bool { return slices.Contains(l.Undone, of.Part) }

// lossesAreTold: the holder of a lease that is over hears of it. The mutex is held.
func (w *world) lossesAreTold() {
	for s, st := range w.sessions {
		if st.hadLost && lossOf(s) == nil {
			w.broken("I8", st.lockID, "%s of %s had told of a loss, and does not any more", st.actor, st.lockID)
		}
		st.hadLost = lossOf(s) != nil
		over := ""
		for _, l := range s.Leases() {
			if !l.Valid() {
				over = l.Resource
			}
		}
		switch {
		case over == "" || !st.p.running() || lossOf(s) != nil:
			st.untrusted = time.Time{}
		case st.untrusted.IsZero() || st.p.lastTrouble("").After(st.untrusted):
			st.untrusted = time.Now()
		case time.Since(st.untrusted) > time.Second:
			kind := "untold loss"
			if s.Context().Err() != nil {
				kind = "untold loss parent"
			}
			w.broken(kind, st.lockID, "%s of %s in %s has a lease on %s that is over, and nobody told it", st.actor, st.lockID, st.p.name, over)
		}
	}
}

// lost checks that a loss that was told is one.
func (w *world) lost(st *standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[st.s] == nil || w.isOver() {
		return
	}
	var loss *lockcore.LostError
	if !errors.As(lossOf(st.s), &loss) {
		return
	}
	w.noted(st.actor, st.lockID, "is told: %v", loss)
	for _, l := range st.s.Leases() {
		if l.Resource != loss.Resource {
			continue
		}
		d := w.db.Document(l.Resource)
		if d.Part(l.LockID, l.Part, number(l.Order)) == nil {
			return // how it was ended was checked when that was written
		}
		// What is left may be little from the beginning, if the answer to the grant was lost.
		if !st.p.suffered(l.Left, l.Resource) && !st.p.suffered(w.plan.cfg.TTL, l.Resource) {
			w.broken("false loss", st.lockID, "%s in %s is told that %s has lost %s, which it holds: %v", st.actor, st.p.name, st.lockID, l.Resource, loss)
		}
	}
}

// number is an order as it is stored.
func number(o lockcore.Order) int64 { return int64(o.Schedule)<<32 | int64(o.Attempt) }
