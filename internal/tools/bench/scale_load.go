package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// fleet is a number of Lockers on one collection. Each has a MongoDB client of its own, like a process.
type fleet struct {
	lockers []*lockcore.Locker
	clients []*mongo.Client
	tally
}

// tally counts what happens while it is open.
type tally struct {
	open          atomic.Bool
	writes, reads atomic.Int64
	mu            sync.Mutex
	waits         []time.Duration
}

func (t *tally) count(command string) {
	switch {
	case !t.open.Load():
	case measure.IsWrite(command):
		t.writes.Add(1)
	case measure.IsRead(command):
		t.reads.Add(1)
	}
}

func (t *tally) waited(d time.Duration) {
	if t.open.Load() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waits = append(t.waits, d)
	}
}

// newFleet makes n Lockers. Closing it is the caller's, unless there is an error.
func (b *scaleBench) newFleet(ctx context.Context, n int, collection string) (_ *fleet, err error) {
	f := &fleet{}
	defer func() {
		if err != nil {
			f.close(ctx)
		}
	}()
	monitor := b.delays.Monitor()
	monitor.Started = func(_ context.Context, e *event.CommandStartedEvent) { f.count(e.CommandName) }
	for range n {
		client, err := mongo.Connect(options.Client().ApplyURI(b.uri).SetMonitor(monitor))
		if err != nil {
			return nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
		}
		f.clients = append(f.clients, client)
		locker, err := lockcore.New(client.Database(b.db.Name()).Collection(collection), lockcore.Config{})
		if err != nil {
			return nil, err
		}
		f.lockers = append(f.lockers, locker)
	}
	return f, f.lockers[0].CreateIndexes(ctx)
}

// close closes the Lockers and disconnects, even if ctx has ended. The database is dropped anyway.
func (f *fleet) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, locker := range f.lockers {
		wg.Go(func() { _ = locker.Close(ctx) })
	}
	wg.Wait()
	for _, client := range f.clients {
		_ = client.Disconnect(ctx)
	}
}

// loadCase is a number of Lockers whose goroutines acquire and release resources that they choose at random.
type loadCase struct {
	what                           string
	lockers, goroutines, resources int
	collection                     string
	// queued spreads the goroutines evenly over the resources, and measures when all have queued.
	queued bool
}

// loadRow is the result of a loadCase. Writes and Reads are the numbers of commands per acquisition, with background work.
type loadRow struct {
	What       string  `json:"what"`
	Lockers    int     `json:"lockers"`
	Goroutines int     `json:"goroutines"`
	Resources  int     `json:"resources"`
	PerSecond  float64 `json:"perSecond"`
	WaitP50MS  float64 `json:"waitP50Ms"`
	WaitP99MS  float64 `json:"waitP99Ms"`
	Writes     float64 `json:"writes"`
	Reads      float64 `json:"reads"`
	// DocumentKB is the size of the first resource's document at the end of the measurement, or 0 if it does not exist.
	DocumentKB float64 `json:"documentKb"`
	// HeapKB is by how much the waiters have raised the live heap and the stacks, divided by their number. It is 0 if they are
	// fewer than 1,000, because the clients' connections would dominate it.
	HeapKB float64 `json:"heapKb"`
}

func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// measureLoad measures one case.
func (b *scaleBench) measureLoad(ctx context.Context, c loadCase) (*loadRow, error) {
	f, err := b.newFleet(ctx, c.lockers, c.collection)
	if err != nil {
		return nil, err
	}
	defer f.close(ctx)
	before := liveHeap()
	running, stop := context.WithCancel(ctx)
	defer stop()
	release, err := f.hold(ctx, c)
	if err != nil {
		return nil, err
	}
	g, running := errgroup.WithContext(running)
	err = errors.Join(b.start(running, g, f, c), release())
	waiting := liveHeap()
	if err == nil {
		_ = measure.Pause(running, b.each/4) // the warm-up
		f.open.Store(true)
		_ = measure.Pause(running, b.each) // a goroutine that fails ends it early
		f.open.Store(false)
	}
	row := f.result(c, b.each)
	if waiters := c.lockers * c.goroutines; waiters >= 1_000 {
		row.HeapKB = (waiting - before) / 1e3 / float64(waiters)
	}
	var sizeErr error
	row.DocumentKB, sizeErr = b.documentKB(ctx, c.collection)
	failed := context.Cause(running)
	stop()
	err = errors.Join(err, g.Wait(), sizeErr)
	if err == nil && failed != nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %d Lockers with %d goroutines, %d resources: %w", c.what, c.lockers, c.goroutines, c.resources, err)
	}
	return row, nil
}

// documentKB returns the size of the first resource's document, or 0 if it was never requested.
func (b *scaleBench) documentKB(ctx context.Context, collection string) (float64, error) {
	document, err := b.db.Collection(collection).FindOne(ctx, bson.D{{Key: "_id", Value: resourceName(0)}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = nil
	}
	return float64(len(document)) / 1e3, err
}

// start starts the goroutines of a case. If it has queues, it returns when all goroutines wait. They begin to wait in groups: the
// document of a queue is copied for each request, and a process that applies thousands at once renews nothing meanwhile.
func (b *scaleBench) start(ctx context.Context, g *errgroup.Group, f *fleet, c loadCase) error {
	const group = 1_000
	for n := range c.lockers * c.goroutines {
		name := random(c.resources)
		if c.queued {
			own := resourceName(n % c.resources)
			name = func() string { return own }
		}
		g.Go(func() error { return f.repeat(ctx, f.lockers[n/c.goroutines], fmt.Sprintf("scale/%d", n), name) })
		if started := n + 1; c.queued && (started%group == 0 || started == c.lockers*c.goroutines) {
			if err := b.awaitQueues(ctx, c, started); err != nil {
				return err
			}
		}
	}
	return nil
}

// repeat acquires and releases until ctx ends.
func (f *fleet) repeat(ctx context.Context, locker *lockcore.Locker, lockID string, name func() string) error {
	for round := 0; ctx.Err() == nil; round++ {
		asked := time.Now()
		session, err := locker.Acquire(ctx, lockcore.Request{
			LockID: fmt.Sprintf("%s/%d", lockID, round), Resources: []lockcore.Resource{lockcore.Exclusive(name())},
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the end of the load
			}
			return fmt.Errorf("acquire: %w", err)
		}
		f.waited(time.Since(asked))
		if err := session.Release(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

// hold takes all resources of a case with queues, so that nothing is granted while they fill. release gives them back.
func (f *fleet) hold(ctx context.Context, c loadCase) (release func() error, err error) {
	var sessions []*lockcore.Session
	release = func() error {
		var errs []error
		for _, s := range sessions {
			errs = append(errs, s.Release(context.WithoutCancel(ctx)))
		}
		return errors.Join(errs...)
	}
	for i := 0; c.queued && i < c.resources; i++ {
		s, err := f.lockers[0].TryAcquire(ctx, lockcore.Request{
			LockID: "scale/gate", Resources: []lockcore.Resource{lockcore.Exclusive(resourceName(i))}, TTL: scaleBound,
		})
		if err != nil {
			return release, errors.Join(err, release())
		}
		sessions = append(sessions, s)
	}
	return release, nil
}

// awaitQueues returns when a number of requests wait.
func (b *scaleBench) awaitQueues(ctx context.Context, c loadCase, want int) error {
	for {
		cursor, err := b.db.Collection(c.collection).Aggregate(ctx, mongo.Pipeline{
			{{Key: "$match", Value: bson.D{{Key: "waiters", Value: bson.D{{Key: "$exists", Value: true}}}}}},
			{{Key: "$project", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$size", Value: "$waiters"}}}}}},
		})
		if err != nil {
			return err
		}
		var queues []struct{ N int }
		if err := cursor.All(ctx, &queues); err != nil {
			return err
		}
		waiting := 0
		for _, q := range queues {
			waiting += q.N
		}
		if waiting == want {
			return nil
		}
		if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d waiters queued: %w", waiting, want, err)
		}
	}
}

// result summarizes the measurement.
func (f *fleet) result(c loadCase, each time.Duration) *loadRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	row := &loadRow{
		What: c.what, Lockers: c.lockers, Goroutines: c.goroutines, Resources: c.resources,
		PerSecond: float64(len(f.waits)) / each.Seconds(), WaitP50MS: measure.Percentile(f.waits, 50), WaitP99MS: measure.Percentile(f.waits, 99),
	}
	if n := len(f.waits); n > 0 {
		row.Writes, row.Reads = float64(f.writes.Load())/float64(n), float64(f.reads.Load())/float64(n)
	}
	return row
}
