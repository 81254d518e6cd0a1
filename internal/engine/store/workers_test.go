package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

var (
	one   = store.Worker{Namespace: "default", Queue: "payments", Identity: "7@host@"}
	other = store.Worker{Namespace: "default", Queue: "payments", Identity: "8@host@"}
)

func TestMongo_RegisterWorker_IsListedAndIsNoResource(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range 2 {
		require.NoError(t, f.RegisterWorker(t.Context(), one))
	}
	require.NoError(t, f.RegisterWorker(t.Context(), other))
	workers, err := f.Workers(t.Context(), time.Minute)
	require.NoError(t, err)
	require.ElementsMatch(t, []store.Worker{one, other}, workers)
	for _, q := range []rules.Query{{}, {Contended: true}, {Waiting: true}, {LockID: "7@host@"}, {Prefix: "p"}} {
		for d, err := range f.List(t.Context(), q) {
			require.NoError(t, err)
			require.Fail(t, "a registration is listed as a resource", "%+v", d)
		}
	}
}

func TestMongo_Workers_SilentForLong_IsLeftOut(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.RegisterWorker(t.Context(), one))
	require.NoError(t, f.RegisterWorker(t.Context(), other))
	hourAgo := bson.D{{Key: "$set", Value: bson.D{{Key: "idleAt", Value: time.Now().Add(-time.Hour)}}}}
	updated, err := f.raw.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: other}}, hourAgo)
	require.NoError(t, err)
	require.EqualValues(t, 1, updated.ModifiedCount)
	workers, err := f.Workers(t.Context(), 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, []store.Worker{one}, workers)
}

// A registration in a collection without an identity would make the collection look foreign.
func TestMongo_RegisterWorker_DroppedCollection_HasAnIdentityAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.RegisterWorker(t.Context(), one))
	require.NoError(t, f.raw.Drop(t.Context()))
	require.NoError(t, f.RegisterWorker(t.Context(), one))
	identity, err := store.New(f.raw).Identify(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, identity.ID)
}
