package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// crowdRow is the result of exclusive waiters of one process behind shared holders of one resource. No figure may grow with the product.
type crowdRow struct {
	Holders int `json:"holders"`
	Waiters int `json:"waiters"`
	// QueueSeconds is the time in which all waiters have queued.
	QueueSeconds float64 `json:"queueSeconds"`
	// HeapKB is by how much the waiters have raised the live heap and the stacks, divided by their number.
	HeapKB float64 `json:"heapKb"`
	// StatusMS is the time of a list of all, SearchMS that of a search for deadlocks, and LeaveMS that of the leave of one holder.
	StatusMS float64 `json:"statusMs"`
	SearchMS float64 `json:"searchMs"`
	LeaveMS  float64 `json:"leaveMs"`
}

func (b *scaleBench) growCrowds(ctx context.Context, sizes []int) error {
	for _, holders := range sizes {
		for _, waiters := range sizes {
			row, err := b.measureCrowd(ctx, holders, waiters)
			if err != nil {
				return fmt.Errorf("%d holders and %d waiters: %w", holders, waiters, err)
			}
			b.Crowds = append(b.Crowds, row)
		}
	}
	return nil
}

func (b *scaleBench) measureCrowd(ctx context.Context, holders, waiters int) (*crowdRow, error) {
	collection := fmt.Sprintf("crowd_%d_%d", holders, waiters)
	f, err := b.newFleet(ctx, 2, collection)
	if err != nil {
		return nil, err
	}
	defer f.close(ctx)
	leases, err := f.shareOne(ctx, holders)
	if err != nil {
		return nil, err
	}
	row := &crowdRow{Holders: holders, Waiters: waiters}
	before := liveHeap()
	waiting, end := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() {
		end()
		_ = g.Wait() // they were ended
	}()
	took, err := timed(func() error {
		for i := range waiters {
			g.Go(func() error {
				_, err := f.lockers[1].Acquire(waiting, lockcore.Request{
					LockID: fmt.Sprint("waiter/", i), Resources: []lockcore.Resource{lockcore.Exclusive(resourceName(0))},
				})
				return err
			})
		}
		return b.untilQueued(ctx, collection, waiters)
	})
	row.QueueSeconds = took.Seconds()
	row.HeapKB = (liveHeap() - before) / 1024 / float64(waiters)
	return row, errors.Join(err, f.workOnCrowd(ctx, row, leases))
}

// shareOne lets the first Locker hold one resource a number of times.
func (f *fleet) shareOne(ctx context.Context, holders int) ([]lockcore.Lease, error) {
	leases := make([]lockcore.Lease, holders)
	var g errgroup.Group
	g.SetLimit(500)
	for i := range leases {
		g.Go(func() error {
			got, err := f.lockers[0].Steps().TryEnter(ctx, lockcore.StepRequest{
				Caller: lockcore.Caller{LockID: fmt.Sprint("holder/", i)}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Shared(resourceName(0))},
			})
			if err == nil {
				leases[i] = got[0]
			}
			return err
		})
	}
	return leases, g.Wait()
}

// untilQueued waits until a document has a number of waiters.
func (b *scaleBench) untilQueued(ctx context.Context, collection string, waiters int) error {
	only := options.FindOne().SetProjection(bson.D{{Key: "waiters.since", Value: 1}})
	for {
		var d struct{ Waiters []bson.Raw }
		err := b.db.Collection(collection).FindOne(ctx, bson.D{{Key: "_id", Value: resourceName(0)}}, only).Decode(&d)
		if err != nil || len(d.Waiters) >= waiters {
			return err
		}
		if err := measure.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// workOnCrowd measures single operations.
func (f *fleet) workOnCrowd(ctx context.Context, row *crowdRow, leases []lockcore.Lease) error {
	for _, work := range []struct {
		to *float64
		do func() error
	}{
		{&row.StatusMS, func() error {
			for _, err := range f.lockers[0].Status(ctx, lockcore.Filter{Resource: resourceName(0)}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{&row.SearchMS, func() error { _, err := f.lockers[0].Deadlocks(ctx); return err }},
		{&row.LeaveMS, func() error { return f.lockers[0].Leave(ctx, leases[0]) }},
	} {
		d, err := timed(work.do)
		if err != nil {
			return err
		}
		*work.to = measure.Millis(d)
	}
	return nil
}

func (b *scaleBench) printCrowds(w io.Writer) {
	if len(b.Crowds) > 0 {
		fmt.Fprintln(w, "\nshared holders\texclusive waiters\tqueued after s\theap of a waiter kB\tstatus ms\tdeadlock search ms\tleave ms\t")
	}
	for _, r := range b.Crowds {
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", r.Holders, r.Waiters, r.QueueSeconds, r.HeapKB, r.StatusMS, r.SearchMS, r.LeaveMS)
	}
}
