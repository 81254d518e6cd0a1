package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
)

// stream is the change stream of a watcher, from when the first local waiter queues to when the last one has gone. What a
// stream says that is over is ignored.
type stream struct {
	stop context.CancelFunc
	// on says that the server tells of changes.
	on bool
}

// streaming reports whether the change stream tells of changes. The mutex is held.
func (w *watcher) streaming() bool { return w.stream != nil && w.stream.on }

// openStream opens the change stream, if the engine has one. The mutex is held.
func (w *watcher) openStream() {
	changes, ok := w.locker.eng.Engine.(engine.Watcher)
	if !ok || w.noStream || w.stream != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stream = &stream{stop: stop}
	go w.follow(ctx, w.stream, changes)
}

// closeStream closes the change stream if no local waiter is left. The mutex is held.
func (w *watcher) closeStream() {
	if w.stream != nil && w.locals == 0 {
		w.stream.stop()
		w.stream = nil
	}
}

// follow keeps a change stream open.
func (w *watcher) follow(ctx context.Context, s *stream, changes engine.Watcher) {
	for ctx.Err() == nil {
		err := changes.Watch(ctx, func() { w.turned(s, true) }, func(resource string) { w.changed(s, resource) })
		if ctx.Err() != nil {
			return
		}
		w.turned(s, false)
		if errors.Is(err, engine.ErrNoWatch) {
			w.mu.Lock()
			w.noStream = true
			w.mu.Unlock()
			return
		}
		again := w.locker.clock.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
}

// turned notes that a change stream went on or off. Either way all that local waiters wait for is read once, since a
// change may have come between.
func (w *watcher) turned(s *stream, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stream != s || s.on == on {
		return
	}
	s.on = on
	for _, r := range w.table {
		if len(r.local) > 0 && !r.next.IsZero() {
			w.lookBy(r, later(time.Now(), r.read.Add(pace.Read)))
		}
	}
}

// changed is called for each write that a change stream tells of.
func (w *watcher) changed(s *stream, resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.table[resource]
	if w.stream != s || r == nil || len(r.local) == 0 {
		return
	}
	if r.next.IsZero() || w.looking { // nobody has queued, or what is being read may be older
		r.changed = true
	}
	if !r.next.IsZero() {
		w.lookBy(r, later(time.Now(), r.read.Add(pace.Changes)))
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
