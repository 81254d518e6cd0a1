package lockcore

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
)

// glances are long queues as Recheck has last read them, by resource. With 2,000 waiters a document
// takes a tenth of a second to read, and each of them looks at it by itself. What one has read
// serves the others for a while: each could have looked that much earlier, and those at the head
// read themselves.
type glances struct {
	mu    sync.Mutex
	table map[string]glance
}

type glance struct {
	began time.Time
	d     *engine.Document
	queue *engine.Queue
}

// glanceFrom is from how many waiters on a document is kept, and from which place on it counts.
// mostGlances is how many are kept.
const (
	glanceFrom  = 32
	mostGlances = 64
)

// glance is what a document means for a request. What was read before counts only for one that has
// to wait behind many, and that had asked before: all others read.
func (l *Locker) glance(ctx context.Context, resource string, request *engine.Waiter, first bool) (*engine.Document, engine.Look, error) {
	g := &l.glances
	g.mu.Lock()
	one, known := g.table[resource]
	g.mu.Unlock()
	if known && !first && elapsed(one.began, time.Now()) < pace.Glance && ctx.Err() == nil && l.life.closing.Err() == nil {
		look := one.queue.Next(request)
		if look.Answer == engine.NextWait && look.Position >= glanceFrom && look.Place.Order == request.Order {
			return one.d, look, nil
		}
	}
	now := time.Now()
	one.began = now
	var err error
	if one.d, err = l.read(ctx, resource); err != nil {
		return nil, engine.Look{}, err
	}
	one.queue = one.d.Queue()
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.table, func(_ string, old glance) bool { return elapsed(old.began, now) >= pace.Glance })
	if one.queue.Waiting >= glanceFrom && len(g.table) < mostGlances {
		if g.table == nil {
			g.table = map[string]glance{}
		}
		g.table[resource] = one
	}
	return one.d, one.queue.Next(request), nil
}
