package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Locker takes, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct {
	eng engine.Engine
	// clock is the process's, by which everything here waits.
	clock clock.Clock
	cfg   Config
	tel   observer
	// keeper renews for all sessions, and watch wakes all that wait.
	keeper *keeper
	// server is what is known of the server's clock.
	server serverClock
	watch  *watcher
	// life is how it ends, and cleaner ends what requests have left.
	life    lifecycle
	cleaner *cleaner
}

// New makes a Locker on coll. The collection is cloned with majority, journaled writes, majority reads
// and the primary, whatever the caller's client was set to. It asks the database nothing; call
// CreateIndexes once per deployment. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	if coll == nil {
		return nil, &InvalidError{Field: "coll", Value: "nil", Bound: "a collection"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newLocker(mongoengine.New(coll, cfg.Retention), cfg)
}

// NewOn makes a Locker on another engine, such as the one in memory of package lockcoretest.
func NewOn(eng engine.Engine, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newLocker(eng, cfg)
}

func newLocker(eng engine.Engine, cfg Config) (*Locker, error) {
	tel, err := newObserver(&cfg)
	if err != nil {
		return nil, err
	}
	ticks := clock.Of(eng)
	l := &Locker{clock: ticks, cfg: cfg, tel: tel, life: newLifecycle()}
	l.eng = &gate{Engine: eng, clock: ticks, closed: l.life.closed}
	l.keeper, l.watch = newKeeper(l), newWatcher(l)
	l.cleaner = &cleaner{locker: l, pending: map[*Lease]bool{}}
	return l, nil
}

// CreateIndexes makes the index by which documents of idle resources are removed. It may be called again at any time.
// Locks work without it, and documents stay for ever. A collection in another layout is refused with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error { return l.eng.Prepare(ctx) }

// retryUnknown sends an operation, and repeats it a few times while its outcome is unknown: every operation may be
// repeated, and ends as if it had run once. After ctx has ended nothing is sent.
func (l *Locker) retryUnknown(ctx context.Context, op, resource string, order Order, send func() (engine.Document, error)) (engine.Document, error) {
	if ctx.Err() != nil {
		return engine.Document{}, fmt.Errorf("lockstep: %s of %q was not sent: %w", op, resource, context.Cause(ctx))
	}
	const tries = 3
	unknown, pause := false, retryPause
	for try := 1; ; try++ {
		d, err := send()
		if err == nil {
			return d, nil
		}
		passes := outcomeUnknown(err)
		unknown = unknown || passes // what is refused now may have been done before
		if !passes || try == tries || !rest(ctx, l.clock, pause) {
			return d, failure(op, resource, order, err, unknown)
		}
		pause *= 4
	}
}

const (
	// commandTimeout bounds one command: the next try may find a better server. A copy of a command that is still on its
	// way after that time is taken to be lost.
	commandTimeout = engine.CommandTimeout
	// retryPause is the pause before a command is first sent again. The shortest TTL leaves room for three tries.
	retryPause = 10 * time.Millisecond
)

// rest pauses for about d, and reports whether ctx still lives.
func rest(ctx context.Context, c clock.Clock, d time.Duration) bool {
	return sleep(ctx, c, d/2+c.Jitter(d/2+1))
}

// sleep pauses for d, and reports whether ctx still lives.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// failure tells of an error of the database: that nothing was done, or that the outcome is unknown.
func failure(op, resource string, order Order, err error, unknown bool) error {
	if unknown {
		return &UnknownOutcomeError{Op: op, Resource: resource, Order: order, Err: err}
	}
	return fmt.Errorf("lockstep: %s of %q: %w", op, resource, err)
}

// outcomeUnknown tells whether an operation that failed like this may have taken effect. It cannot have
// where no server was found, or where the server answered that it refuses.
func outcomeUnknown(err error) bool {
	var selection topology.ServerSelectionError
	var layout *engine.LayoutError
	if errors.As(err, &selection) || errors.As(err, &layout) || errors.Is(err, ErrClosed) || errors.Is(err, errAlwaysLate) {
		return false
	}
	var refused mongo.CommandError
	if errors.As(err, &refused) {
		return refused.HasErrorLabel("NetworkError") || refused.HasErrorLabel("RetryableWriteError") || refused.Code == exceededTimeLimit
	}
	return true
}

// exceededTimeLimit is the server's MaxTimeMSExpired: it stopped, nobody knows where.
const exceededTimeLimit = 50

// millis is a TTL as engines take it: 0 has no end.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining is what is left at now of a promise that ends at end.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(engine.Never) {
		return Forever
	}
	return end.Sub(now)
}

// detached is for commands that must run although the caller's context has ended.
func (l *Locker) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.clock.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}
