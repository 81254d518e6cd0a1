package lockcore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Turn says that it is worth for a queued request to be made again, by [Locker.Enter] with a greater order.
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

// turns tells of turns, and tends resources in a goroutine that runs while there are any.
type turns struct {
	locker *Locker

	mu    sync.Mutex
	heard map[int]func(Turn)
	last  int
	// tended is when to look at each resource next, and searchAt when to search for deadlocks.
	tended   map[string]time.Time
	searchAt time.Time
	// stop ends the goroutine, and done is closed when it has ended; nil while there is none.
	stop context.CancelFunc
	done chan struct{}
	wake chan struct{}
}

// tendEvery is the longest pause between two looks at a resource that is tended, and tendSpread what the looks of
// several processes at the same promise's end are spread over.
const (
	tendEvery  = 20 * time.Second
	tendSpread = 250 * time.Millisecond
)

func newTurns(l *Locker) *turns {
	return &turns{locker: l, heard: map[int]func(Turn){}, tended: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

func (t *turns) forget(id int) {
	t.mu.Lock()
	delete(t.heard, id)
	stop, done := t.stop, t.done
	last := len(t.heard) == 0
	t.mu.Unlock()
	if last && stop != nil {
		stop()
		<-done
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
	if _, known := t.tended[resource]; !known {
		t.tended[resource] = now
	}
	if at := now.Add(searchAfter); len(t.tended) == 1 || at.Before(t.searchAt) {
		t.searchAt = at
	}
	if t.stop == nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.done = make(chan struct{})
		go t.run(ctx, t.done)
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *turns) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, search, wait := t.due(ctx, time.Now())
		switch {
		case wait < 0:
			return
		case len(due) > 0:
			t.look(ctx, due)
			continue
		case search:
			t.search(ctx)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
		}
	}
}

// due is what to look at now, or whether to search for deadlocks, or else how long there is nothing to do; that is
// negative at the end.
func (t *turns) due(ctx context.Context, now time.Time) (due []string, search bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil || len(t.tended) == 0 {
		clear(t.tended)
		t.stop()
		t.stop = nil
		return nil, false, -1
	}
	wait = max(0, t.searchAt.Sub(now))
	for name, at := range t.tended {
		if !at.After(now) {
			due = append(due, name)
			continue
		}
		wait = min(wait, at.Sub(now))
	}
	return due, !t.searchAt.After(now), wait
}

// look reads resources, tells of the claims there, makes those that are due, and says when to look again.
func (t *turns) look(ctx context.Context, names []string) {
	read, cancel := context.WithTimeout(ctx, cleanupTimeout)
	docs, err := t.locker.eng.Read(read, names...)
	cancel()
	again := map[string]time.Duration{}
	if err != nil {
		for _, name := range names {
			again[name] = time.Second
		}
	}
	for i := range docs {
		if after, waited := t.attend(ctx, &docs[i]); waited {
			again[docs[i].ID] = after
		}
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if after, waited := again[name]; waited {
			t.tended[name] = now.Add(after)
		} else {
			delete(t.tended, name)
		}
	}
}

// attend does what is due in a document, and says after what time to look again, if anybody waits there.
func (t *turns) attend(ctx context.Context, d *engine.Document) (after time.Duration, waited bool) {
	t.claims(d)
	var head *engine.Waiter
	for i := range d.Waiters {
		if d.Waiters[i].ExpiresAt.After(d.At) {
			head = &d.Waiters[i]
			break
		}
	}
	spread := rand.N(tendSpread) //nolint:gosec // spreads the looks, hides nothing
	end, alive := firstEnd(d)
	switch {
	case head != nil && !blocked(d, head):
		t.locker.settle(ctx, d.ID)
		return spread, true
	case head == nil && !claimed(d):
		return 0, false
	case alive:
		return min(end+spread, tendEvery), true
	default:
		return tendEvery, true
	}
}

func claimed(d *engine.Document) bool {
	for i := range d.Held {
		if d.Held[i].State == engine.Claimed {
			return true
		}
	}
	return false
}

// settle writes a document for no other purpose: no request has a negative order. An error leaves it to the next look.
func (l *Locker) settle(ctx context.Context, resource string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	d, err := l.eng.Withdraw(ctx, engine.Withdraw{Policy: l.cfg.policy(), Resource: resource, LockID: "-", Order: -1, Reason: "-"})
	if err == nil {
		l.settled(ctx, &d)
	}
}

func (t *turns) search(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, searchWithin)
	defer cancel()
	_, _ = t.locker.search(ctx) // again after the pause
	t.mu.Lock()
	defer t.mu.Unlock()
	t.searchAt = time.Now().Add(searchEvery)
}
