package mongolock_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type fixture struct {
	*mongolock.Client
	coll *mongo.Collection
}

func setup(t *testing.T) fixture {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	c := mongolock.NewClient(coll)
	require.NoError(t, c.CreateIndexes(t.Context()))
	return fixture{c, coll}
}

// holders returns the lock IDs that hold a resource, expired or not, sorted.
func (f fixture) holders(t *testing.T, resource string) string {
	t.Helper()
	var ids []string
	for _, s := range f.status(t, mongolock.Filter{Resource: resource}) {
		ids = append(ids, s.LockId)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// requireLeft fails the test unless what is left of a TTL, in seconds, is all of it but what a
// machine may need for a test.
func requireLeft(t *testing.T, ttl, left int64) {
	t.Helper()
	require.LessOrEqual(t, left, ttl+1) // the database's clock may run backwards for a moment
	require.Greater(t, left, ttl-30)
}

// age moves the expiry of every lock on a resource by d into the past.
func (f fixture) age(t *testing.T, resource string, d time.Duration) {
	t.Helper()
	var doc bson.D
	require.NoError(t, f.coll.FindOne(t.Context(), bson.M{"_id": resource}).Decode(&doc))
	for i := range doc {
		if doc[i].Key == "version" { // as every write does: a Client compares it
			doc[i].Value = bson.D{{Key: "n", Value: time.Now().UnixNano()}, {Key: "r", Value: rand.Text()}}
		}
	}
	_, err := f.coll.ReplaceOne(t.Context(), bson.M{"_id": resource}, aged(doc, d))
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

func (f fixture) xlock(t *testing.T, resource, lockID string, ld mongolock.LockDetails) {
	t.Helper()
	require.NoError(t, f.XLock(t.Context(), resource, lockID, ld))
}

func (f fixture) slock(t *testing.T, resource, lockID string, ld mongolock.LockDetails, limit int) {
	t.Helper()
	require.NoError(t, f.SLock(t.Context(), resource, lockID, ld, limit))
}

// status returns the locks of a filter.
func (f fixture) status(t *testing.T, filter mongolock.Filter) []mongolock.LockStatus {
	t.Helper()
	found, err := f.Status(t.Context(), filter)
	require.NoError(t, err)
	return found
}

func (f fixture) unlock(t *testing.T, lockID string) []mongolock.LockStatus {
	t.Helper()
	unlocked, err := f.Unlock(t.Context(), lockID)
	require.NoError(t, err)
	return unlocked
}

// names returns the resources and lock IDs of locks, in their order.
func names(locks []mongolock.LockStatus) string {
	var out []string
	for _, s := range locks {
		out = append(out, s.Resource+"/"+s.LockId)
	}
	return strings.Join(out, " ")
}
