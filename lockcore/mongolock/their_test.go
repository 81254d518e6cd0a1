package mongolock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type fixture struct {
	*mongolock.Client
	coll *mongo.Collection
	them original
}

func setup(t *testing.T) fixture {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	c := mongolock.NewClient(coll)
	require.NoError(t, c.CreateIndexes(t.Context()))
	return fixture{c, coll, original{coll: coll}}
}

// stored is a resource as a mongo-lock client reads it.
type stored struct {
	Resource  string `bson:"resource"`
	Exclusive lock   `bson:"exclusive"`
	Shared    struct {
		Count uint   `bson:"count"`
		Locks []lock `bson:"locks"`
	} `bson:"shared"`
}

type lock struct {
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

func (f fixture) stored(t *testing.T, resource string) stored {
	t.Helper()
	var s stored
	require.NoError(t, f.coll.FindOne(t.Context(), bson.M{"resource": resource}).Decode(&s))
	return s
}

// age moves the expiry of every lock on a resource by d into the past.
func (f fixture) age(t *testing.T, resource string, d time.Duration) {
	t.Helper()
	var doc bson.D
	require.NoError(t, f.coll.FindOne(t.Context(), bson.M{"resource": resource}).Decode(&doc))
	_, err := f.coll.ReplaceOne(t.Context(), bson.M{"resource": resource}, aged(doc, d))
	require.NoError(t, err)
}

func aged(v any, d time.Duration) any {
	switch v := v.(type) {
	case bson.D:
		for i := range v {
			if at, ok := v[i].Value.(bson.DateTime); ok && v[i].Key == "expiresAt" && at.Time().Year() < 8000 {
				v[i].Value = at - bson.DateTime(d.Milliseconds())
				continue
			}
			v[i].Value = aged(v[i].Value, d)
		}
	case bson.A:
		for i := range v {
			v[i] = aged(v[i], d)
		}
	}
	return v
}

// original is a mongo-lock client as far as the collection sees one: the commands that it sends, with the time of its own
// clock in them.
type original struct {
	coll     *mongo.Collection
	noUpsert bool
}

var errTheirs = errors.New("refused")

func (o original) send(ctx context.Context, filter, change any, upsert bool) error {
	err := o.coll.FindOneAndUpdate(ctx, filter, change, options.FindOneAndUpdate().SetUpsert(upsert && !o.noUpsert).SetReturnDocument(options.After)).Err()
	refused := mongo.IsDuplicateKeyError(err) || (err != nil && strings.Contains(err.Error(), "exclusion constraint")) // as DocumentDB says it
	if refused || errors.Is(err, mongo.ErrNoDocuments) {
		return errTheirs
	}
	return err
}

func newLock(id string, ttl time.Duration) lock {
	now, owner := time.Now(), "them"
	l := lock{LockID: &id, Owner: &owner, CreatedAt: &now, Acquired: true, ID: bson.NewObjectID()}
	if ttl != 0 {
		end := now.Add(ttl)
		l.ExpiresAt = &end
	}
	return l
}

func (o original) xLock(ctx context.Context, resource, id string, ttl time.Duration) error {
	free := bson.A{bson.M{"exclusive.acquired": false}, bson.M{"exclusive.expiresAt": bson.M{"$lte": time.Now()}}}
	return o.send(ctx, bson.M{"resource": resource, "$or": free, "shared.count": 0},
		bson.M{"$set": stored{Resource: resource, Exclusive: newLock(id, ttl), Shared: struct {
			Count uint   `bson:"count"`
			Locks []lock `bson:"locks"`
		}{0, []lock{}}}}, true)
}

func (o original) sLock(ctx context.Context, resource, id string, ttl time.Duration, most int) error {
	filter := bson.M{"resource": resource, "exclusive.acquired": false, "shared.locks.lockId": bson.M{"$ne": id}}
	if most >= 0 {
		filter["shared.count"] = bson.M{"$lt": most}
	}
	return o.send(ctx, filter, bson.M{"$inc": bson.M{"shared.count": 1}, "$push": bson.M{"shared.locks": newLock(id, ttl)}}, true)
}

func (o original) xUnlock(ctx context.Context, resource, id string) error {
	return o.send(ctx, bson.M{"resource": resource, "exclusive.lockId": id}, bson.M{"$set": bson.M{"exclusive": lock{}}}, false)
}

func (o original) sUnlock(ctx context.Context, resource, id string) error {
	return o.send(ctx, bson.M{"resource": resource, "shared.locks.lockId": id},
		bson.M{"$inc": bson.M{"shared.count": -1}, "$pull": bson.M{"shared.locks": bson.M{"lockId": id}}}, false)
}

func (o original) sRenew(ctx context.Context, resource, id string, ttl time.Duration) error {
	now := time.Now()
	return o.send(ctx, bson.M{"resource": resource, "shared.locks": bson.M{"$elemMatch": bson.M{"lockId": id, "expiresAt": bson.M{"$gt": now}}}},
		bson.M{"$set": bson.M{"shared.locks.$.expiresAt": now.Add(ttl), "shared.locks.$.renewedAt": now}}, false)
}
