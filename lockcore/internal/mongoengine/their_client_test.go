package mongoengine_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A client of mongo-lock, as far as it writes: each of its functions is the one update that the package sends.
type theirClient struct{ coll *mongo.Collection }

type theirLock struct {
	ID        bson.ObjectID `bson:"_id,omitempty"`
	LockID    *string       `bson:"lockId"`
	Owner     *string       `bson:"owner"`
	Host      *string       `bson:"host"`
	Comment   *string       `bson:"comment"`
	CreatedAt *time.Time    `bson:"createdAt"`
	RenewedAt *time.Time    `bson:"renewedAt"`
	ExpiresAt *time.Time    `bson:"expiresAt"`
	Acquired  bool          `bson:"acquired"`
}

type theirDocument struct {
	Resource  string    `bson:"resource"`
	Exclusive theirLock `bson:"exclusive"`
	Shared    struct {
		Count int         `bson:"count"`
		Locks []theirLock `bson:"locks"`
	} `bson:"shared"`
}

func newLock(lockID string, ttl time.Duration) theirLock {
	now := time.Now().UTC().Truncate(time.Millisecond)
	l := theirLock{ID: bson.NewObjectID(), LockID: &lockID, CreatedAt: &now, Acquired: true}
	if ttl != 0 {
		end := now.Add(ttl)
		l.ExpiresAt = &end
	}
	return l
}

func (c theirClient) update(ctx context.Context, filter, change bson.M, upsert bool) error {
	opts := options.FindOneAndUpdate().SetUpsert(upsert)
	err := c.coll.FindOneAndUpdate(ctx, filter, change, opts).Err()
	if upsert && err == mongo.ErrNoDocuments { //nolint:errorlint // the driver's answer to an insert
		return nil
	}
	return err
}

func (c theirClient) xLock(ctx context.Context, name, lockID string, ttl time.Duration) error {
	return c.update(ctx, bson.M{
		"resource": name, "shared.count": 0,
		"$or": bson.A{bson.M{"exclusive.acquired": false}, bson.M{"exclusive.expiresAt": bson.M{"$lte": time.Now()}}},
	}, bson.M{"$set": bson.M{"resource": name, "exclusive": newLock(lockID, ttl), "shared": bson.M{"count": 0, "locks": bson.A{}}}}, true)
}

func (c theirClient) sLock(ctx context.Context, name, lockID string, ttl time.Duration) error {
	return c.update(ctx, bson.M{"resource": name, "exclusive.acquired": false, "shared.locks.lockId": bson.M{"$ne": lockID}},
		bson.M{"$inc": bson.M{"shared.count": 1}, "$push": bson.M{"shared.locks": newLock(lockID, ttl)}}, true)
}

func (c theirClient) unlock(ctx context.Context, name, lockID string) error {
	err := c.update(ctx, bson.M{"resource": name, "exclusive.lockId": lockID}, bson.M{"$set": bson.M{"exclusive": theirLock{}}}, false)
	if err == nil {
		return nil
	}
	return c.update(ctx, bson.M{"resource": name, "shared.locks.lockId": lockID},
		bson.M{"$inc": bson.M{"shared.count": -1}, "$pull": bson.M{"shared.locks": bson.M{"lockId": lockID}}}, false)
}

func (c theirClient) renew(ctx context.Context, name, lockID string, ttl time.Duration) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	err := c.update(ctx, bson.M{"resource": name, "exclusive.lockId": lockID, "exclusive.expiresAt": bson.M{"$gt": now}},
		bson.M{"$set": bson.M{"exclusive.expiresAt": now.Add(ttl), "exclusive.renewedAt": now}}, false)
	if err == nil {
		return nil
	}
	return c.update(ctx, bson.M{"resource": name, "shared.locks": bson.M{"$elemMatch": bson.M{"lockId": lockID, "expiresAt": bson.M{"$gt": now}}}},
		bson.M{"$set": bson.M{"shared.locks.$.expiresAt": now.Add(ttl), "shared.locks.$.renewedAt": now}}, false)
}

func (c theirClient) read(t require.TestingT, name string) theirDocument {
	var d theirDocument
	require.NoError(t, c.coll.FindOne(context.Background(), bson.M{"resource": name}).Decode(&d))
	return d
}
