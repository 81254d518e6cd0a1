package mongolock_test

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// oldClient has the methods of mongo-lock's own client that are needed while a fleet moves.
type oldClient interface {
	XLock(ctx context.Context, resourceName, lockID string, ld mongolock.LockDetails) error
	Unlock(ctx context.Context, lockID string) ([]mongolock.LockStatus, error)
}

func importOrders(ctx context.Context, locker *lockcore.Locker, old oldClient, work func(context.Context) error) error {
	lockID := rand.Text()
	session, err := locker.Acquire(ctx, lockcore.Request{
		LockID: lockID, Resources: []lockcore.Resource{lockcore.Exclusive("table/orders")},
	})
	if err != nil {
		return err
	}
	defer func() { _ = session.Release(context.WithoutCancel(ctx)) }() // what fails here ends with its TTL
	// Until the last old program is gone:
	defer func() { _, _ = old.Unlock(context.WithoutCancel(ctx), lockID) }() // also if it is open whether XLock took it
	if err := old.XLock(ctx, "table/orders", lockID, mongolock.LockDetails{TTL: 3600}); err != nil {
		return err // mongo-lock's ErrAlreadyLocked: an old program holds it
	}
	return work(session.Context())
}

// A client on a collection of its own represents mongo-lock's.
func TestRecipe_FleetMoves_OldAndNewExclude(t *testing.T) {
	t.Parallel()
	c, old := setup(t), setup(t)
	l, err := lockcore.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	request := lockcore.Request{LockID: "b", Resources: []lockcore.Resource{lockcore.Exclusive("table/orders")}}
	old.xlock(t, "table/orders", "old", hour)
	work := func(context.Context) error {
		require.ErrorIs(t, old.XLock(t.Context(), "table/orders", "old", hour), mongolock.ErrAlreadyLocked)
		_, err := l.TryAcquire(t.Context(), request)
		require.ErrorIs(t, err, lockcore.ErrBusy)
		return nil
	}
	require.ErrorIs(t, importOrders(t.Context(), l, old, work), mongolock.ErrAlreadyLocked)
	require.Equal(t, "old", old.holders(t, "table/orders"), "an old program's lock stands")
	old.unlock(t, "old")
	require.NoError(t, importOrders(t.Context(), l, old, work))
	require.Empty(t, old.holders(t, "table/orders"))
	s, err := l.TryAcquire(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
}
