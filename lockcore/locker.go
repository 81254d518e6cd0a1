package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Locker acquires, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
//
//	Acquire, TryAcquire   lock resources for a Session, with or without waiting
//	Resume, Leave         take over or end the use of leases that another process has stored or sent
//	Revoke                ends a hold by force
//	Status, Deadlocks     list holders and waiters, and cycles of waits
//	CreateIndexes, Close  once per deployment, and once per process
//
// The database has one document for each resource. An acquire and a release each replace it once. A read
// precedes that if the process has not cached the document, or if others hold the resource or wait for it.
// Operations of one process on one resource share a replacement. Several free resources cost one read and one
// command. One command renews the leases of all sessions, on up to 500 resources.
type Locker struct {
	store store.Store
	lines *update.Lines
	// clock is used for all waiting.
	clock clock.Clock
	cfg   Config
	tel   observer
	// keeper renews all sessions, and watch wakes all waiters.
	keeper *keeper
	watch  *watcher
	life   *lifecycle
	// holds predicts grants, and inline bounds the calls of Enter that wait for a predicted grant.
	holds  holdTimes
	inline inline
}

// Store keeps the documents of a Locker. [New] makes one on a collection, and package lockcoretest has one in
// memory, for tests. Its methods are not part of this package's interface: no other package can implement it.
type Store interface{ store.Store }

// New returns a Locker on coll. It clones coll with majority, journaled writes and reads from the
// primary, whatever the caller's client uses. It sends nothing to the database; call CreateIndexes once
// per deployment. Once it has used the collection, the Locker checks every few seconds, until Close, whether
// the collection was dropped, restored or cleared. Then all its sessions are lost, and new requests use the
// collection as it is now. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	if coll == nil {
		return nil, &InvalidError{Field: "coll", Value: "nil", Bound: "a collection"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return NewWithStore(store.New(coll), cfg)
}

// NewWithStore returns a Locker on another store, such as the one in memory of package lockcoretest.
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
	l.keeper = &keeper{locker: l, sessions: map[*Session]bool{}, wake: make(chan struct{}, 1)}
	l.watch = &watcher{locker: l, table: map[string]*watched{}, listeners: map[*listener]bool{}}
	l.lines.Changed, l.lines.Wrote = l.collectionChanged, l.wrote
	if _, ok := s.(store.IndexedStore); ok { // a store in memory keeps its identity
		l.clock.AfterFunc(identityEvery, l.watchIdentity)
	}
	return l, nil
}

// CreateIndexes creates two indexes: by one the server removes the documents of idle resources, by the
// other the search for deadlocks and Status find resources that are contended. It may be repeated. Without
// them locks work, but documents stay forever, and these searches read all of them. It refuses a collection
// that has documents of another kind with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	return public(l.store.Prepare(ctx))
}

// MissingIndexes returns the name of the collection with its database, and the indexes that CreateIndexes
// would create. An index that exists with another definition is one of them: its name is followed by the
// difference in parentheses, and CreateIndexes fails until it is dropped. It needs the right listIndexes.
// A store in memory misses none.
func (l *Locker) MissingIndexes(ctx context.Context) (collection string, missing []string, err error) {
	if l.life.closed.Err() != nil {
		return "", nil, ErrClosed
	}
	s, ok := l.store.(store.IndexedStore)
	if !ok {
		return "", nil, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	collection, missing, err = s.MissingIndexes(ctx)
	return collection, missing, public(err)
}

// Close ends the Locker. Calls that wait in a queue leave it and return ErrClosed. All sessions end as
// by [Session.Leave], so stop the work that they protect first; those of [Steps.NewStepSession] may end
// later. Then Close waits for the cleanup after requests that gave up, until ctx ends, and for at most
// 20 s. The joined errors name the resources on which cleanup is not complete: locks there end with their
// TTL. A second call does nothing.
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
	sessions := slices.DeleteFunc(l.keeper.close(), func(s *Session) bool { return s.ofStep != nil })
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	if n := l.life.steps.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %d steps are still running, and their locks end with their TTL: %w", n, context.Cause(ctx)))
	}
	_ = l.life.calls.wait(ctx) // by which the steps leave
	for _, s := range l.keeper.all() {
		s.end(ErrClosed)
	}
	settle, cancel := l.clock.WithTimeout(ctx, 2*commandTimeout) // one that hangs, and what settles it
	defer cancel()
	for name, calls := range l.lines.WaitForDebts(settle) {
		for _, c := range calls {
			order := Order{}
			switch op := c.Op.(type) {
			case rules.Leave:
				order = orderOf(op.Order)
			case rules.Release:
				order = orderOf(op.Order)
			case rules.TakeBack:
				order = orderOf(op.Order)
			}
			errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: name, Order: order, Err: ErrClosed})
		}
	}
	l.life.end()
	l.lines.Close()
	return errors.Join(errs...)
}

// lifecycle ends a Locker in two steps: once closing ends, no call begins; once closed ends, nothing is
// sent.
type lifecycle struct {
	once            sync.Once
	closing, closed context.Context
	begin           context.CancelCauseFunc
	end             context.CancelFunc
	// calls counts the calls under way that may take a lock, and steps the sessions of steps that have not ended.
	calls, steps group
}

func newLifecycle() *lifecycle {
	l := &lifecycle{calls: group{less: make(chan struct{})}, steps: group{less: make(chan struct{})}}
	l.closing, l.begin = context.WithCancelCause(context.Background())
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// call begins a call that may take a lock. Its context ends when Close begins. The caller must call
// done.
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

// endedByClose adds ErrClosed to an error if Close has ended ctx.
func endedByClose(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// group is a wait group whose wait can be cancelled.
type group struct {
	mu   sync.Mutex
	jobs int
	less chan struct{} // closed when a job has ended
}

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

// wait waits until no job is under way or ctx ends, and returns the number of jobs.
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
