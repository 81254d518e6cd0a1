package lockcore_test

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// hookEngine is the engine in memory, in which a test may step in between: before a renewal or a list of the queues, which then
// may fail, and after a renewal or an acquire.
type hookEngine struct {
	*lockcoretest.Engine
	renew    func(context.Context, rules.Renew) error
	after    func(rules.Renew)
	renewAll func(context.Context, []rules.Renew) error
	afterAll func([]rules.Renew)
	acquired func(rules.Acquire, rules.Document)
	list     func(context.Context) error
	// n counts the renewals, batches included.
	n atomic.Int64
}

func (e *hookEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	d, err := e.Engine.Acquire(ctx, op)
	if e.acquired != nil {
		e.acquired(op, d)
	}
	return d, err
}

// AcquireAll grants nothing, so that each resource is asked for alone.
func (e *hookEngine) AcquireAll(context.Context, []rules.Acquire) ([]rules.Document, error) {
	return nil, nil
}

func (e *hookEngine) Renew(ctx context.Context, op rules.Renew) (rules.Document, error) {
	e.n.Add(1)
	if e.renew != nil {
		if err := e.renew(ctx, op); err != nil {
			return rules.Document{}, err
		}
	}
	d, err := e.Engine.Renew(ctx, op)
	if e.after != nil {
		e.after(op)
	}
	return d, err
}

func (e *hookEngine) RenewAll(ctx context.Context, ops []rules.Renew) ([]bool, error) {
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

func (e *hookEngine) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	if e.list != nil && q.Waiting {
		if err := e.list(ctx); err != nil {
			return func(y func(rules.Document, error) bool) { y(rules.Document{}, err) }
		}
	}
	return e.Engine.List(ctx, q)
}

func hooked() *hookEngine { return &hookEngine{Engine: lockcoretest.NewEngine(time.Now)} }
