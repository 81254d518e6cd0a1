package lockcore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// Turn says that a queued request is worth making again, by [Locker.Enter] with a greater order.
type Turn struct {
	Resource string
	LockID   string
	Part     string
	Order    Order
	// Deadlock is empty where the resource was granted to the request, as a claim that stands for Config.ClaimTTL.
	// Else the request was taken out of the queue to end this deadlock.
	Deadlock string
}

// OnTurn has f called with the turns that this Locker comes to know of: by its own writes, and on the resources that
// it tends. f may be called more than once with the same turn, and for requests for which an Acquire of this process
// waits; it must not block. After stop it is not called any more.
//
// It is for those who wait without a process, such as workflows. A turn that nobody hears of is lost, until the
// claim lapses and the request is at the head of the queue again.
func (l *Locker) OnTurn(f func(Turn)) (stop func()) {
	t := l.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	id := t.last
	t.heard[id] = f
	return func() { t.forget(id) }
}

// Tend looks after a resource until nobody waits for it, beside those who wait in Acquire: it makes the claim that is
// due when a holder's promise ends, and searches for deadlocks, for those who were queued by Enter. What it finds
// goes to OnTurn; without that it does nothing. It returns at once.
func (l *Locker) Tend(resource string) { l.turns.tend(resource) }

// turns tells of turns, and tends resources by a timer, so that nothing runs between two looks.
type turns struct {
	locker *Locker

	mu    sync.Mutex
	heard map[int]func(Turn)
	last  int
	// tended is when to look at each resource next, and searchAt when to search for deadlocks.
	tended   map[string]time.Time
	late     map[string]bool
	searchAt time.Time
	searched time.Time
	timer    *clock.Timer
	// passing says that a pass is under way, and failed how many in a row have failed.
	passing bool
	failed  int
}

// tendEvery is the longest pause between two looks at a resource that is tended, and tendSpread what the looks of
// several processes at the same promise's end are spread over.
const (
	tendEvery  = 20 * time.Second
	tendSpread = 250 * time.Millisecond
	// tendSoon is the pause while somebody has been told of a turn and has not come.
	tendSoon = 500 * time.Millisecond
	// tendSearchAfter is how long after somebody queued deadlocks are searched for, and tendSearchPause the least pause
	// between two searches. A workflow that waits costs more than a search, and never waits for just a moment.
	tendSearchAfter = 300 * time.Millisecond
	tendSearchPause = time.Second
)

// tendFailures is after how many failed passes, about half a minute, a resource is left to whoever asks to tend it again.
const tendFailures = 10

func newTurns(l *Locker) *turns {
	return &turns{locker: l, heard: map[int]func(Turn){}, tended: map[string]time.Time{}, late: map[string]bool{}}
}

func (t *turns) forget(id int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.heard, id)
	if len(t.heard) == 0 {
		clear(t.tended)
		t.schedule()
	}
}

func (t *turns) tell(turn Turn) {
	t.mu.Lock()
	heard := make([]func(Turn), 0, len(t.heard))
	for _, f := range t.heard {
		heard = append(heard, f)
	}
	t.mu.Unlock()
	for _, f := range heard {
		f(turn)
	}
}

// granted tells of the claims in a document that a write left, and has the resource looked at soon: by then they are
// confirmed, and others of their lock IDs, who get no claim, may join.
func (t *turns) granted(d *engine.Document) {
	if !hasLiveClaim(d) {
		return
	}
	t.claims(d)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heard) == 0 {
		return
	}
	now := time.Now()
	soon := now.Add(tendSoon)
	if len(t.tended) == 0 {
		t.searchAt = now.Add(searchEvery)
	}
	if at, known := t.tended[d.ID]; !known || at.After(soon) {
		t.tended[d.ID] = soon
		t.schedule()
	}
}

// claims tells of the claims in a document.
func (t *turns) claims(d *engine.Document) {
	for i := range d.Held {
		if e := &d.Held[i]; e.State == engine.Claimed && e.ExpiresAt.After(d.At) {
			t.tell(Turn{Resource: d.ID, LockID: e.LockID, Part: e.Part, Order: orderOf(e.Order)})
		}
	}
}

func (t *turns) tend(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heard) == 0 {
		return
	}
	now := time.Now()
	at := now.Add(tendSearchAfter)
	if soonest := t.searched.Add(tendSearchPause); at.Before(soonest) {
		at = soonest
	}
	if len(t.tended) == 0 || at.Before(t.searchAt) {
		t.searchAt = at
	}
	if _, known := t.tended[resource]; !known {
		t.tended[resource] = now
	}
	if t.passing { // which may have read before the caller queued
		t.late[resource] = true
	}
	t.schedule()
}

// schedule sets the timer for what is due next. The mutex is held.
func (t *turns) schedule() {
	switch {
	case t.passing:
		return
	case len(t.tended) == 0:
		if t.timer != nil {
			t.timer.Stop()
		}
		return
	}
	next := t.searchAt
	for _, at := range t.tended {
		if at.Before(next) {
			next = at
		}
	}
	if wait := time.Until(next); t.timer == nil {
		t.timer = t.locker.clock.AfterFunc(wait, t.pass)
	} else {
		t.timer.Reset(wait)
	}
}

// pass looks at what is due, and searches for deadlocks where that is.
func (t *turns) pass() {
	t.mu.Lock()
	if t.passing {
		t.mu.Unlock()
		return
	}
	t.passing = true
	clear(t.late)
	now := time.Now()
	var due []string
	for name, at := range t.tended {
		if !at.After(now) {
			due = append(due, name)
		}
	}
	search := len(t.tended) > 0 && !t.searchAt.After(now)
	t.mu.Unlock()
	if len(due) > 0 {
		t.look(context.Background(), due)
	}
	if search {
		ctx, cancel := t.locker.clock.WithTimeout(context.Background(), searchWithin)
		_, _ = t.locker.search(ctx) // again after the pause
		cancel()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if search {
		t.searched = time.Now()
		t.searchAt = t.searched.Add(searchEvery)
	}
	t.passing = false
	t.schedule()
}

// look reads resources, tells of the claims there, makes those that are due, and says when to look again.
func (t *turns) look(ctx context.Context, names []string) {
	read, cancel := t.locker.clock.WithTimeout(ctx, cleanupTimeout)
	docs, err := t.locker.eng.Read(read, names...)
	cancel()
	again := map[string]time.Duration{}
	for i := range docs {
		if after, waited := t.attend(ctx, &docs[i]); waited {
			again[docs[i].ID] = after
		}
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	if err == nil {
		t.failed = 0
	}
	for _, name := range names {
		after, waited := again[name]
		if t.late[name] && !waited {
			after, waited = 0, true
		}
		switch {
		case len(t.heard) > 0 && waited:
			t.tended[name] = now.Add(after)
		case len(t.heard) > 0 && err != nil && t.failed < tendFailures:
			t.tended[name] = now.Add(time.Duration(t.failed) * time.Second)
		default:
			delete(t.tended, name)
		}
	}
}

// attend does what is due in a document, and says after what time to look again, if anybody waits there.
func (t *turns) attend(ctx context.Context, d *engine.Document) (after time.Duration, waited bool) {
	t.claims(d)
	head := headOf(d)
	spread := rand.N(tendSpread) //nolint:gosec // spreads the looks, hides nothing
	end, alive := firstEnd(d)
	switch joins := t.joins(d); {
	case head != nil && !joins && !blocked(d, head):
		t.locker.settle(ctx, d.ID)
		return spread, true
	case head == nil && !hasClaim(d):
		return 0, false
	case joins || hasLiveClaim(d): // whoever was told comes soon, and others of its lock ID may join it then
		return min(end, tendSoon) + spread, true
	case alive:
		return min(end+spread, tendEvery), true
	default:
		return tendEvery, true
	}
}

// joins tells of those who wait although their lock ID has come to hold the resource, and whether there are any: they get
// no claim, since they may join at any time.
func (t *turns) joins(d *engine.Document) (any bool) {
	for i := range d.Waiters {
		w := &d.Waiters[i]
		if covers(d, w.LockID, w.Mode) {
			any = true
			t.tell(Turn{Resource: d.ID, LockID: w.LockID, Part: w.Part, Order: orderOf(w.Order)})
		}
	}
	return any
}

// settle writes a document for no other purpose: no request has a negative order. An error leaves it to the next look.
func (l *Locker) settle(ctx context.Context, resource string) {
	ctx, cancel := l.clock.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	d, err := l.eng.Withdraw(ctx, engine.Withdraw{Policy: l.cfg.policy(), Resource: resource, LockID: "-", Order: -1, Reason: "-"})
	if err == nil {
		l.afterWrite(ctx, &d, ending{})
	}
}
