package party

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// pass looks at what is due, and begins a search for deadlocks if one is, beside the looks.
func (w *watcher) pass() {
	w.mu.Lock()
	if w.looking {
		w.mu.Unlock()
		return
	}
	w.looking, w.wakeAt = true, time.Time{}
	now := time.Now()
	compares := !now.Before(w.compareAt)
	var due, others []string
	for name, r := range w.table {
		switch {
		case r.isDue(now):
			due = append(due, name)
			r.begin(now)
		case compares && r.parked:
			others = append(others, name)
		}
	}
	if compares {
		w.compareAt = now.Add(max(pace.VersionPoll, time.Duration(w.waiting)*pace.VersionPollEach))
	}
	if len(w.table) > 0 && !w.searching && !w.searchAt.After(now) {
		w.searching, w.searched, w.searchAt = true, now, now.Add(w.paced(pace.Search))
		go w.search()
	}
	w.mu.Unlock()
	slices.Sort(due)
	if len(due) > 0 {
		w.look(due)
	}
	if changed := w.changed(others); len(changed) > 0 {
		w.look(changed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = false
	waits := false
	for _, r := range w.table {
		if !r.next.IsZero() {
			w.wakeBy(r.next)
			waits = true
			if r.parked {
				w.wakeBy(w.compareAt)
			}
		}
	}
	switch {
	case !waits:
		w.searchAt = time.Time{}
	case !w.searching:
		w.wakeBy(w.searchAt)
	}
}

// begin notes that a look at the resource begins. The watcher's mutex is held.
func (r *watched) begin(now time.Time) {
	r.read, r.next, r.changed = now, now.Add(pace.MaxPoll), false
}

// changed returns the resources whose documents have other versions than when they were read last.
func (w *watcher) changed(names []string) (changed []string) {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	versions, err := w.locker.store.Versions(ctx, names...)
	if err != nil {
		return nil // it reads them again
	}
	now := time.Now()
	slices.Sort(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if r := w.table[name]; r != nil && r.version != versions[name] {
			changed = append(changed, name)
			r.begin(now)
		}
	}
	return changed
}

// isDue reports whether to look at the resource now. What only parked requests wait for is read along
// with others, up to a second before its turn: many are then read by few commands.
func (r *watched) isDue(now time.Time) bool {
	if len(r.local) == 0 && !r.read.IsZero() && r.next.Sub(r.read) >= pace.MaxPoll {
		now = now.Add(pace.Coalesce)
	}
	return !r.next.IsZero() && !r.next.After(now)
}

func (w *watcher) search() {
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, searchWithin)
	defer cancel()
	_, _ = w.locker.BreakDeadlocks(ctx) // after an error the next search comes after the pause
	w.mu.Lock()
	defer w.mu.Unlock()
	w.searching = false
	if !w.searchAt.IsZero() {
		w.wakeBy(w.searchAt)
	}
}

func (w *watcher) look(names []string) {
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	docs, err := w.locker.look(ctx, names...)
	for _, name := range names {
		if err != nil {
			w.lookAgain(name, pace.SettleRetry)
			continue
		}
		d := docs[name]
		if d != nil {
			w.locker.lines.Offer(d)
		}
		q := d.Queue()
		wakeups, eager := wakeupsIn(d, q)
		pause := w.found(name, d, q, eager)
		w.tell(append(wakeups, holdsGranted(d)...))
		switch {
		case pause == 0:
		case q.Due() && w.locker.settle(ctx, name):
			pause = min(pause, pace.ClaimPoll)
		case q.Due():
			pause = pace.SettleRetry
		}
		w.lookAgain(name, pause)
	}
}

// found calls the local waiters that a document lets go on, and returns when to look again; 0 if
// none is left. told says that parked ones were told of their wake-ups, and are expected.
func (w *watcher) found(name string, d *rules.Document, q *rules.Queue, told bool) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.table[name]
	if r == nil {
		return 0
	}
	if r.version = (rules.Version{}); d != nil {
		r.version = d.Version
	}
	r.parked = r.parked && (r.changed || q.Waiting > 0 || hasClaim(d))
	switch {
	case len(r.local) > 0:
		pause = pace.Poll
	case r.parked && told:
		pause = pace.ClaimPoll
	case r.parked:
		pause = w.paced(pace.MaxPoll)
	default:
		return 0
	}
	here := d != nil && slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.LockID == r.holder })
	for _, one := range r.local {
		look := q.Next(one.request)
		if one.position == 0 || look.Position < one.position {
			one.position, one.moved = look.Position, time.Now()
		}
		switch {
		case look.Answer == rules.NextGo, look.Answer == rules.NextGone:
			one.call()
		case look.Answer == rules.NextWait && one.stalled != nil && time.Since(one.moved) >= pace.PositionWait:
			one.stalled()
		}
		if turn := w.locker.holds.turn(name, look.Position, one.request.Limit); turn > 0 && !here { // one that is late is looked for less and less often
			pause = soonest(pause, max(turn, time.Since(one.moved)))
		}
		pause = w.sooner(pause, look.ValidFor)
	}
	return w.sooner(pause, q.ValidFor())
}

// soonest is the pause, or less if a turn is known to be near, which may come in another process.
func soonest(usual, turn time.Duration) time.Duration {
	if turn > 0 {
		return min(usual, max(turn/pace.PollsPerGrant, pace.MinPoll))
	}
	return usual
}

// sooner is the pause, or less if something changes by time alone in that time.
func (w *watcher) sooner(pause, change time.Duration) time.Duration {
	if change > 0 && change < pause {
		return change + time.Millisecond + w.locker.clock.Jitter(pace.Spread)
	}
	return pause
}

// lookAgain sets when to look next, or forgets a resource for which no request waits.
func (w *watcher) lookAgain(name string, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.table[name]
	switch {
	case r == nil:
		return
	case r.changed:
		r.changed, pause = false, 0
	case pause == 0 && len(r.local) == 0:
		w.drop(name)
		return
	}
	w.lookBy(r, r.read.Add(max(pause, pace.MinPoll)))
}
