package mongolock_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// oldClient is what is used of mongo-lock's own client while a fleet moves.
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

// oldLocks represents the old client and its collection.
type oldLocks struct {
	mu    sync.Mutex
	locks map[string]string // lock IDs by resource
}

func (o *oldLocks) XLock(_ context.Context, resource, lockID string, _ mongolock.LockDetails) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, held := o.locks[resource]; held {
		return mongolock.ErrAlreadyLocked
	}
	o.locks[resource] = lockID
	return nil
}

func (o *oldLocks) Unlock(_ context.Context, lockID string) ([]mongolock.LockStatus, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for resource, id := range o.locks {
		if id == lockID {
			delete(o.locks, resource)
		}
	}
	return nil, nil
}

func TestRecipe_FleetMoves_OldAndNewExclude(t *testing.T) {
	t.Parallel()
	c := setup(t)
	l, err := lockcore.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	old, details := &oldLocks{locks: map[string]string{}}, mongolock.LockDetails{}
	try := func() error {
		_, err := l.TryAcquire(t.Context(), lockcore.Request{LockID: "b", Resources: []lockcore.Resource{lockcore.Exclusive("table/orders")}})
		return err
	}

	require.NoError(t, old.XLock(t.Context(), "table/orders", "old", details))
	work := func(context.Context) error {
		require.ErrorIs(t, old.XLock(t.Context(), "table/orders", "old", details), mongolock.ErrAlreadyLocked)
		require.ErrorIs(t, try(), lockcore.ErrBusy)
		return nil
	}
	require.ErrorIs(t, importOrders(t.Context(), l, old, work), mongolock.ErrAlreadyLocked)
	require.Equal(t, "old", old.locks["table/orders"], "an old program's lock stands")
	_, err = old.Unlock(t.Context(), "old")
	require.NoError(t, err)
	require.NoError(t, importOrders(t.Context(), l, old, work))
	require.Empty(t, old.locks)
	s, err := l.TryAcquire(t.Context(), lockcore.Request{LockID: "c", Resources: []lockcore.Resource{lockcore.Exclusive("table/orders")}})
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
}
