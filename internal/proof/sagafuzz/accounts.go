package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// accounts are documents of the members of pools. Only who has a member writes its account, under the fence.
type accounts struct{ *mongo.Collection }

const (
	// writeEvery is the interval at which a step writes the accounts of its members, and writeWithin bounds a write.
	writeEvery  = 100 * time.Millisecond
	writeWithin = time.Second
)

// accountOf returns the ID of a member's account.
func accountOf(pool, member string) string { return pool + "/" + member }

// create creates an account.
func (a accounts) create(ctx context.Context, id string) error {
	_, err := a.InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

// keepWriting writes the accounts of the members in leases until stop, which writes once more. A write that an account refuses is logged,
// with the fence that came first.
func (a accounts) keepWriting(ctx context.Context, log *Log, exec string, leases []lockcore.Lease) (stop func()) {
	var wg sync.WaitGroup
	stopped := make(chan struct{})
	for _, l := range leases {
		if l.Member != "" {
			wg.Go(func() {
				for working := true; working; {
					a.write(ctx, log, exec, l)
					select {
					case <-stopped:
						a.write(ctx, log, exec, l)
						working = false
					case <-time.After(writeEvery):
					}
				}
			})
		}
	}
	return func() {
		close(stopped)
		wg.Wait()
	}
}

// write writes an account. Other failures than that of a fence do not matter: the write was late, or its outcome is unknown.
func (a accounts) write(ctx context.Context, log *Log, exec string, l lockcore.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWithin) // also one that has lost its lock tries
	defer cancel()
	err := lockcore.UpdateFenced(ctx, a.Collection, l, bson.D{{Key: "_id", Value: accountOf(l.Resource, l.Member)}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "by", Value: exec}}}})
	var fenced *lockcore.FencedError
	if errors.As(err, &fenced) {
		log.Write(&Record{What: Fenced, Exec: exec, Held: []Held{{Resource: l.Resource, Member: l.Member, Fence: fenced.By}}})
	}
}
