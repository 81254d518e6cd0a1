package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// mongoClient is the client of the systems on MongoDB.
type mongoClient struct {
	db *mongo.Database
	// raw contains the document of the raw write, and data that locks protect.
	raw *mongo.Collection
}

func openMongo(ctx context.Context, e env) (mongoClient, error) {
	counter := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { e.sent.Add(1) }}
	client, err := mongo.Connect(options.Client().ApplyURI(e.Mongo).SetMonitor(counter))
	if err != nil {
		return mongoClient{}, err
	}
	db := client.Database(e.Database)
	c := mongoClient{db: db, raw: db.Collection("raw", options.Collection().SetWriteConcern(writeconcern.Majority()))}
	for _, id := range []string{"raw", "data"} {
		if _, err := c.raw.UpdateByID(ctx, id, addOne, options.UpdateOne().SetUpsert(true)); err != nil {
			return c, err
		}
	}
	return c, nil
}

var addOne = bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}

func (c mongoClient) add(ctx context.Context, id string) error {
	_, err := c.raw.UpdateByID(ctx, id, addOne)
	return err
}

func (c mongoClient) write(ctx context.Context) error { return c.add(ctx, "raw") }

func (c mongoClient) close(ctx context.Context) error { return c.db.Client().Disconnect(ctx) }

// updateFenced adds one to the protected data under a lease.
func (c mongoClient) updateFenced(ctx context.Context, lease lockcore.Lease) error {
	return lockcore.UpdateFenced(ctx, c.raw, lease, bson.D{{Key: "_id", Value: "data"}}, addOne)
}

// lockstepInstance uses docs/guides/plain-locks.md: a session waits in the queue and renews the lock, and writes are fenced.
type lockstepInstance struct {
	mongoClient
	locker *lockcore.Locker
}

func openLockstep(ctx context.Context, e env) (instance, error) {
	c, err := openMongo(ctx, e)
	if err != nil {
		return nil, err
	}
	locker, err := newLocker(ctx, c, e.TTL)
	return &lockstepInstance{c, locker}, err
}

func newLocker(ctx context.Context, c mongoClient, ttl time.Duration) (*lockcore.Locker, error) {
	locker, err := lockcore.New(c.db.Collection("locks"), lockcore.Config{TTL: ttl})
	if err != nil {
		return nil, err
	}
	return locker, locker.CreateIndexes(ctx)
}

func (i *lockstepInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	session, err := i.locker.Acquire(ctx, lockcore.Request{LockID: rand.Text(), Resources: []lockcore.Resource{lockcore.Exclusive(resource)}})
	if err != nil {
		return nil, err
	}
	lease := session.Leases()[0]
	return &held{
		release: session.Release, lost: session.Context().Done(),
		check: func(context.Context) error { return session.Lost() },
		write: func(ctx context.Context) error { return i.updateFenced(ctx, lease) },
	}, nil
}

func (i *lockstepInstance) close(ctx context.Context) error {
	return errors.Join(i.locker.Close(ctx), i.mongoClient.close(ctx))
}

// mongoLockInstance makes the calls of square/mongo-lock, whose module cannot be had everywhere, with lockcore/mongolock. mongo-lock
// neither waits nor renews nor fences: the caller repeats XLock, here every 100 ms like redislock, and calls Renew.
type mongoLockInstance struct {
	mongoClient
	locks *mongolock.Client
	ttl   uint
}

func openMongoLock(ctx context.Context, e env) (instance, error) {
	c, err := openMongo(ctx, e)
	if err != nil {
		return nil, err
	}
	locks := mongolock.NewClient(c.db.Collection("mongolocks"))
	return &mongoLockInstance{c, locks, uint(e.TTL.Seconds())}, locks.CreateIndexes(ctx)
}

func (i *mongoLockInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	id := rand.Text()
	for {
		err := i.locks.XLock(ctx, resource, id, mongolock.LockDetails{TTL: i.ttl})
		if err == nil {
			break
		}
		if !errors.Is(err, mongolock.ErrAlreadyLocked) {
			return nil, err
		}
		if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return &held{
		release: func(ctx context.Context) error { _, err := i.locks.Unlock(ctx, id); return err },
		check:   func(ctx context.Context) error { _, err := i.locks.Renew(ctx, id, i.ttl); return err },
		write:   func(ctx context.Context) error { return i.add(ctx, "data") },
	}, nil
}

func (i *mongoLockInstance) close(ctx context.Context) error {
	return errors.Join(i.locks.Close(ctx), i.mongoClient.close(ctx))
}
