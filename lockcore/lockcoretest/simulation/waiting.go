package simulation

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
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
	grantWithin = 3 * (pace.Read + pace.Settle)
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
	if !waits(q, time.Now()) {
		return false
	}
	if w.parked[key] != nil {
		return true
	}
	c := w.calls[key]
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
	c := w.calls[key]
	return c.p.lastTrouble(key.resource), grantWithin, c.p.running()
}

// everyWaiterGetsItsTurn is I9: the first who waits is granted what is free, and each that may join joins.
func (w *world) everyWaiterGetsItsTurn() {
	now := time.Now()
	free := map[partKey]string{}
	for _, r := range w.plan.resources {
		d := w.db.Document(r)
		d.At = now.Add(-w.plan.jump)
		ahead := false
		for i := range d.Waiters {
			q := &d.Waiters[i]
			key := partKey{r, q.LockID, q.Part}
			switch here, admits := w.present(key, q), d.Admits(q.Party()) && !exclusivelyHeld(&d, q); {
			case !here && (admits || passedOver(q, now)):
				// The dead is granted a claim, which then keeps others out, or is passed over.
			case !here:
				ahead = true
			case q.Label == "" && joins(&d, q), q.Label != "" && d.AsksItself(q.Party()):
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
// which waits until what drains of it has ended: see "No claims beside an exclusive holder" in docs/internals.md.
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
