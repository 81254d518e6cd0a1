package lockcore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// sharedReads lets those who read at the same time share one command: what is asked for while one
// is under way goes into the next.
type sharedReads struct {
	eng   engine.Engine
	clock clock.Clock
	life  *lifecycle // no read outlives it

	mu sync.Mutex
	// next is what to read next, and last what was read last, as long as re-checks may share it.
	next, last *sharedRead
	reading    bool
}

// sharedRead is one command. It has a key for each name that was asked for.
type sharedRead struct {
	docs map[string]*engine.Document
	err  error
	done chan struct{}
	sent time.Time
}

const (
	// readFor is how old a read may be that later re-checks share, if at least longQueue wait: reading
	// a short queue costs little.
	readFor   = time.Second
	longQueue = 64
)

// get reads documents in a command that was sent no longer ago than age. The answer may have others
// beside, and the caller must not change them.
func (r *sharedReads) get(ctx context.Context, names []string, age time.Duration) (map[string]*engine.Document, error) {
	r.mu.Lock()
	mine := r.last
	if mine == nil || time.Since(mine.sent) >= age || slices.ContainsFunc(names, mine.lacks) {
		if r.next == nil {
			r.next = &sharedRead{docs: map[string]*engine.Document{}, done: make(chan struct{})}
		}
		mine = r.next
		for _, name := range names {
			mine.docs[name] = nil
		}
		if !r.reading {
			r.reading = true
			go r.run() // others share the read, which has a bound of its own
		}
	}
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-mine.done:
		return mine.docs, mine.err
	}
}

func (b *sharedRead) lacks(name string) bool {
	_, asked := b.docs[name]
	return !asked
}

func (r *sharedReads) run() {
	for {
		r.mu.Lock()
		read := r.next
		r.next = nil
		r.reading = read != nil
		r.mu.Unlock()
		if read == nil {
			return
		}
		read.sent = time.Now()
		ctx, cancel := r.clock.WithTimeout(r.life.closing, cleanupTimeout)
		docs, err := r.eng.Read(ctx, slices.Collect(maps.Keys(read.docs))...)
		cancel()
		long := false
		for i := range docs {
			read.docs[docs[i].ID] = &docs[i]
			long = long || len(docs[i].Waiters) >= longQueue
		}
		read.err = err
		close(read.done)
		if err == nil && long {
			r.keep(read)
		}
	}
}

// keep lets re-checks share what was read, until it is too old.
func (r *sharedReads) keep(read *sharedRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = read
	r.clock.AfterFunc(readFor, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.last == read {
			r.last = nil
		}
	})
}
