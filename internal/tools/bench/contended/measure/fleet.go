package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// cleanup bounds the time that closing Lockers and dropping a database take.
const cleanup = 15 * time.Second

// Database returns a new database, and a function that drops it and disconnects, even if ctx has ended.
func Database(ctx context.Context, uri string) (*mongo.Database, func(), error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	db := client.Database(fmt.Sprintf("lockstep_bench_%d", time.Now().UnixNano()))
	return db, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	}, nil
}

// Fleet is a number of Lockers on one collection. Each has a MongoDB client of its own, like a process. While Measure runs, it counts
// the commands of the clients, and the acquisitions of Repeat.
type Fleet struct {
	Lockers []*lockcore.Locker
	clients []*mongo.Client

	measuring, over atomic.Bool
	writes, reads   atomic.Int64

	mu sync.Mutex
	// waits are the times in Acquire, per Locker.
	waits [][]time.Duration
}

// NewFleet makes a Locker for each of some delays. Closing the fleet is the caller's, unless there is an error.
func NewFleet(ctx context.Context, uri, database, collection string, delays ...Delays) (_ *Fleet, err error) {
	f := &Fleet{waits: make([][]time.Duration, len(delays))}
	defer func() {
		if err != nil {
			f.Close(ctx)
		}
	}()
	for _, d := range delays {
		monitor := d.Monitor()
		monitor.Started = func(_ context.Context, e *event.CommandStartedEvent) { f.count(e.CommandName) }
		client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(monitor))
		if err != nil {
			return nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
		}
		f.clients = append(f.clients, client)
		locker, err := lockcore.New(client.Database(database).Collection(collection), lockcore.Config{})
		if err != nil {
			return nil, err
		}
		f.Lockers = append(f.Lockers, locker)
	}
	return f, f.Lockers[0].CreateIndexes(ctx)
}

// Close closes the Lockers and disconnects, even if ctx has ended. The database is dropped anyway.
func (f *Fleet) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	var wg sync.WaitGroup
	for _, locker := range f.Lockers {
		wg.Go(func() { _ = locker.Close(ctx) })
	}
	wg.Wait()
	for _, client := range f.clients {
		_ = client.Disconnect(ctx)
	}
}

func (f *Fleet) count(command string) {
	switch {
	case !f.measuring.Load():
	case IsWrite(command):
		f.writes.Add(1)
	case IsRead(command):
		f.reads.Add(1)
	}
}

// Repeat acquires and releases exclusive locks with one of the Lockers until End is called, or ctx ends. Each time it calls name for
// the resource, and work while it holds that.
func (f *Fleet) Repeat(ctx context.Context, locker int, lockID string, name func() string, work func() error) error {
	for round := 0; ctx.Err() == nil && !f.over.Load(); round++ {
		asked := time.Now()
		session, err := f.Lockers[locker].Acquire(ctx, lockcore.Request{
			LockID: fmt.Sprintf("%s/%d", lockID, round), Resources: []lockcore.Resource{lockcore.Exclusive(name())},
		})
		if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil // the end of the load
		}
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if f.measuring.Load() {
			f.mu.Lock()
			f.waits[locker] = append(f.waits[locker], time.Since(asked))
			f.mu.Unlock()
		}
		err = work()
		if released := session.Release(context.WithoutCancel(ctx)); released != nil {
			err = errors.Join(err, fmt.Errorf("release: %w", released))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Measure counts for a time, or until ctx ends.
func (f *Fleet) Measure(ctx context.Context, each time.Duration) {
	f.measuring.Store(true)
	_ = Pause(ctx, each) // the caller sees what has ended ctx
	f.measuring.Store(false)
}

// End ends Repeat when it has released what it waits for.
func (f *Fleet) End() { f.over.Store(true) }

// Load is the result of a measurement. Writes and Reads are numbers of commands per acquisition, with renewals and background work.
type Load struct{ PerSecond, WaitP50MS, WaitP99MS, Writes, Reads float64 }

// Load returns what was measured in a time.
func (f *Fleet) Load(each time.Duration) Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.waits...)
	load := Load{PerSecond: float64(len(all)) / each.Seconds(), WaitP50MS: Percentile(all, 50), WaitP99MS: Percentile(all, 99)}
	if n := float64(len(all)); n > 0 {
		load.Writes, load.Reads = float64(f.writes.Load())/n, float64(f.reads.Load())/n
	}
	return load
}

// Share returns the number of one Locker's acquisitions, divided by the mean of all Lockers.
func (f *Fleet) Share(locker int) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return float64(len(f.waits[locker])*len(f.waits)) / float64(len(slices.Concat(f.waits...)))
}
