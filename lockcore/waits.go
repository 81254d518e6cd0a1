package lockcore

import (
	"context"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// waits wakes those of this process that stand in queues. Three things do: a write of this Locker that made the claim; a
// change stream, where the server has one; and reads, shared by all that wait here, and spaced so that no resource is
// read more than four times a second, a search for deadlocks included, however many wait for it. Its goroutine runs while somebody waits.
type waits struct {
	eng   engine.Engine
	clock clock.Clock
	// search ends the deadlocks that are there, and returns all documents that have a queue.
	search func(context.Context) ([]engine.Document, error)

	mu        sync.Mutex
	resources map[string]*waited
	running   bool
	// runs counts the goroutines that there were.
	runs int
	// searching tells that a search for deadlocks is under way.
	searching bool
	// streaming tells that the change stream is on, and noStream that the server has none.
	streaming, noStream bool
	// searchAt is when to search for deadlocks next.
	searchAt time.Time
	wake     chan struct{}
}

// waited is a resource for which somebody of this process waits.
type waited struct {
	waiters []*waiter
	// read is when it was last read, and next when to read it again.
	read, next time.Time
	// dirty tells of a change that came before anybody was to look.
	dirty bool
}

// waiter is one request in a queue.
type waiter struct {
	resource, lockID, part string
	// turn holds one token when asking again is worthwhile.
	turn chan struct{}
	// searched tells that a search for deadlocks was asked for after it queued.
	searched bool
}

const (
	// readEvery is the pause between two reads of a resource where nothing else tells of changes.
	readEvery = 250 * time.Millisecond
	// readSeldom is the pause where a change stream does.
	readSeldom = 20 * time.Second
	// changesEvery is the least pause between two reads on a change stream's word.
	changesEvery = 20 * time.Millisecond
	// searchAfter is how long after somebody queued deadlocks are searched for, together with all who queue in
	// that time: most waits are over sooner. searchEvery is the pause while somebody waits.
	searchAfter = time.Second
	searchEvery = 5 * time.Second
	// searchWithin bounds a search, which may read the whole collection.
	searchWithin = time.Minute
)

func newWaits(l *Locker) *waits {
	return &waits{eng: l.eng, clock: l.clock, search: l.search, resources: map[string]*waited{}, wake: make(chan struct{}, 1)}
}

// add registers a request before it queues, so that no claim is made for it unheard.
func (w *waits) add(resource, lockID, part string) *waiter {
	one := &waiter{resource: resource, lockID: lockID, part: part, turn: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.resources[resource]
	if r == nil {
		r = &waited{}
		w.resources[resource] = r
	}
	r.waiters = append(r.waiters, one)
	return one
}

// watch makes sure that somebody looks after a request that has queued. The last that queued in a deadlock always sees
// it, since it searches afterwards.
func (w *waits) watch(one *waiter, soon bool) {
	now := time.Now()
	w.mu.Lock()
	r := w.resources[one.resource]
	switch {
	case soon || r.dirty:
		r.next = now
	case r.next.IsZero():
		r.next = now.Add(w.pause())
	}
	r.dirty = false
	if !one.searched {
		one.searched = true
		if at := now.Add(searchAfter); w.searchAt.IsZero() || at.Before(w.searchAt) {
			w.searchAt = at
		}
	}
	start := !w.running
	if start {
		w.running = true
		w.runs++
	}
	run := w.runs
	w.mu.Unlock()
	if start {
		go w.run(run)
		return
	}
	w.poke()
}

// remove forgets a request that does not wait any more.
func (w *waits) remove(one *waiter) {
	w.mu.Lock()
	r := w.resources[one.resource]
	for i, other := range r.waiters {
		if other == one {
			r.waiters = append(r.waiters[:i], r.waiters[i+1:]...)
			break
		}
	}
	if len(r.waiters) == 0 {
		delete(w.resources, one.resource)
	}
	last := len(w.resources) == 0
	w.mu.Unlock()
	if last {
		w.poke()
	}
}

// notify wakes those for whom there is a claim in a document that a write of this Locker left.
func (w *waits) notify(d *engine.Document) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.resources[d.ID]; r != nil {
		for _, one := range r.waiters {
			if c := d.Claim(one.lockID, one.part); c != nil && c.ExpiresAt.After(d.At) {
				one.call()
			}
		}
	}
}

// call wakes a request, if it waits in this process.
func (w *waits) call(resource, lockID, part string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.resources[resource]; r != nil {
		for _, one := range r.waiters {
			if one.lockID == lockID && one.part == part {
				one.call()
			}
		}
	}
}

// call gives the waiter a token, unless it has one.
func (one *waiter) call() {
	select {
	case one.turn <- struct{}{}:
	default:
	}
}

func (w *waits) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
