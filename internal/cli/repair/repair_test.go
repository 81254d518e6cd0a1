package repair_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func setup(t *testing.T) (*lockcore.Steps, *mongo.Collection) {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l.Steps(), coll
}

func enter(t *testing.T, l *lockcore.Steps, lockID string, resources ...lockcore.Resource) []lockcore.Lease {
	t.Helper()
	leases, err := l.Enter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: resources})
	require.NoError(t, err)
	return leases
}

func states(t *testing.T, l *lockcore.Steps, resource string) (found []lockcore.State) {
	t.Helper()
	for s, err := range l.Status(t.Context(), lockcore.Filter{Resource: resource}) {
		require.NoError(t, err)
		found = append(found, s.State)
	}
	return found
}

func identityOf(t *testing.T, coll *mongo.Collection) (identity struct{ ID, Epoch string }) {
	t.Helper()
	require.NoError(t, coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: 0}}).Decode(&identity))
	return identity
}

func TestClear_EndsHoldsAndClaims_KeepsQueuesAndFences(t *testing.T) {
	t.Parallel()
	l, coll := setup(t)
	held := enter(t, l, "a", lockcore.Exclusive("held"), lockcore.Exclusive("other"))
	enter(t, l, "b", lockcore.Shared("readers"))
	enter(t, l, "c", lockcore.Shared("readers"))
	_, err := l.Enter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "w", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive("held")}})
	require.ErrorIs(t, err, lockcore.ErrBusy)
	passing := enter(t, l, "d", lockcore.Exclusive("claimed"))
	_, err = l.Enter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "v", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive("claimed")}})
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.NoError(t, l.Leave(t.Context(), passing...))
	require.Equal(t, []lockcore.State{lockcore.StateClaimed}, states(t, l, "claimed"))
	for _, damaged := range []bson.D{
		{{Key: "_id", Value: "config"}}, {{Key: "_id", Value: "damaged"}, {Key: "version", Value: bson.A{1, 2}}},
		{{Key: "_id", Value: "worse"}, {Key: "version", Value: bson.D{{Key: "n", Value: int64(1)}, {Key: "r", Value: "r"}}}, {Key: "entries", Value: "x"}},
	} {
		_, err := coll.InsertOne(t.Context(), damaged)
		require.NoError(t, err)
	}
	before := identityOf(t, coll)
	done, err := repair.Clear(t.Context(), l, coll, "restored")
	require.NoError(t, err)
	require.Equal(t, repair.Cleared{ID: before.ID, Resources: 4, Holds: 4, Claims: 1, Deleted: []string{"config", "damaged", "worse"}}, done)
	after := identityOf(t, coll)
	require.Equal(t, before.ID, after.ID)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, []lockcore.State{lockcore.StateDraining, lockcore.StateWaiting}, states(t, l, "held"), "parts drain, and the queue stays")
	_, err = l.Renew(t.Context(), held...)
	require.ErrorIs(t, err, lockcore.ErrLost)
	require.Equal(t, 2, strings.Count(err.Error(), "restored"), "%v", err)

	again, err := repair.Clear(t.Context(), l, coll, "restored again")
	require.NoError(t, err)
	require.Equal(t, repair.Cleared{ID: before.ID}, again, "it may be repeated")
	require.NoError(t, l.Leave(t.Context(), held...))
	next := enter(t, l, "next", lockcore.Exclusive("other"))
	require.Greater(t, next[0].Fence, held[1].Fence)
}

func TestReplace_KeepsTwentyAndRefusesItsOwn(t *testing.T) {
	t.Parallel()
	l, coll := setup(t)
	own, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, repair.Replace(t.Context(), coll, own, "moved"), "of this collection itself")
	for i := range 22 {
		require.NoError(t, repair.Replace(t.Context(), coll, fmt.Sprint("old-", i), "moved"))
	}
	require.NoError(t, repair.Replace(t.Context(), coll, "old-2", "moved"), "it may be repeated")
	for id, want := range map[string]bool{"old-0": false, "old-1": false, "old-2": true, "old-21": true, own: false, "": false} {
		replaces, now, err := l.Replaces(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, replaces, id)
		require.Equal(t, own, now)
	}
	_, err = coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 0}},
		bson.D{{Key: "$push", Value: bson.D{{Key: "replaces", Value: bson.D{{Key: "id", Value: own}, {Key: "reason", Value: "by hand"}}}}}})
	require.NoError(t, err)
	replaces, _, err := l.Replaces(t.Context(), own)
	require.NoError(t, err)
	require.False(t, replaces, "the own ID never counts")
}
