package lockcore

import (
	"context"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
)

// glances are long queues as Recheck has last read them, by resource. With 2,000 waiters a document
// takes a tenth of a second to read, and each of them looks at it by itself. What one has read
// serves the others for a while: each could have looked that much earlier.
type glances struct {
	mu    sync.Mutex
	table map[string]glance
}

type glance struct {
	began time.Time
	d     *engine.Document
	queue *engine.Queue
}

// glanceFrom is from how many waiters on a document is kept, and mostGlances how many are.
const (
	glanceFrom  = 32
	mostGlances = 64
)

// glance is what a document means for a request. If the request has no place in what was read
// before, it may have queued since, and the document is read.
func (l *Locker) glance(ctx context.Context, resource string, request *engine.Waiter) (*engine.Document, engine.Look, error) {
	g := &l.glances
	g.mu.Lock()
	one, known := g.table[resource]
	g.mu.Unlock()
	if known && time.Since(one.began) < pace.Glance {
		if look := one.queue.Next(request); look.Place != nil {
			return one.d, look, nil
		}
	}
	one.began = time.Now()
	var err error
	if one.d, err = l.read(ctx, resource); err != nil {
		return nil, engine.Look{}, err
	}
	one.queue = one.d.Queue()
	if one.queue.Waiting >= glanceFrom {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.table == nil || len(g.table) >= mostGlances {
			g.table = map[string]glance{}
		}
		g.table[resource] = one
	}
	return one.d, one.queue.Next(request), nil
}
