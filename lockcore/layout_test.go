package lockcore_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// TestAnotherLayoutIsRefused has a collection in which a client of mongo-lock has left a lock. Its Renew could shorten
// what our parts trust, so nothing is locked there.
func TestAnotherLayoutIsRefused(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	_, err := coll.InsertOne(t.Context(), bson.M{
		"resource": "r", "exclusive": bson.M{"lockId": "a", "acquired": true}, "shared": bson.M{"count": 0, "locks": bson.A{}},
	})
	require.NoError(t, err)
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	var wrong *lockcore.LayoutError
	require.ErrorAs(t, l.CreateIndexes(t.Context()), &wrong)
	_, err = l.TryAcquire(t.Context(), one("b", lockcore.Exclusive("r")))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, `"locks"`)
	require.ErrorContains(t, err, "a field resource, as clients of mongo-lock write it")
	require.ErrorContains(t, err, "Use a collection of its own")

	n, err := coll.CountDocuments(t.Context(), bson.M{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	indexes, err := coll.Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	require.Len(t, indexes, 1, "that on _id")
}
