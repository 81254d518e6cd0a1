package party

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Locker takes, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct {
	store store.Store
	lines *update.Lines
	// clock is used for all waiting.
	clock clock.Clock
	cfg   Config
	tel   observer
	// keeper renews for all sessions, and watch wakes all waiters.
	keeper *keeper
	watch  *watcher
	life   *lifecycle
	// holds estimate when a waiter is granted the resource, and inline counts the calls of Enter that
	// wait for it.
	holds  holdTimes
	inline inline
}

// Store keeps the documents of a Locker. New makes one on a collection, and package lockcoretest has
// one in memory.
type Store = store.Store

// Loaded is what a Store has read.
type Loaded = store.Loaded

// New makes a Locker on coll. The collection is cloned with majority, journaled writes and the
// primary, whatever the caller's client was set to. It asks the database nothing; call CreateIndexes
// once per deployment. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	if coll == nil {
		return nil, &InvalidError{Field: "coll", Value: "nil", Bound: "a collection"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return NewWithStore(store.New(coll, cfg.Retention), cfg)
}

// NewWithStore makes a Locker on another store, such as the one in memory of package lockcoretest.
func NewWithStore(s Store, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	tel, err := newObserver(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Locker{store: s, clock: clock.Of(s), cfg: cfg, tel: tel, life: newLifecycle()}
	l.lines = update.New(s, l.clock, cfg.policy())
	l.inline.most.Store(inlineWaits)
	l.keeper, l.watch = newKeeper(l), newWatcher(l)
	return l, nil
}

// CreateIndexes makes the index by which documents of idle resources are removed, and the one by
// which background work finds what is contended or kept. It may be called again at any time.
// Without it locks work, documents stay forever, and background work reads all of them. A
// collection in another layout is refused with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	return l.store.Prepare(ctx)
}

// CollectionID returns the ID of the collection that the Locker keeps its locks in. Two Lockers
// exclude each other if they have the same. It asks the database, and returns its errors, or
// ErrClosed.
func (l *Locker) CollectionID(ctx context.Context) (string, error) {
	if l.life.closed.Err() != nil {
		return "", ErrClosed
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	id, err := l.store.Identify(ctx)
	if err != nil {
		return "", failure("identify", "", Order{}, err, false)
	}
	return id.ID, nil
}

// Worker is a process that takes its locks in the collection, as it registers there: the task queue
// that it serves, and its identity. The Namespace is empty if it is not known.
type Worker = store.Worker

// RegisterWorker stores that a worker runs now, so that [Locker.Workers] lists it. Repeat it while the
// worker runs. A store in memory stores nothing.
func (l *Locker) RegisterWorker(ctx context.Context, w Worker) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	s, ok := l.store.(store.WorkerStore)
	if !ok {
		return nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return s.RegisterWorker(ctx, w)
}

// Workers returns the workers that have registered lately.
func (l *Locker) Workers(ctx context.Context, lately time.Duration) ([]Worker, error) {
	if l.life.closed.Err() != nil {
		return nil, ErrClosed
	}
	s, ok := l.store.(store.WorkerStore)
	if !ok {
		return nil, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return s.Workers(ctx, lately)
}

// ErrClosed is answered by every call of a Locker that was closed, and is the cause with which
// calls that wait end then.
var ErrClosed = errors.New("lockstep: locker closed")

// Close ends what the Locker does. Calls that wait in a queue leave it and answer with ErrClosed.
// All sessions end as by [Session.Leave]: so stop the work that they protect first. Then Close
// waits for the cleanup that goes on in the background after requests that gave up, as long as ctx
// allows, but no longer than 20 s. What it could not do by then it
// says, in joined errors that name the resources: it ends with its TTL. A second call does nothing.
func (l *Locker) Close(ctx context.Context) (err error) {
	l.life.once.Do(func() { err = l.close(ctx) })
	return err
}

func (l *Locker) close(ctx context.Context) error {
	l.life.begin(ErrClosed)
	var errs []error
	if n := l.life.calls.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %d calls are still under way: %w", n, context.Cause(ctx)))
	}
	sessions := l.keeper.close()
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	settle, cancel := l.clock.WithTimeout(ctx, 2*commandTimeout) // one that hangs, and what settles it
	defer cancel()
	for name, calls := range l.lines.WaitForDebts(settle) {
		for _, c := range calls {
			order := Order{}
			if op, ok := c.Op.(rules.Leave); ok {
				order = orderOf(op.Order)
			}
			errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: name, Order: order, Err: ErrClosed})
		}
	}
	l.life.end()
	l.lines.Close()
	return errors.Join(errs...)
}

// lifecycle is how a Locker comes to its end: first nothing new begins, and then nothing is sent
// any more.
type lifecycle struct {
	once            sync.Once
	closing, closed context.Context
	begin           context.CancelCauseFunc
	end             context.CancelFunc
	// calls are those that may take something.
	calls group
}

func newLifecycle() *lifecycle {
	l := &lifecycle{calls: newGroup()}
	l.closing, l.begin = context.WithCancelCause(context.Background())
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// call begins a call that may take something. Its context ends when Close begins; done has to be
// called at its end.
func (l *lifecycle) call(ctx context.Context) (_ context.Context, done func(), err error) {
	ended := l.calls.add()
	if l.closing.Err() != nil {
		ended()
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		ended()
	}, nil
}

func endedByClose(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// group counts what is under way.
type group struct {
	mu   sync.Mutex
	jobs int
	less chan struct{} // closed when one has ended
}

func newGroup() group { return group{less: make(chan struct{})} }

func (g *group) add() (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.jobs--
		close(g.less)
		g.less = make(chan struct{})
	}
}

// wait waits until nothing is under way or ctx ends, and returns how much still is.
func (g *group) wait(ctx context.Context) int {
	for {
		g.mu.Lock()
		jobs, less := g.jobs, g.less
		g.mu.Unlock()
		if jobs == 0 {
			return 0
		}
		select {
		case <-less:
		case <-ctx.Done():
			return jobs
		}
	}
}
