package lockcore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

const (
	// commandTimeout bounds one command: the next try may find a better server. A copy of a command
	// that is still on its way after that time is taken to be lost.
	commandTimeout = engine.CommandTimeout
	// cleanupTimeout bounds the commands that end something after the caller's context has ended.
	cleanupTimeout = 5 * time.Second
	// retryPause is the pause before a command is first sent again. The shortest TTL leaves room for
	// three tries.
	retryPause = 10 * time.Millisecond
	// exceededTimeLimit is the server's MaxTimeMSExpired: it stopped, and does not say where.
	exceededTimeLimit = 50
)

// retryUnknown sends an operation, and repeats it a few times while its outcome is unknown, or if
// it came too late. After ctx has ended nothing is sent.
func (l *Locker) retryUnknown(ctx context.Context, op, resource string, order Order, send func(context.Context) (engine.Document, error)) (engine.Document, error) {
	if ctx.Err() != nil {
		return engine.Document{}, fmt.Errorf("lockstep: %s of %q was not sent: %w", op, resource, context.Cause(ctx))
	}
	const tries = 3
	unknown, pause := false, retryPause
	for try := 1; ; try++ {
		d, err := pass(ctx, l.eng, send)
		if err == nil {
			return d, nil
		}
		lost := outcomeUnknown(err)
		unknown = unknown || lost // what is refused now may have been done before
		again := (lost || errors.Is(err, errLate)) && try < tries
		if !again || !sleep(ctx, l.clock, pause/2+l.clock.Jitter(pause/2+1)) {
			return d, failure(op, resource, order, err, unknown)
		}
		pause *= 4
	}
}

func failure(op, resource string, order Order, err error, unknown bool) error {
	if unknown {
		return &UnknownOutcomeError{Op: op, Resource: resource, Order: order, Err: err}
	}
	return fmt.Errorf("lockstep: %s of %q: %w", op, resource, err)
}

// outcomeUnknown reports whether an operation that failed like this may have taken effect. It
// cannot have if no server was found, or if the server answered that it refuses.
func outcomeUnknown(err error) bool {
	var selection topology.ServerSelectionError
	var layout *engine.LayoutError
	if errors.As(err, &selection) || errors.As(err, &layout) || errors.Is(err, ErrClosed) || errors.Is(err, errLate) {
		return false
	}
	var refused mongo.CommandError
	if errors.As(err, &refused) {
		return refused.HasErrorLabel("NetworkError") || refused.HasErrorLabel("RetryableWriteError") || refused.Code == exceededTimeLimit
	}
	return true
}

// detached is for commands that must run although the caller's context has ended.
func (l *Locker) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.clock.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// gate is the engine as its Locker uses it: no command takes longer than commandTimeout, and after
// Close none is sent. Operations on one document pass it in retryUnknown.
type gate struct {
	engine.Engine
	clock  clock.Clock
	closed context.Context
}

func pass[Answer any](ctx context.Context, g *gate, send func(context.Context) (Answer, error)) (none Answer, err error) {
	if g.closed.Err() != nil {
		return none, ErrClosed
	}
	ctx, cancel := g.clock.WithTimeout(ctx, commandTimeout)
	defer cancel()
	defer context.AfterFunc(g.closed, cancel)()
	return send(ctx)
}

func (g *gate) RenewAll(ctx context.Context, ops []engine.Renew) ([]bool, error) {
	return pass(ctx, g, func(ctx context.Context) ([]bool, error) { return g.Engine.RenewAll(ctx, ops) })
}

func (g *gate) Read(ctx context.Context, resources ...string) ([]engine.Document, error) {
	return pass(ctx, g, func(ctx context.Context) ([]engine.Document, error) { return g.Engine.Read(ctx, resources...) })
}

// List may take as long as its caller lets it.
func (g *gate) List(ctx context.Context, q engine.Query) iter.Seq2[engine.Document, error] {
	if g.closed.Err() != nil {
		return func(yield func(engine.Document, error) bool) { yield(engine.Document{}, ErrClosed) }
	}
	return g.Engine.List(ctx, q)
}
