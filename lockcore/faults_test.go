package lockcore_test

import (
	"context"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// faultEngine is the engine in memory behind a network that does as a test says. before may refuse
// a command, or lose it on its way; after may lose the answer.
type faultEngine struct {
	*lockcoretest.Engine
	mu            sync.Mutex
	before, after func(ctx context.Context, op any) error
	sent          []any
}

func faulty() *faultEngine {
	none := func(context.Context, any) error { return nil }
	return &faultEngine{Engine: lockcoretest.NewEngine(time.Now), before: none, after: none}
}

func (e *faultEngine) set(before, after func(context.Context, any) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	none := func(context.Context, any) error { return nil }
	e.before, e.after = before, after
	if before == nil {
		e.before = none
	}
	if after == nil {
		e.after = none
	}
}

// commands are those that were sent.
func (e *faultEngine) commands() []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]any(nil), e.sent...)
}

func through[Op, Answer any](ctx context.Context, e *faultEngine, op Op, send func(context.Context, Op) (Answer, error)) (Answer, error) {
	e.mu.Lock()
	e.sent = append(e.sent, op)
	before, after := e.before, e.after
	e.mu.Unlock()
	var none Answer
	if err := before(ctx, op); err != nil {
		return none, err
	}
	answer, err := send(ctx, op)
	if err != nil {
		return none, err
	}
	if err := after(ctx, op); err != nil {
		return none, err
	}
	return answer, nil
}

func (e *faultEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	return through(ctx, e, op, e.Engine.Acquire)
}

func (e *faultEngine) AcquireAll(ctx context.Context, ops []rules.Acquire) ([]rules.Document, error) {
	return through(ctx, e, ops, e.Engine.AcquireAll)
}

func (e *faultEngine) Renew(ctx context.Context, op rules.Renew) (rules.Document, error) {
	return through(ctx, e, op, e.Engine.Renew)
}

func (e *faultEngine) Leave(ctx context.Context, op rules.Leave) (rules.Document, error) {
	return through(ctx, e, op, e.Engine.Leave)
}

func (e *faultEngine) Release(ctx context.Context, op rules.Release) (rules.Document, error) {
	return through(ctx, e, op, e.Engine.Release)
}

func (e *faultEngine) RenewAll(ctx context.Context, ops []rules.Renew) ([]bool, error) {
	return through(ctx, e, ops, e.Engine.RenewAll)
}

// cutting loses the commands, or the answers, of one type.
func cutting[Op any](_ context.Context, op any) error {
	if _, yes := op.(Op); yes {
		return errCut
	}
	return nil
}
