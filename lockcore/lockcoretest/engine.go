package lockcoretest

import (
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Engine keeps documents in memory, by the specification. It is for unit tests of programs that use locks, on
// a [lockcore.Locker] made with lockcore.NewOn, and needs no server:
//
//	locker, err := lockcore.NewOn(lockcoretest.NewEngine(time.Now), lockcore.Config{})
//
// It is safe for concurrent use. Give it the Now of a [Clock] to decide what time it is.
type Engine struct {
	id   string
	now  func() time.Time
	mu   sync.Mutex
	docs map[string]engine.Document
}

// NewEngine makes an engine without any document. Expiry is decided by now, as it is by the server's clock on a
// database.
func NewEngine(now func() time.Time) *Engine {
	return &Engine{id: rand.Text(), now: now, docs: map[string]engine.Document{}}
}

// Document returns what is stored for a resource; its ID is empty if nothing is.
func (e *Engine) Document(resource string) engine.Document {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d, ok := e.docs[resource]; ok {
		return clone(d)
	}
	return engine.Document{}
}

func (e *Engine) apply(ctx context.Context, resource string, next func(engine.Document, time.Time) engine.Document) (engine.Document, error) {
	if err := ctx.Err(); err != nil {
		return engine.Document{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.docs[resource] = next(e.docs[resource], e.time())
	return clone(e.docs[resource]), nil
}

// time is now, in milliseconds as the database has it.
func (e *Engine) time() time.Time { return e.now().UTC().Truncate(time.Millisecond) }

// Acquire applies the specification's [Acquire].
func (e *Engine) Acquire(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	return e.apply(ctx, op.Resource, func(d engine.Document, now time.Time) engine.Document { return Acquire(d, op, now) })
}

// AcquireAll applies the specification's [Acquire] to each document, up to the first that another
// has, or waits for, or which grants nothing.
func (e *Engine) AcquireAll(ctx context.Context, ops []engine.Acquire) ([]engine.Document, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var granted []engine.Document
	for _, op := range ops {
		before := e.docs[op.Resource]
		after := Acquire(before, op, e.time())
		if len(before.Entries) > 0 || len(before.Waiters) > 0 || after.Last.Outcome != engine.Granted {
			break
		}
		e.docs[op.Resource] = after
		granted = append(granted, clone(after))
	}
	return granted, nil
}

// Renew applies the specification's [Renew].
func (e *Engine) Renew(ctx context.Context, op engine.Renew) (engine.Document, error) {
	return e.apply(ctx, op.Resource, func(d engine.Document, now time.Time) engine.Document { return Renew(d, op, now) })
}

// Leave applies the specification's [Leave].
func (e *Engine) Leave(ctx context.Context, op engine.Leave) (engine.Document, error) {
	return e.apply(ctx, op.Resource, func(d engine.Document, now time.Time) engine.Document { return Leave(d, op, now) })
}

// Release applies the specification's [Release].
func (e *Engine) Release(ctx context.Context, op engine.Release) (engine.Document, error) {
	return e.apply(ctx, op.Resource, func(d engine.Document, now time.Time) engine.Document { return Release(d, op, now) })
}

// Withdraw applies the specification's [Withdraw].
func (e *Engine) Withdraw(ctx context.Context, op engine.Withdraw) (engine.Document, error) {
	return e.apply(ctx, op.Resource, func(d engine.Document, now time.Time) engine.Document { return Withdraw(d, op, now) })
}

// RenewAll applies the specification's [Extend] to each document.
func (e *Engine) RenewAll(ctx context.Context, ops []engine.Renew) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	byResource := map[string][]engine.Renew{}
	for _, op := range ops {
		byResource[op.Resource] = append(byResource[op.Resource], op)
	}
	extended := map[string]bool{}
	for resource, ops := range byResource {
		if before, stored := e.docs[resource]; stored {
			e.docs[resource], extended[resource] = Extend(before, ops, e.time())
		}
	}
	renewed := make([]bool, len(ops))
	for i, op := range ops {
		renewed[i] = extended[op.Resource]
	}
	return renewed, nil
}

// Read returns what is stored.
func (e *Engine) Read(ctx context.Context, resources ...string) ([]engine.Document, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []engine.Document
	for _, resource := range resources {
		if d, stored := e.docs[resource]; stored {
			d = clone(d)
			d.At = e.time()
			out = append(out, d)
		}
	}
	return out, nil
}

// List streams what is stored, and leaves the selection but for names to its caller.
func (e *Engine) List(ctx context.Context, q engine.Query) iter.Seq2[engine.Document, error] {
	return func(yield func(engine.Document, error) bool) {
		e.mu.Lock()
		names := slices.Sorted(maps.Keys(e.docs))
		e.mu.Unlock()
		for _, name := range names {
			if (q.Resource != "" && name != q.Resource) || !strings.HasPrefix(name, q.Prefix) {
				continue
			}
			docs, err := e.Read(ctx, name)
			if err != nil {
				yield(engine.Document{}, err)
				return
			}
			if len(docs) == 1 && (len(docs[0].Attn) > 0 || !q.Contended) && !yield(docs[0], nil) {
				return
			}
		}
	}
}

// Identify names the engine, of which there is no other with its documents.
func (e *Engine) Identify(ctx context.Context) (engine.Identity, error) {
	return engine.Identity{ID: e.id, Version: engine.LayoutVersion, At: e.time()}, ctx.Err()
}

// Prepare has nothing to make.
func (e *Engine) Prepare(context.Context) error { return nil }

// Clock is a clock that stands still until it is told to go on.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, which may be negative: a server's clock can run backwards too.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
