package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/lockcore"
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
			f := setup(t, lockcore.Config{})
			leases := enter(t, f.Steps, request("a", lockcore.Exclusive("x"), lockcore.Exclusive("y")))
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
	later, err := lockcore.New(f.coll, lockcore.Config{})
	require.NoError(t, err)
	defer closeSoon(later.Steps())
	s := tryAcquire(t, later.Steps(), request("later", lockcore.Exclusive("z")))
	require.NoError(t, s.Release(t.Context()))
}

// A process that runs while everything is deleted must not keep others from starting.
func TestAcquire_EverythingDeleted_LaterProcessStarts(t *testing.T) {
	t.Parallel()
	f := setup(t, lockcore.Config{})
	leave(t, f.Steps, enter(t, f.Steps, request("a", lockcore.Exclusive("x"), lockcore.Exclusive("y")))...)
	deleteAll(t, f)
	enter(t, f.Steps, request("b", lockcore.Exclusive("x"), lockcore.Exclusive("y"))) // from what the process remembers
	requireUsable(t, f)
	enter(t, f.Steps, request("c", lockcore.Exclusive("new")))
	enter(t, f.Steps, request("d", lockcore.Exclusive("x2"), lockcore.Exclusive("y2")))
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
			other, err := lockcore.New(f.coll, lockcore.Config{})
			require.NoError(t, err)
			defer closeSoon(other.Steps())
			done, err := repair.Clear(t.Context(), other.Steps(), f.coll, "restored")
			require.NoError(t, err)
			require.Equal(t, 1, done.Holds)
		}, "released by force"},
		"Drop":       {func(t *testing.T, f fixture) { require.NoError(t, f.coll.Drop(t.Context())) }, "was dropped or replaced"},
		"DeleteMany": {deleteAll, "was dropped or replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, lockcore.Config{})
			before, err := f.CollectionID(t.Context())
			require.NoError(t, err)
			req := request("a", lockcore.Exclusive("x"))
			req.TTL = time.Hour
			s := tryAcquire(t, f.Steps, req)
			test.change(t, f)
			requireDone(t, s, 10*time.Second)
			lost := errorAs[*lockcore.LostError](t, context.Cause(s.Context()))
			require.Contains(t, lost.Reason, test.reason)
			require.Equal(t, name == "Clear", before == f.KnownCollectionID())
			next := tryAcquire(t, f.Steps, request("b", lockcore.Exclusive("other"))) // without a restart
			require.NoError(t, next.Release(t.Context()))
		})
	}
}
