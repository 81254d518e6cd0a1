package party

import (
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// watcher wakes those who have queued, of two kinds: local waiters wait in [Locker.Acquire], and
// parked ones without a process, woken by those that listen with [Locker.OnWakeup]. It looks at a
// resource after a write of this Locker, whose answer names the claims that it made, and by the
// intervals of package pace. A look reads all resources that are due in one command, and asks
// [rules.Next] what each document means:
//
//	Go, Gone   the local waiter asks again; the parked one's wake-up is told to those who listen
//	Settle     the watcher writes the document once, so that the head of the queue is granted a claim;
//	           if the head is dead its claim lapses, and the next look finds the next head
//	Wait       the watcher looks again, at the latest when time alone may change the answer
//
// Of the resources for which parked requests wait it also reads the versions once a second, in one
// command, and looks at those that have changed: a process that does not wake their workflows may
// have freed them. A timer fires when the next look is due, and when a search for deadlocks is: see deadlock.go.
type watcher struct {
	locker *Locker

	mu    sync.Mutex
	table map[string]*watched
	// waiting is how many of them are looked at, which are those that a request has queued for.
	waiting int
	// listeners are those of OnWakeup.
	listeners map[*listener]bool
	// timer fires at fireAt, if that is not zero.
	timer  *clock.Timer
	fireAt time.Time
	// compareAt is when to read versions next.
	compareAt time.Time
	// looking says that a look is under way, and searching that a search is.
	polling, searching bool
	// searchAt is when to search for deadlocks next, and searched when the last search began.
	searchAt, searched time.Time
}

type watched struct {
	local []*waiter
	// parked says that there are, or may be, parked waiters.
	parked bool
	// read is when it was last read, and next when to read it again: zero if no local waiter has
	// queued yet.
	read, next time.Time
	// version is that of the document which was read last; zero if there was none.
	version rules.Version
	// holder is the lock ID that was let in here, and alone, so that this Locker hears of its end
	// without looking.
	holder string
	// changed says that parked waiters were tended while a look was under way.
	changed bool
}

type waiter struct {
	resource string
	request  *rules.Waiter
	// keeps says that its hold may end in another process.
	keeps bool
	// woken holds one token when asking again is worthwhile.
	woken chan struct{}
	// position is its place when it was last looked at, and moved since when it has that.
	position int
	moved    time.Time
	// stalled, if there is one, is called when that has been so for pace.PositionWait.
	stalled func()
}

const searchWithin = time.Minute

func newWatcher(l *Locker) *watcher {
	return &watcher{
		locker: l, table: map[string]*watched{}, listeners: map[*listener]bool{},
	}
}

// of is the table's row of a resource, which is made if there is none. The mutex is held.
func (w *watcher) row(resource string) *watched {
	r := w.table[resource]
	if r == nil {
		r = &watched{}
		w.table[resource] = r
	}
	return r
}

// add registers a request before it queues, so that no claim is made for it unheard.
func (w *watcher) add(op *rules.Acquire) *waiter {
	one := &waiter{resource: op.Resource, request: op.Waiter(), keeps: op.Persist, woken: make(chan struct{}, 1), moved: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.row(one.resource)
	r.local = append(r.local, one)
	return one
}

// whenStalled has do called if the place of a request does not move for pace.PositionWait.
func (w *watcher) whenStalled(one *waiter, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.stalled, one.moved = do, time.Now()
}

// queued has the resource of a request watched, which waits now, and can expect its turn then. The
// last that queues in a deadlock always sees it, since the search comes after.
func (w *watcher) queued(one *waiter, turn time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.searchBy(now.Add(pace.SearchAfter))
	r := w.table[one.resource]
	if r.holder != "" {
		turn = 0
	}
	w.pollBy(r, now.Add(pollPause(pace.Poll, turn)))
}

// pollBy makes the next look at a resource no later than at. The mutex is held.
func (w *watcher) pollBy(r *watched, at time.Time) {
	if r.next.IsZero() {
		w.waiting++
	}
	if r.next.IsZero() || at.Before(r.next) {
		r.next = at
		w.fireBy(at)
	}
}

func (w *watcher) remove(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.table[one.resource]
	r.local = slices.DeleteFunc(r.local, func(other *waiter) bool { return other == one })
	if len(r.local) == 0 && !r.parked {
		w.drop(one.resource)
	}
}

// drop forgets a resource. The mutex is held.
func (w *watcher) drop(resource string) {
	if !w.table[resource].next.IsZero() {
		w.waiting--
	}
	delete(w.table, resource)
}

// call has a request asked again.
func (one *waiter) wake() {
	select {
	case one.woken <- struct{}{}:
	default:
	}
}

// wrote takes in a document that a write of this Locker left, which may lack the queue: it wakes
// those who were granted a claim, or whose lock ID has come to hold. After a claim for a parked
// waiter the resource is looked at soon, when the claim is confirmed, and others of its lock ID may
// join.
func (w *watcher) onWrite(a *update.Answer, endedHold bool) {
	d := a.After
	if len(d.Waiters) == 0 && len(a.Holds) == 0 && !a.Retried && !hasClaim(d) && !w.watches(d.ID) { // most writes: nothing waits here
		return
	}
	wakeups, _ := wakeupsIn(d, d.Queue())
	w.mu.Lock()
	if len(wakeups) > 0 && len(w.listeners) > 0 {
		r := w.row(d.ID)
		r.parked = true
		w.searchBy(time.Now().Add(pace.Search))
		w.pollBy(r, time.Now().Add(pace.ClaimPoll))
	}
	if r := w.table[d.ID]; r != nil {
		if endedHold || slices.ContainsFunc(a.Ended, func(e rules.Entry) bool { return e.LockID == r.holder && e.State == rules.StateClaimed }) {
			r.holder = ""
		}
		for _, one := range r.local {
			if d.Joins(one.request.Party()) {
				one.wake()
			}
			if one.request.Mode == rules.Exclusive && !one.keeps && d.Claim(one.request.LockID, one.request.Part) != nil {
				r.holder = one.request.LockID
			}
		}
		switch {
		case r.next.IsZero():
		case r.holder != "":
			r.next = later(r.next, r.read.Add(pace.Poll))
		case endedHold && len(r.local) > 0: // the next to hold is elsewhere
			w.pollBy(r, time.Now().Add(pollPause(pace.Poll, w.locker.holds.predict(d.ID, 1, 1))))
		}
	}
	if endedHold && len(w.listeners) > 0 {
		wakeups = append(wakeups, w.earlyWakeups(d)...)
	}
	w.mu.Unlock()
	for i := range a.Holds {
		wakeups = append(wakeups, holdGranted(d, &a.Holds[i]))
	}
	if a.Retried { // an earlier swap may have been applied, whose answer was lost
		wakeups = append(wakeups, holdsGranted(d)...)
	}
	w.notify(wakeups)
}

// watches reports whether a resource is in the table.
func (w *watcher) watches(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table[resource] != nil
}

// searchBy makes the next search no later than at, but not too soon after the last. The mutex is
// held.
func (w *watcher) searchBy(at time.Time) {
	at = later(at, w.searched.Add(w.paced(pace.MinSearch)))
	if w.searchAt.IsZero() || at.Before(w.searchAt) {
		w.searchAt = at
		if !w.searching {
			w.fireBy(at)
		}
	}
}

// paced is a pause, or longer if what is to be read then is about many resources, so that it is
// read for a small part of the time only. The mutex is held.
func (w *watcher) paced(usual time.Duration) time.Duration {
	return max(usual, time.Duration(w.waiting)*pace.PerResource)
}

// fireBy has the timer fire no later than at. The mutex is held. While a look is under way the
// timer waits for its end.
func (w *watcher) fireBy(at time.Time) {
	if w.polling || (!w.fireAt.IsZero() && !at.Before(w.fireAt)) {
		return
	}
	w.fireAt = at
	if wait := max(0, time.Until(at)); w.timer == nil {
		w.timer = w.locker.clock.AfterFunc(wait, w.pollDue)
	} else {
		w.timer.Reset(wait)
	}
}

// pass looks at what is due, and begins a search for deadlocks if one is, beside the looks.
func (w *watcher) pollDue() {
	w.mu.Lock()
	if w.polling {
		w.mu.Unlock()
		return
	}
	w.polling, w.fireAt = true, time.Time{}
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
		w.poll(due)
	}
	if changed := w.changed(others); len(changed) > 0 {
		w.poll(changed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polling = false
	waits := false
	for _, r := range w.table {
		if !r.next.IsZero() {
			w.fireBy(r.next)
			waits = true
			if r.parked {
				w.fireBy(w.compareAt)
			}
		}
	}
	switch {
	case !waits:
		w.searchAt = time.Time{}
	case !w.searching:
		w.fireBy(w.searchAt)
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
		w.fireBy(w.searchAt)
	}
}

func (w *watcher) poll(names []string) {
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	docs, err := w.locker.readMajority(ctx, names...)
	for _, name := range names {
		if err != nil {
			w.schedule(name, pace.SettleRetry)
			continue
		}
		d := docs[name]
		if d != nil {
			w.locker.lines.Offer(d)
		}
		q := d.Queue()
		wakeups, eager := wakeupsIn(d, q)
		pause := w.evaluate(name, d, q, eager)
		w.notify(append(wakeups, holdsGranted(d)...))
		switch {
		case pause == 0:
		case q.Due() && w.locker.settle(ctx, name):
			pause = min(pause, pace.ClaimPoll)
		case q.Due():
			pause = pace.SettleRetry
		}
		w.schedule(name, pause)
	}
}

// found calls the local waiters that a document lets go on, and returns when to look again; 0 if
// none is left. told says that parked ones were told of their wake-ups, and are expected.
func (w *watcher) evaluate(name string, d *rules.Document, q *rules.Queue, told bool) (pause time.Duration) {
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
			one.wake()
		case look.Answer == rules.NextWait && one.stalled != nil && time.Since(one.moved) >= pace.PositionWait:
			one.stalled()
		}
		if turn := w.locker.holds.predict(name, look.Position, one.request.Limit); turn > 0 && !here { // one that is late is looked for less and less often
			pause = pollPause(pause, max(turn, time.Since(one.moved)))
		}
		pause = w.sooner(pause, look.ValidFor)
	}
	return w.sooner(pause, q.ValidFor())
}

// soonest is the pause, or less if a turn is known to be near, which may come in another process.
func pollPause(usual, turn time.Duration) time.Duration {
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

// schedule sets when to look next, or forgets a resource for which no request waits.
func (w *watcher) schedule(name string, pause time.Duration) {
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
	w.pollBy(r, r.read.Add(max(pause, pace.MinPoll)))
}

// near lists the parked requests at the head of a queue whose turn is near, as many as may wait
// inline. The mutex is held.
func (w *watcher) earlyWakeups(d *rules.Document) (early []Wakeup) {
	r := w.table[d.ID]
	for i := range d.Waiters {
		one := &d.Waiters[i]
		turn := w.locker.holds.predict(d.ID, i+1, one.Limit)
		if turn == 0 || turn > pace.WakeLead || len(early) >= w.locker.inline.room() {
			break
		}
		here := r != nil && slices.ContainsFunc(r.local, func(l *waiter) bool { return l.request.LockID == one.LockID && l.request.Part == one.Part })
		if one.Label != "" && one.Hold == nil && !here && one.Waits(d.At) && !one.Overdue(d.At) {
			call := wakeupOf(d, one.LockID, one.Label, one.Part, one.Order)
			call.Early = true
			early = append(early, call)
		}
	}
	return early
}
