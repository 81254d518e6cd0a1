package lockcore

import (
	"context"
	"iter"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// gate is the engine as its Locker uses it: no command on a document takes longer than
// commandTimeout, and after Close none is sent, and what is under way is cut off.
type gate struct {
	engine.Engine
	clock  clock.Clock
	closed context.Context
}

func pass[Op, Answer any](ctx context.Context, g *gate, op Op, send func(context.Context, Op) (Answer, error)) (Answer, error) {
	if g.closed.Err() != nil {
		var none Answer
		return none, ErrClosed
	}
	ctx, cancel := g.clock.WithTimeout(ctx, commandTimeout)
	defer cancel()
	defer context.AfterFunc(g.closed, cancel)()
	return send(ctx, op)
}

func (g *gate) Acquire(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Acquire)
}

func (g *gate) Renew(ctx context.Context, op engine.Renew) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Renew)
}

func (g *gate) Leave(ctx context.Context, op engine.Leave) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Leave)
}

func (g *gate) Release(ctx context.Context, op engine.Release) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Release)
}

func (g *gate) Withdraw(ctx context.Context, op engine.Withdraw) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Withdraw)
}

func (g *gate) Purge(ctx context.Context, op engine.Purge) (engine.Document, error) {
	return pass(ctx, g, op, g.Engine.Purge)
}

func (g *gate) RenewAll(ctx context.Context, ops []engine.Renew) ([]bool, error) {
	return pass(ctx, g, ops, g.Engine.RenewAll)
}

func (g *gate) Read(ctx context.Context, resources ...string) ([]engine.Document, error) {
	return pass(ctx, g, resources, func(ctx context.Context, names []string) ([]engine.Document, error) {
		return g.Engine.Read(ctx, names...)
	})
}

// List may take as long as its caller lets it.
func (g *gate) List(ctx context.Context, q engine.Query) iter.Seq2[engine.Document, error] {
	if g.closed.Err() != nil {
		return func(yield func(engine.Document, error) bool) { yield(engine.Document{}, ErrClosed) }
	}
	return g.Engine.List(ctx, q)
}

func (g *gate) Prepare(ctx context.Context) error {
	if g.closed.Err() != nil {
		return ErrClosed
	}
	return g.Engine.Prepare(ctx)
}

// Watch makes the gate an engine.Watcher whether or not the engine is one.
func (g *gate) Watch(ctx context.Context, ready func(), changed func(resource string)) error {
	watcher, ok := g.Engine.(engine.Watcher)
	if !ok {
		return engine.ErrNoWatch
	}
	return watcher.Watch(ctx, ready, changed)
}
