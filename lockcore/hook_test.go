package lockcore_test

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// hookEngine is the engine in memory, in which a test may step in between: before a renewal or a list of the queues, which then
// may fail, and after a renewal or an acquire.
type hookEngine struct {
	*lockcoretest.Engine
	renew    func(context.Context, engine.Renew) error
	after    func(engine.Renew)
	renewAll func(context.Context, []engine.Renew) error
	afterAll func([]engine.Renew)
	acquired func(engine.Acquire, engine.Document)
	list     func(context.Context) error
	// n counts the renewals, batches included.
	n atomic.Int64
}

func (e *hookEngine) Acquire(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	d, err := e.Engine.Acquire(ctx, op)
	if e.acquired != nil {
		e.acquired(op, d)
	}
	return d, err
}

// AcquireAll grants nothing, so that each resource is asked for alone.
func (e *hookEngine) AcquireAll(context.Context, []engine.Acquire) ([]engine.Document, error) {
	return nil, nil
}

func (e *hookEngine) Renew(ctx context.Context, op engine.Renew) (engine.Document, error) {
	e.n.Add(1)
	if e.renew != nil {
		if err := e.renew(ctx, op); err != nil {
			return engine.Document{}, err
		}
	}
	d, err := e.Engine.Renew(ctx, op)
	if e.after != nil {
		e.after(op)
	}
	return d, err
}

func (e *hookEngine) RenewAll(ctx context.Context, ops []engine.Renew) ([]bool, error) {
	e.n.Add(1)
	if e.renewAll != nil {
		if err := e.renewAll(ctx, ops); err != nil {
			return make([]bool, len(ops)), err
		}
	}
	b, err := e.Engine.RenewAll(ctx, ops)
	if e.afterAll != nil {
		e.afterAll(ops)
	}
	return b, err
}

func (e *hookEngine) List(ctx context.Context, q engine.Query) iter.Seq2[engine.Document, error] {
	if e.list != nil && q.Waiting {
		if err := e.list(ctx); err != nil {
			return func(y func(engine.Document, error) bool) { y(engine.Document{}, err) }
		}
	}
	return e.Engine.List(ctx, q)
}

func hooked() *hookEngine { return &hookEngine{Engine: lockcoretest.NewEngine(time.Now)} }
