package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// newFleet makes n Lockers. Closing it is the caller's, unless there is an error.
func (b *scaleBench) newFleet(ctx context.Context, n int, collection string) (*measure.Fleet, error) {
	return measure.NewFleet(ctx, b.uri, b.db.Name(), collection, slices.Repeat([]measure.Delays{b.delays}, n)...)
}

// loadCase is a number of Lockers whose goroutines acquire and release resources that they choose at random.
type loadCase struct {
	what                           string
	lockers, goroutines, resources int
	collection                     string
	// queued spreads the goroutines evenly over the resources, and measures when all have queued.
	queued bool
}

// loadRow is the result of a loadCase.
type loadRow struct {
	What                           string
	Lockers, Goroutines, Resources int
	measure.Load
	// DocumentKB is the size of the first resource's document at the end of the measurement, or 0 if it does not exist.
	DocumentKB float64
	// HeapKB is by how much the waiters have raised the live heap and the stacks, divided by their number. It is 0 if they are
	// fewer than 1,000, because the clients' connections would dominate it.
	HeapKB float64
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
	defer f.Close(ctx)
	before := liveHeap()
	running, stop := context.WithCancel(ctx)
	defer stop()
	release, err := hold(ctx, f.Lockers[0], c)
	if err != nil {
		return nil, err
	}
	g, running := errgroup.WithContext(running)
	err = errors.Join(b.start(running, g, f, c), release())
	waiting := liveHeap()
	if err == nil {
		_ = measure.Pause(running, b.each/4) // the warm-up
		f.Measure(running, b.each)           // a goroutine that fails ends it early
	}
	row := &loadRow{What: c.what, Lockers: c.lockers, Goroutines: c.goroutines, Resources: c.resources, Load: f.Load(b.each)}
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
func (b *scaleBench) start(ctx context.Context, g *errgroup.Group, f *measure.Fleet, c loadCase) error {
	const group = 1_000
	for n := range c.lockers * c.goroutines {
		name := random(c.resources)
		if c.queued {
			own := resourceName(n % c.resources)
			name = func() string { return own }
		}
		g.Go(func() error {
			return f.Repeat(ctx, n/c.goroutines, fmt.Sprintf("scale/%d", n), name, func() error { return nil })
		})
		if started := n + 1; c.queued && (started%group == 0 || started == c.lockers*c.goroutines) {
			if err := b.awaitQueues(ctx, c, started); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold takes all resources of a case with queues, so that nothing is granted while they fill. release gives them back.
func hold(ctx context.Context, locker *lockcore.Locker, c loadCase) (release func() error, err error) {
	var sessions []*lockcore.Session
	release = func() error {
		var errs []error
		for _, s := range sessions {
			errs = append(errs, s.Release(context.WithoutCancel(ctx)))
		}
		return errors.Join(errs...)
	}
	for i := 0; c.queued && i < c.resources; i++ {
		s, err := locker.TryAcquire(ctx, lockcore.Request{
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
