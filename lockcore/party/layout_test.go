package party_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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
	l, err := party.New(coll, party.Config{})
	require.NoError(t, err)
	var wrong *party.LayoutError
	require.ErrorAs(t, l.CreateIndexes(t.Context()), &wrong)
	_, err = l.TryAcquire(t.Context(), request("b", party.Exclusive("r")))
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

func TestACollectionHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	l, other := setup(t, party.Config{}), setup(t, party.Config{})
	again, err := party.New(l.coll, party.Config{})
	require.NoError(t, err)
	first, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, first)
	second, err := again.CollectionID(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	second, err = other.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	for s, err := range l.Status(t.Context(), party.Filter{}) {
		require.NoError(t, err)
		t.Errorf("it lists %+v", s)
	}
}

func TestACollectionOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	_, err := l.coll.UpdateByID(t.Context(), 0, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: rules.LayoutVersion + 1}}}})
	require.NoError(t, err)
	later, err := party.New(l.coll, party.Config{})
	require.NoError(t, err)
	var wrong *party.LayoutError
	require.ErrorAs(t, later.CreateIndexes(t.Context()), &wrong)
	_, err = later.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "version 4")
}
