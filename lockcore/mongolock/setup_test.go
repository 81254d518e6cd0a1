package mongolock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/theirs"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type fixture struct {
	*mongolock.Client
	coll *mongo.Collection
	them theirs.Client
}

func setup(t *testing.T) fixture {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	c := mongolock.NewClient(coll)
	require.NoError(t, c.CreateIndexes(t.Context()))
	return fixture{c, coll, theirs.Client{Coll: coll}}
}

func (f fixture) stored(t *testing.T, resource string) theirs.Document {
	t.Helper()
	d, err := f.them.Read(t.Context(), resource)
	require.NoError(t, err)
	return d
}

// requireLeft fails the test unless what is left of a TTL, in seconds, is all of it but what a machine may need for a test.
func requireLeft(t *testing.T, ttl, left int64) {
	t.Helper()
	require.LessOrEqual(t, left, ttl+1) // the database's clock may run backwards for a moment
	require.Greater(t, left, ttl-30)
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
