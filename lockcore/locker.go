package lockcore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Locker takes, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
type Locker struct {
	eng *gate
	// clock is what everything here waits by, and server what is known of the server's clock.
	clock  clock.Clock
	server serverClock
	cfg    Config
	tel    observer
	// keeper renews for all sessions, and watch wakes all that wait.
	keeper *keeper
	watch  *watcher
	life   *lifecycle
	// holds say when a turn is near, and inline who waits for one.
	holds holdTimes
	// glances are what Recheck saw of long queues.
	glances glances
	inline  inline
}

// New makes a Locker on coll. The collection is cloned with majority, journaled writes, majority
// reads and the primary, whatever the caller's client was set to. It asks the database nothing;
// call CreateIndexes once per deployment. The error is an *InvalidError that names the field of
// cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	if coll == nil {
		return nil, &InvalidError{Field: "coll", Value: "nil", Bound: "a collection"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return NewOn(mongoengine.New(coll, cfg.Retention), cfg)
}

// NewOn makes a Locker on another engine, such as the one in memory of package lockcoretest.
func NewOn(eng engine.Engine, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	tel, err := newObserver(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Locker{clock: clock.Of(eng), cfg: cfg, tel: tel, life: newLifecycle()}
	l.eng = &gate{Engine: eng, clock: l.clock, closed: l.life.closed}
	l.inline.most.Store(inlineWaits)
	l.keeper, l.watch = newKeeper(l), newWatcher(l)
	return l, nil
}

// CreateIndexes makes the index by which documents of idle resources are removed, and the one by
// which background work finds what is contended or kept. It may be called again at any time.
// Without it locks work, documents stay for ever, and background work reads all of them. A
// collection in another layout is refused with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	return l.eng.Prepare(ctx)
}

// CollectionID is the ID of the collection that the Locker keeps its locks in. Two Lockers exclude
// each other if they have the same. It asks the database, and returns its errors.
func (l *Locker) CollectionID(ctx context.Context) (string, error) {
	id, err := l.eng.Identify(ctx)
	if err != nil {
		return "", failure("identify", "", Order{}, err, outcomeUnknown(err))
	}
	return id.ID, nil
}
