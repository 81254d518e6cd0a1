package lockcore

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// watcher wakes waiters of two kinds: local ones wait in a call of this Locker, and parked ones without a
// process, woken by the functions of [Steps.OnWakeup]. It polls a resource after writes of this Locker,
// whose answers name the claims that they made, and in the intervals of package pace. A poll reads all
// resources that are due with one command, and calls [rules.Next] for each waiter:
//
//	Go, Gone   the local waiter refreshes its request; the wake-up of a parked one is reported
//	Settle     the watcher writes the document once, so that the head of the queue is granted a claim;
//	           if the head is dead its claim lapses, and a later poll finds the next head
//	Wait       the watcher polls again, at the latest when time alone can change the answer
//
// Once a second it also reads the versions of the resources for which parked requests wait, with one
// command, and polls the resources that have changed: another process may have freed them without waking
// their workflows. A timer fires when the next poll or search for deadlocks is due: see deadlock.go.
type watcher struct {
	locker *Locker

	mu    sync.Mutex
	table map[string]*watched
	// waiting is the number of rows that are polled, which are those with a next time.
	waiting int
	// listeners are the functions of OnWakeup.
	listeners map[*listener]bool
	// timer fires at fireAt, if that is not zero.
	timer  *clock.Timer
	fireAt time.Time
	// compareAt is the time of the next read of versions.
	compareAt time.Time
	// polling is set during a poll, and searching during a search for deadlocks.
	polling, searching bool
	// searchAt is the time of the next search for deadlocks, and searched that of the last.
	searchAt, searched time.Time
}

// watched is the row of a resource.
type watched struct {
	local []*waiter
	// parked is set if there are, or may be, parked waiters.
	parked bool
	// read is the time of the last poll, and next that of the next one. next is zero until a local waiter
	// has queued.
	read, next time.Time
	// version is that of the document as it was last read; zero if there was none.
	version rules.Version
	// holder is the lock ID of a local waiter that was granted the resource alone, so that this Locker
	// learns of its end without polling.
	holder string
	// changed is set if WatchFor was called during a poll.
	changed bool
}

type waiter struct {
	resource string
	request  *rules.Waiter
	// keeps is set if the hold may end in another process.
	keeps bool
	// woken has a token if refreshing the request is worthwhile.
	woken chan struct{}
	// position is the position in the queue at the last poll, and moved the time since which it has it.
	position int
	moved    time.Time
	// stalled, if set, is called when the position has not improved for pace.PositionWait.
	stalled func()
}

// row returns the row of a resource, which it adds if there is none. The mutex is held.
func (w *watcher) row(resource string) *watched {
	r := w.table[resource]
	if r == nil {
		r = &watched{}
		w.table[resource] = r
	}
	return r
}

// add registers a request before it queues, so that no claim for it goes unnoticed.
func (w *watcher) add(op *rules.Acquire) *waiter {
	one := &waiter{resource: op.Resource, request: op.Waiter(), keeps: op.Keep, woken: make(chan struct{}, 1), moved: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.row(one.resource)
	r.local = append(r.local, one)
	return one
}

// whenStalled calls do if the position of a request does not improve for pace.PositionWait.
func (w *watcher) whenStalled(one *waiter, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.stalled, one.moved = do, time.Now()
}

// queued polls the resource of a request that has queued at a position. The last request that queues in a
// deadlock always finds it, since the search comes after.
func (w *watcher) queued(one *waiter, position int) {
	now, pause := time.Now(), pollPause(w.locker.holds.expect(one.resource, position, one.request.Limit))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.searchBy(now.Add(pace.SearchAfter))
	r := w.table[one.resource]
	if r.holder != "" {
		pause = pace.Poll
	}
	w.pollBy(r, now.Add(pause))
}

// pollBy makes the next poll of a resource no later than at. The mutex is held.
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

// drop removes the row of a resource. The mutex is held.
func (w *watcher) drop(resource string) {
	if !w.table[resource].next.IsZero() {
		w.waiting--
	}
	delete(w.table, resource)
}

// wake makes the waiter refresh its request.
func (one *waiter) wake() {
	select {
	case one.woken <- struct{}{}:
	default:
	}
}

// onWrite wakes the waiters that were granted a claim by a write of this Locker, or whose lock ID holds now.
// The document may lack the queue.
func (w *watcher) onWrite(a *update.Answer, endedHold bool) {
	d := a.After
	if len(d.Waiters) == 0 && len(a.Holds) == 0 && !a.Retried && !hasClaim(d) && !w.watches(d.ID) { // most writes
		return
	}
	q := d.Queue()
	wakeups, _ := wakeupsIn(d, q)
	w.mu.Lock()
	if len(wakeups) > 0 && len(w.listeners) > 0 { // poll for the confirmation, after which others may join
		r := w.row(d.ID)
		r.parked = true
		w.searchBy(time.Now().Add(pace.Search))
		w.pollBy(r, time.Now().Add(pace.ClaimPoll))
	}
	if r := w.table[d.ID]; r != nil {
		w.updateRow(r, a, q, endedHold)
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

// updateRow wakes the local waiters that may join the hold, and sets the holder and the time of the next
// poll after a write. The mutex is held.
func (w *watcher) updateRow(r *watched, a *update.Answer, q *rules.Queue, endedHold bool) {
	d := a.After
	if endedHold || slices.ContainsFunc(a.Ended, func(e rules.Entry) bool { return e.LockID == r.holder && e.State == rules.StateClaimed }) {
		r.holder = ""
	}
	for _, one := range r.local {
		if q.Joins(one.request.Party()) {
			one.wake()
		}
		if one.request.Mode == rules.Exclusive && !one.keeps && q.Latest(one.request) != nil {
			r.holder = one.request.LockID
		}
	}
	switch {
	case r.next.IsZero():
	case r.holder != "":
		r.next = rules.Later(r.next, r.read.Add(pace.Poll))
	case endedHold && len(r.local) > 0: // another process holds next
		w.pollBy(r, time.Now().Add(pollPause(w.locker.holds.expect(d.ID, 1, 1))))
	}
}

// notify wakes the local waiters that wake-ups name, and calls all listeners.
func (w *watcher) notify(wakeups []Wakeup) {
	if len(wakeups) == 0 {
		return
	}
	w.mu.Lock()
	listeners := slices.Collect(maps.Keys(w.listeners))
	type part struct{ resource, lockID, part string }
	named, rows := map[part]bool{}, map[string]bool{}
	for _, wakeup := range wakeups {
		named[part{wakeup.Resource, wakeup.LockID, wakeup.Part}], rows[wakeup.Resource] = true, true
	}
	for resource := range rows {
		if r := w.table[resource]; r != nil {
			for _, one := range r.local {
				if named[part{resource, one.request.LockID, one.request.Part}] {
					one.wake()
				}
			}
		}
	}
	w.mu.Unlock()
	for _, wakeup := range wakeups {
		for _, f := range listeners {
			f.call(wakeup)
		}
	}
}

// wakeupsIn returns wake-ups for the requests in a document that should be repeated: requests with a
// claim, even a lapsed one if there is no newer claim, requests that may join a hold, and the victims of deadlocks.
// expected is set if one of them should be repeated soon to get what it waits for.
func wakeupsIn(d *rules.Document, q *rules.Queue) (wakeups []Wakeup, expected bool) {
	if d == nil {
		return nil, false
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.State != rules.StateClaimed {
			continue
		}
		r := &rules.Waiter{Caller: e.Caller, Mode: e.Mode, Limit: e.Limit}
		if q.Next(r).Answer == rules.NextGo {
			wakeups, expected = append(wakeups, wakeupOf(d, &e.Caller)), expected || e.Alive(d.At)
		}
	}
	for i := range d.Waiters {
		w := &d.Waiters[i]
		switch {
		case w.IsTombstone(d.At): // the process that withdrew it may have died since, or may be unable to wake it
			wakeup := wakeupOf(d, &w.Caller)
			wakeup.Cycle = strings.TrimPrefix(w.Verdict, deadlockReason)
			wakeups = append(wakeups, wakeup)
		case w.Waits(d.At) && q.NeedsNoClaim(w.Party()):
			wakeups, expected = append(wakeups, wakeupOf(d, &w.Caller)), expected || !w.Overdue(d.At)
		}
	}
	return wakeups, expected
}

// hasVictim reports whether a document has the victim of a deadlock.
func hasVictim(d *rules.Document) bool {
	return d != nil && slices.ContainsFunc(d.Waiters, func(w rules.Waiter) bool { return w.IsTombstone(d.At) })
}

// hasClaim reports whether a document has a claim, lapsed or not.
func hasClaim(d *rules.Document) bool {
	return d != nil && slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.State == rules.StateClaimed })
}

// watches reports whether a resource has a row.
func (w *watcher) watches(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table[resource] != nil
}

// searchBy makes the next search no later than at, but not too soon after the last. The mutex is held.
func (w *watcher) searchBy(at time.Time) {
	at = rules.Later(at, w.searched.Add(w.paced(pace.MinSearch)))
	if w.searchAt.IsZero() || at.Before(w.searchAt) {
		w.searchAt = at
		if !w.searching {
			w.fireBy(at)
		}
	}
}

// paced returns a pause. It is longer than usual if many resources are read after it, so that reads take a
// small part of the time. The mutex is held.
func (w *watcher) paced(usual time.Duration) time.Duration {
	return max(usual, time.Duration(w.waiting)*pace.PerResource)
}

// fireBy makes the timer fire no later than at, or after the poll that is under way. The mutex is held.
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

// pollDue polls the resources that are due, and starts a search for deadlocks if one is due.
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

// pollAll polls all resources soon: a policy may let a waiter in.
func (w *watcher) pollAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.table {
		if r.changed = true; !r.next.IsZero() {
			w.pollBy(r, time.Now())
		}
	}
}

// begin records that a poll of the resource begins. The watcher's mutex is held.
func (r *watched) begin(now time.Time) {
	r.read, r.next, r.changed = now, now.Add(pace.MaxPoll), false
}

// isDue reports whether to poll the resource now. A resource for which only parked requests wait is polled
// up to a second early, together with others, so that fewer commands are sent.
func (r *watched) isDue(now time.Time) bool {
	if len(r.local) == 0 && !r.read.IsZero() && r.next.Sub(r.read) >= pace.MaxPoll {
		now = now.Add(pace.Coalesce)
	}
	return !r.next.IsZero() && !r.next.After(now)
}

func (w *watcher) poll(names []string) {
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	loaded, err := w.locker.readMajority(ctx, names...)
	for _, name := range names {
		if err != nil {
			w.schedule(name, pace.SettleRetry)
			continue
		}
		if loaded.Damaged[name] != nil { // only the waiters for this resource wait until it is mended
			w.schedule(name, pace.MaxPoll)
			continue
		}
		d := loaded.Docs[name]
		if d != nil {
			w.locker.lines.Offer(d)
			w.locker.keeper.noteForced(d)
		}
		q := d.Queue()
		wakeups, expected := wakeupsIn(d, q)
		pause := w.evaluate(name, d, q, expected)
		w.notify(append(wakeups, holdsGranted(d)...))
		if pause > 0 && q.Due() {
			go w.settle(name, pause) // a document whose writes hang must not delay the waiters of others
			continue
		}
		w.schedule(name, pause)
	}
}

// settle lets the head of a queue be granted a claim, and polls again soon.
func (w *watcher) settle(name string, pause time.Duration) {
	ctx, cancel := w.locker.clock.WithTimeout(w.locker.life.closing, cleanupTimeout)
	defer cancel()
	if pause = min(pause, pace.ClaimPoll); !w.locker.settle(ctx, name) {
		pause = pace.SettleRetry
	}
	w.schedule(name, pause)
}

// evaluate wakes the local waiters that should refresh their requests, and returns the time until the next
// poll; 0 if no request waits. expected is as in wakeupsIn.
func (w *watcher) evaluate(name string, d *rules.Document, q *rules.Queue, expected bool) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.table[name]
	if r == nil {
		return 0
	}
	if r.version = (rules.Version{}); d != nil {
		r.version = d.Version
	}
	r.parked = r.parked && (r.changed || q.Waiting > 0 || hasClaim(d) || hasVictim(d))
	switch {
	case len(r.local) > 0:
		pause = pace.Poll
	case r.parked && expected:
		pause = pace.ClaimPoll
	case r.parked:
		pause = w.paced(pace.MaxPoll)
	default:
		return 0
	}
	here := d != nil && slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.LockID == r.holder })
	for _, one := range r.local {
		next := q.Next(one.request)
		// Position is 0 as long as a claim of the request has lapsed and is not forfeited.
		if next.Position != one.position && (one.position == 0 || next.Position < one.position) {
			one.position, one.moved = next.Position, time.Now()
		}
		switch {
		case next.Answer == rules.NextGo, next.Answer == rules.NextGone:
			one.wake()
		case next.Answer == rules.NextWait && one.stalled != nil && time.Since(one.moved) >= pace.PositionWait:
			one.stalled()
		}
		if !here && next.Answer == rules.NextWait { // the later the grant is, the longer the pause
			grantIn := w.locker.holds.expect(name, next.Position, d.Capacity(one.request.Mode, one.request.Limit))
			pause = min(pause, pollPause(max(grantIn, time.Since(one.moved))))
		}
		pause = w.sooner(pause, next.ValidFor)
	}
	return w.sooner(pause, q.ValidFor())
}

// pollPause returns the pause before a grant, perhaps by another process, that is expected in grantIn.
func pollPause(grantIn time.Duration) time.Duration {
	return min(pace.Poll, max(grantIn/pace.PollsPerGrant, pace.MinPoll))
}

// sooner returns the pause, or a shorter one if time alone changes something before its end.
func (w *watcher) sooner(pause, change time.Duration) time.Duration {
	if change > 0 && change < pause {
		return change + time.Millisecond + w.locker.clock.Jitter(pace.Spread)
	}
	return pause
}

// schedule sets the time of the next poll, or removes the row of a resource for which no request waits.
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
