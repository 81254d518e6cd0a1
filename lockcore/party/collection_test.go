package party_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// A Leave of two locks, from the cache of the process that held them, must not write into a collection that was dropped or
// emptied: documents without an identity look like those of another program, and every Locker would refuse them.
func TestLeave_CollectionDropped_CollectionStaysUsable(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]func(t *testing.T, f fixture){
		"Drop":       func(t *testing.T, f fixture) { require.NoError(t, f.coll.Drop(t.Context())) },
		"DeleteMany": deleteAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, party.Config{})
			leases := enter(t, f.Locker, request("a", party.Exclusive("x"), party.Exclusive("y")))
			empty(t, f)
			require.NoError(t, f.Leave(t.Context(), leases...))
			requireUsable(t, f)
		})
	}
}

func deleteAll(t *testing.T, f fixture) {
	t.Helper()
	_, err := f.coll.DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
}

// requireUsable requires that a process which starts now is not refused.
func requireUsable(t *testing.T, f fixture) {
	t.Helper()
	later, err := party.New(f.coll, party.Config{})
	require.NoError(t, err)
	defer closeSoon(later)
	s := tryAcquire(t, later, request("later", party.Exclusive("z")))
	require.NoError(t, s.Release(t.Context()))
}

// A process that runs while everything is deleted must not keep others from starting.
func TestAcquire_EverythingDeleted_LaterProcessStarts(t *testing.T) {
	t.Parallel()
	f := setup(t, party.Config{})
	leave(t, f.Locker, enter(t, f.Locker, request("a", party.Exclusive("x"), party.Exclusive("y")))...)
	deleteAll(t, f)
	enter(t, f.Locker, request("b", party.Exclusive("x"), party.Exclusive("y"))) // from what the process remembers
	requireUsable(t, f)
	enter(t, f.Locker, request("c", party.Exclusive("new")))
	enter(t, f.Locker, request("d", party.Exclusive("x2"), party.Exclusive("y2")))
	requireUsable(t, f)
}

// An idle process, whose leases need no renewal for minutes, notices within ten seconds that they are gone.
func TestSession_CollectionChanged_IsLostWithinTenSeconds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, f fixture)
		reason string
	}{
		"Clear": {func(t *testing.T, f fixture) {
			other, err := party.New(f.coll, party.Config{})
			require.NoError(t, err)
			defer closeSoon(other)
			done, err := other.Clear(t.Context(), "restored")
			require.NoError(t, err)
			require.Equal(t, 1, done.Holds)
		}, "released by force"},
		"Drop":       {func(t *testing.T, f fixture) { require.NoError(t, f.coll.Drop(t.Context())) }, "was dropped or replaced"},
		"DeleteMany": {deleteAll, "was dropped or replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, party.Config{})
			before, err := f.CollectionID(t.Context())
			require.NoError(t, err)
			req := request("a", party.Exclusive("x"))
			req.TTL = time.Hour
			s := tryAcquire(t, f.Locker, req)
			test.change(t, f)
			requireDone(t, s, 10*time.Second)
			lost := errorAs[*party.LostError](t, context.Cause(s.Context()))
			require.Contains(t, lost.Reason, test.reason)
			require.Equal(t, name == "Clear", before == f.KnownCollectionID())
			next := tryAcquire(t, f.Locker, request("b", party.Exclusive("other"))) // without a restart
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

func TestClear_EndsHoldsAndClaims_KeepsQueuesAndFences(t *testing.T) {
	t.Parallel()
	f := setup(t, party.Config{})
	held := enter(t, f.Locker, request("a", party.Exclusive("held"), party.Exclusive("shared")))
	enter(t, f.Locker, request("b", party.Shared("readers")))
	enter(t, f.Locker, request("c", party.Shared("readers")))
	queue(t, f.Locker, numbered("w", party.Exclusive("held")))
	for _, damaged := range []bson.D{
		{{Key: "_id", Value: "config"}}, {{Key: "_id", Value: "damaged"}, {Key: "version", Value: bson.A{1, 2}}},
		{{Key: "_id", Value: "worse"}, {Key: "version", Value: bson.D{{Key: "n", Value: int64(1)}, {Key: "r", Value: "r"}}}, {Key: "held", Value: "x"}},
	} {
		_, err := f.coll.InsertOne(t.Context(), damaged)
		require.NoError(t, err)
	}
	_, err := f.Clear(t.Context(), "")
	requireInvalid(t, err, "reason")
	var before, after struct{ ID, Epoch string }
	identity := bson.D{{Key: "_id", Value: 0}}
	require.NoError(t, f.coll.FindOne(t.Context(), identity).Decode(&before))
	done, err := f.Clear(t.Context(), "restored")
	require.NoError(t, err)
	require.Equal(t, party.Cleared{ID: before.ID, Resources: 3, Holds: 4, Deleted: []string{"config", "damaged", "worse"}}, done)
	require.NoError(t, f.coll.FindOne(t.Context(), identity).Decode(&after))
	require.Equal(t, before.ID, after.ID)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, 1, f.waiting(t, "held")+claims(t, f, "held"), "the queue stays")
	_, err = f.Renew(t.Context(), held...)
	require.ErrorIs(t, err, party.ErrLost)
	require.Equal(t, 2, strings.Count(err.Error(), "restored"), "%v", err)

	again, err := f.Clear(t.Context(), "restored again")
	require.NoError(t, err)
	require.Empty(t, again.Deleted)
	require.Zero(t, again.Holds)
	leave(t, f.Locker, held...) // the parts drain until they leave
	leases := enter(t, f.Locker, request("next", party.Exclusive("shared")))
	require.Greater(t, leases[0].Fence, held[1].Fence)
}

func claims(t *testing.T, f fixture, resource string) int {
	t.Helper()
	return len(statuses(t, f.Locker, party.Filter{Resource: resource, States: []party.State{party.StateClaimed}}))
}

func TestReplace_KeepsTwentyAndRefusesItsOwn(t *testing.T) {
	t.Parallel()
	f := setup(t, party.Config{})
	own, err := f.CollectionID(t.Context())
	require.NoError(t, err)
	requireInvalid(t, f.Replace(t.Context(), own, "moved"), "id")
	requireInvalid(t, f.Replace(t.Context(), "old", ""), "reason")
	for i := range 22 {
		require.NoError(t, f.Replace(t.Context(), fmt.Sprint("old-", i), "moved"))
	}
	require.NoError(t, f.Replace(t.Context(), "old-2", "moved"), "it may be repeated")
	for id, want := range map[string]bool{"old-0": false, "old-1": false, "old-2": true, "old-21": true, own: false, "": false} {
		replaces, now, err := f.Replaces(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, replaces, id)
		require.Equal(t, own, now)
	}
	_, err = f.coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 0}},
		bson.D{{Key: "$push", Value: bson.D{{Key: "replaces", Value: bson.D{{Key: "id", Value: own}, {Key: "reason", Value: "by hand"}}}}}})
	require.NoError(t, err)
	replaces, _, err := f.Replaces(t.Context(), own)
	require.NoError(t, err)
	require.False(t, replaces, "the own ID never counts")
}
