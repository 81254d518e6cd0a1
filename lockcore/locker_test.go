package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A client of mongo-lock has left a lock in the collection. Its Renew could shorten what our parts
// trust, so nothing is locked there.
func TestLocker_CollectionOfMongoLock_IsRefused(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	_, err := coll.InsertOne(t.Context(), bson.M{
		"resource": "r", "exclusive": bson.M{"lockId": "a", "acquired": true}, "shared": bson.M{"count": 0, "locks": bson.A{}},
	})
	require.NoError(t, err)
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	wrong := errorAs[*lockcore.LayoutError](t, l.CreateIndexes(t.Context()))
	_, err = l.Steps().TryAcquire(t.Context(), request("b", lockcore.Exclusive("r")))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, `"locks"`)
	require.ErrorContains(t, err, "a field resource, as clients of mongo-lock write it")
	require.ErrorContains(t, err, "Use a collection of its own")

	n, err := coll.CountDocuments(t.Context(), bson.M{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	indexes, err := coll.Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	require.Len(t, indexes, 1, "the index on _id")
}

func TestCollectionID_SameCollection_IsTheSame(t *testing.T) {
	t.Parallel()
	l, other := setup(t, lockcore.Config{}), setup(t, lockcore.Config{})
	again, err := lockcore.New(l.coll, lockcore.Config{})
	require.NoError(t, err)
	first, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, first)
	second, err := again.Steps().CollectionID(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	second, err = other.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Empty(t, list(t, l.Steps, lockcore.Filter{}), "the document of the ID is not a resource")
}

// calls returns calls of the methods of a Locker that use its store.
func calls(l *lockcore.Steps, s *lockcore.Session, leases []lockcore.Lease) map[string]func(ctx context.Context) error {
	req := request("b", lockcore.Exclusive("b"), lockcore.Exclusive("c"))
	queued := numbered("b", lockcore.Exclusive("b"))
	waits := queued
	waits.MaxWait = time.Second
	end := lockcore.Release{LockID: leases[0].LockID, Resources: []string{"r"}, FirstFence: leases[0].FirstFence}
	return map[string]func(ctx context.Context) error{
		"Acquire":      func(ctx context.Context) error { _, err := l.Acquire(ctx, req); return err },
		"TryAcquire":   func(ctx context.Context) error { _, err := l.TryAcquire(ctx, req); return err },
		"Enter":        func(ctx context.Context) error { _, err := l.TryEnter(ctx, req); return err },
		"Enter queues": func(ctx context.Context) error { _, err := l.Enter(ctx, queued); return err },
		"Enter waits":  func(ctx context.Context) error { _, err := l.Enter(ctx, waits); return err },
		"Renew":        func(ctx context.Context) error { _, err := l.Renew(ctx, leases...); return err },
		"Leave":        func(ctx context.Context) error { return l.Leave(ctx, leases...) },
		"LeaveQueue":   func(ctx context.Context) error { _, err := l.LeaveQueue(ctx, leases[0]); return err },
		"Refresh":      func(ctx context.Context) error { return l.Refresh(ctx, leases[0]) },
		"Release":      func(ctx context.Context) error { return l.Release(ctx, end) },
		"Extend":       func(ctx context.Context) error { _, err := l.Extend(ctx, "a", "", "r"); return err },
		"Recheck":      func(ctx context.Context) error { _, err := l.Recheck(ctx, queued); return err },
		"Verify": func(ctx context.Context) error {
			return l.Verify(ctx, lockcore.Verify{LockID: "a", Run: "run", Used: []lockcore.Use{{Resource: "r"}}})
		},
		"Upgrade": func(ctx context.Context) error { return s.Upgrade(ctx, "s") },
	}
}

func TestLocker_EndedContext_SendsNothing(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	s := tryAcquire(t, l, request("s", lockcore.Shared("s")))
	all := calls(l, s, enter(t, l, request("a", lockcore.Exclusive("r"))))
	all["session"] = s.Leave
	delete(all, "Renew") // reports the end of the context after its command
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := db.count()
	for name, call := range all {
		require.ErrorIs(t, call(ctx), context.Canceled, name)
		require.Equal(t, sent, db.count(of(kindLoad, kindSwap, kindExtend, kindReserve)), name)
	}
	require.Len(t, db.Document("r").Entries, 1)
	require.Len(t, db.Document("s").Entries, 1)
}

func TestLocker_Closed_RefusesEveryCall(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	leases := enter(t, l, request("a", lockcore.Exclusive("r"), lockcore.Exclusive("r/2")))
	all := calls(l, tryAcquire(t, l, request("s", lockcore.Shared("s"))), leases)
	all["Status"] = func(ctx context.Context) error { return firstStatus(ctx, l, lockcore.Filter{}) }
	all["Deadlocks"] = func(ctx context.Context) error { _, err := l.Deadlocks(ctx); return err }
	all["BreakDeadlocks"] = func(ctx context.Context) error { _, err := l.BreakDeadlocks(ctx); return err }
	all["CreateIndexes"] = l.CreateIndexes
	all["MissingIndexes"] = func(ctx context.Context) error { _, _, err := l.MissingIndexes(ctx); return err }
	all["CollectionID"] = func(ctx context.Context) error { _, err := l.CollectionID(ctx); return err }
	all["Renewing"] = func(ctx context.Context) error { return context.Cause(l.NewSession(ctx, leases).Context()) }
	require.NoError(t, l.Close(t.Context()))
	for name, call := range all {
		err := call(t.Context())
		require.ErrorIs(t, err, lockcore.ErrClosed, name)
		require.NotErrorIs(t, err, lockcore.ErrUnknownOutcome, name)
	}
	require.Len(t, db.Document("r").Entries, 1)
}
