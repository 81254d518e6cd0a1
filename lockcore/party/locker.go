package party

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
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
