// Package theirs imitates a client of the Go package mongo-lock, for tests: the documents as it reads them, and the one
// update that each of its functions sends, with the time of its own clock.
package theirs

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Document is a resource.
type Document struct {
	Resource  string `bson:"resource"`
	Exclusive Lock   `bson:"exclusive"`
	Shared    Shared `bson:"shared"`
}

// Shared are the shared locks of a resource.
type Shared struct {
	Count int    `bson:"count"`
	Locks []Lock `bson:"locks"`
}

// Lock is one lock; its zero value is none. Without ExpiresAt it has no end.
type Lock struct {
	LockID    *string       `bson:"lockId"`
	Owner     *string       `bson:"owner"`
	Host      *string       `bson:"host"`
	Comment   *string       `bson:"comment"`
	CreatedAt *time.Time    `bson:"createdAt"`
	RenewedAt *time.Time    `bson:"renewedAt"`
	ExpiresAt *time.Time    `bson:"expiresAt"`
	Acquired  bool          `bson:"acquired"`
	ID        bson.ObjectID `bson:"_id,omitempty"`
}

// Owner is who takes the locks of a Client.
const Owner = "them"

func newLock(lockID string, ttl time.Duration) Lock {
	now, owner := time.Now(), Owner
	l := Lock{LockID: &lockID, Owner: &owner, CreatedAt: &now, Acquired: true, ID: bson.NewObjectID()}
	if ttl != 0 {
		end := now.Add(ttl)
		l.ExpiresAt = &end
	}
	return l
}

// Client is a mongo-lock client.
type Client struct {
	Coll *mongo.Collection
	// NoUpsert is for resources that have documents: there an upsert that matches nothing fails on the index, which
	// takes DocumentDB seconds.
	NoUpsert bool
}

// ErrRefused is the answer where the update found nothing to change.
var ErrRefused = errors.New("refused")

// Read returns a resource.
func (c Client) Read(ctx context.Context, resource string) (Document, error) {
	var d Document
	err := c.Coll.FindOne(ctx, bson.M{"resource": resource}).Decode(&d)
	return d, err
}

func (c Client) send(ctx context.Context, filter, change any, upsert bool) error {
	opts := options.FindOneAndUpdate().SetUpsert(upsert && !c.NoUpsert).SetReturnDocument(options.After)
	err := c.Coll.FindOneAndUpdate(ctx, filter, change, opts).Err()
	refused := mongo.IsDuplicateKeyError(err) || (err != nil && strings.Contains(err.Error(), "exclusion constraint")) // as DocumentDB says it
	if refused || errors.Is(err, mongo.ErrNoDocuments) {
		return ErrRefused
	}
	return err
}

// XLock takes an exclusive lock. A TTL of 0 is none.
func (c Client) XLock(ctx context.Context, resource, lockID string, ttl time.Duration) error {
	free := bson.A{bson.M{"exclusive.acquired": false}, bson.M{"exclusive.expiresAt": bson.M{"$lte": time.Now()}}}
	return c.send(ctx, bson.M{"resource": resource, "$or": free, "shared.count": 0},
		bson.M{"$set": Document{Resource: resource, Exclusive: newLock(lockID, ttl), Shared: Shared{Locks: []Lock{}}}}, true)
}

// SLock takes a shared lock beside fewer than most others, or any number where most is negative.
func (c Client) SLock(ctx context.Context, resource, lockID string, ttl time.Duration, most int) error {
	filter := bson.M{"resource": resource, "exclusive.acquired": false, "shared.locks.lockId": bson.M{"$ne": lockID}}
	if most >= 0 {
		filter["shared.count"] = bson.M{"$lt": most}
	}
	return c.send(ctx, filter, bson.M{"$inc": bson.M{"shared.count": 1}, "$push": bson.M{"shared.locks": newLock(lockID, ttl)}}, true)
}

// Unlock ends a lock.
func (c Client) Unlock(ctx context.Context, resource, lockID string) error {
	err := c.send(ctx, bson.M{"resource": resource, "exclusive.lockId": lockID}, bson.M{"$set": bson.M{"exclusive": Lock{}}}, false)
	if !errors.Is(err, ErrRefused) {
		return err
	}
	return c.send(ctx, bson.M{"resource": resource, "shared.locks.lockId": lockID},
		bson.M{"$inc": bson.M{"shared.count": -1}, "$pull": bson.M{"shared.locks": bson.M{"lockId": lockID}}}, false)
}

// Renew gives a lock that has not expired another TTL.
func (c Client) Renew(ctx context.Context, resource, lockID string, ttl time.Duration) error {
	now := time.Now()
	stands := bson.M{"$gt": now}
	err := c.send(ctx, bson.M{"resource": resource, "exclusive.lockId": lockID, "exclusive.expiresAt": stands},
		bson.M{"$set": bson.M{"exclusive.expiresAt": now.Add(ttl), "exclusive.renewedAt": now}}, false)
	if !errors.Is(err, ErrRefused) {
		return err
	}
	return c.send(ctx, bson.M{"resource": resource, "shared.locks": bson.M{"$elemMatch": bson.M{"lockId": lockID, "expiresAt": stands}}},
		bson.M{"$set": bson.M{"shared.locks.$.expiresAt": now.Add(ttl), "shared.locks.$.renewedAt": now}}, false)
}
