package lockcore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// pause is how long to wait from one read to the next. The mutex is held.
func (w *waits) pause() time.Duration {
	if w.streaming {
		return readSeldom
	}
	return readEvery
}

// run reads what is due until nobody waits.
func (w *waits) run(run int) {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := w.stream(ctx, run)
	defer func() {
		cancel()
		<-stopped
	}()
	timer := w.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, search, wait, any := w.due(time.Now())
		switch {
		case !any:
			return
		case search:
			// Beside the reads: a search that takes long must not keep them waiting.
			go w.lookEverywhere(ctx)
			continue
		case len(due) > 0:
			w.look(ctx, due)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// due takes out the resources to read now, or tells to search for deadlocks instead, which reads them all; and else how
// long nothing needs to be done, and whether anybody waits.
func (w *waits) due(now time.Time) (due []string, search bool, wait time.Duration, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Hour
	for name, r := range w.resources {
		if r.next.IsZero() { // registered, and not queued yet
			continue
		}
		any = true
		if left := r.next.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		due = append(due, name)
		r.read, r.next = now, now.Add(w.pause())
	}
	if !any {
		w.running, w.streaming, w.searchAt = false, false, time.Time{}
		return nil, false, 0, false
	}
	// A search takes the turn of a read, but where reads are few.
	untilSearch := w.searchAt.Sub(now)
	if untilSearch <= 0 && !w.searching && (len(due) > 0 || w.streaming) {
		w.searching = true
		for name, r := range w.resources {
			if r.next.IsZero() {
				continue
			}
			r.read = now
			// The search may fail, or take long. So what was due is read soon all the same; and what is known of the
			// rest while streaming, such as when a holder's time is over, stands.
			if !w.streaming || slices.Contains(due, name) {
				r.next = now.Add(readEvery)
			}
		}
		return due, true, 0, true
	}
	if w.streaming && !w.searching {
		wait = min(wait, untilSearch)
	}
	return due, false, wait, true
}

// look reads resources, and calls those for whom there is something to do. After an error the next read is not far.
func (w *waits) look(ctx context.Context, names []string) {
	ctx, cancel := w.clock.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	docs, err := w.eng.Read(ctx, names...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		for _, name := range names {
			if r := w.resources[name]; r != nil {
				r.next = time.Now().Add(readEvery)
			}
		}
		return
	}
	w.found(docs)
}

// lookEverywhere searches for deadlocks, and makes use of what was read for that: where there is no queue any more, those
// who waited have claims, or no places.
func (w *waits) lookEverywhere(ctx context.Context) {
	defer w.poke()
	ctx, cancel := w.clock.WithTimeout(ctx, searchWithin)
	defer cancel()
	docs, err := w.search(ctx)
	w.mu.Lock()
	w.searching, w.searchAt = false, time.Now().Add(searchEvery)
	w.mu.Unlock()
	if err != nil {
		return
	}
	queues := map[string]bool{}
	for _, d := range docs {
		queues[d.ID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found(docs)
	for name, r := range w.resources {
		if !queues[name] && !r.next.IsZero() {
			for _, one := range r.waiters {
				one.call()
			}
		}
	}
}

// found calls those of whom documents say that there is something to do for them. The mutex is held.
func (w *waits) found(docs []engine.Document) {
	for i := range docs {
		d := &docs[i]
		r := w.resources[d.ID]
		if r == nil {
			continue
		}
		for _, one := range r.waiters {
			if worthAsking(d, one) {
				one.call()
			}
		}
		// Whoever is in the way may die without a word; then the head of the queue has to ask.
		if end, ok := firstEnd(d); ok && w.streaming {
			if next := r.read.Add(max(end, changesEvery)); next.Before(r.next) {
				r.next = next
			}
		}
	}
}

// worthAsking tells whether a write would change something for a request: there is a claim for it, it has no place any
// more, or it is the first who waits and nobody who is alive is in its way.
func worthAsking(d *engine.Document, one *waiter) bool {
	if d.Claim(one.lockID, one.part) != nil {
		return true
	}
	first := true
	for _, q := range d.Waiters {
		if q.LockID == one.lockID && q.Part == one.part {
			return q.Verdict != "" || (first && !blocked(d, &q))
		}
		if q.Waits(d.At) && !q.Overdue(d.At) {
			first = false
		}
	}
	return true
}

// stream opens the change stream, where the engine has one, and keeps it open. The channel is closed when it has
// stopped.
func (w *waits) stream(ctx context.Context, run int) <-chan struct{} {
	stopped := make(chan struct{})
	watcher, ok := w.eng.(engine.Watcher)
	w.mu.Lock()
	none := !ok || w.noStream
	w.mu.Unlock()
	if none {
		close(stopped)
		return stopped
	}
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			err := watcher.Watch(ctx, func() { w.setStreaming(run, true) }, w.changed)
			if ctx.Err() != nil {
				return
			}
			w.setStreaming(run, false)
			if errors.Is(err, engine.ErrNoWatch) {
				w.mu.Lock()
				w.noStream = true
				w.mu.Unlock()
				return
			}
			if !rest(ctx, w.clock, time.Second) {
				return
			}
		}
	}()
	return stopped
}

// setStreaming notes that the change stream went on or off. Either way everything is read once, since a change may have
// come between.
func (w *waits) setStreaming(run int, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streaming == on || !w.running || run != w.runs { // or it is the word of a stream that is over
		return
	}
	w.streaming = on
	defer w.poke()
	now := time.Now()
	for _, r := range w.resources {
		if !r.next.IsZero() {
			r.next = later(now, r.read.Add(readEvery))
		}
	}
}

// changed is called for each write that the change stream tells of.
func (w *waits) changed(resource string) {
	w.mu.Lock()
	r := w.resources[resource]
	if r != nil && r.next.IsZero() {
		r.dirty = true
	}
	if r != nil && !r.next.IsZero() {
		if next := later(time.Now(), r.read.Add(changesEvery)); next.Before(r.next) {
			r.next = next
		}
	}
	w.mu.Unlock()
	if r != nil {
		w.poke()
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
