package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// account is a document whose writers hold its lock.
func account(t *testing.T) (write func(lockcore.Lease) error, stored func() bson.M) {
	t.Helper()
	coll := testenv.Mongo(t).Collection("accounts")
	byID := bson.D{{Key: "_id", Value: 42}}
	_, err := coll.InsertOne(t.Context(), byID)
	require.NoError(t, err)
	n := 0
	return func(lease lockcore.Lease) error {
			n++
			return lockcore.UpdateFenced(t.Context(), coll, lease, byID, bson.D{
				{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}, {Key: "$push", Value: bson.D{{Key: "log", Value: lease.Fence}}}})
		}, func() bson.M {
			var d bson.M
			require.NoError(t, coll.FindOne(t.Context(), byID).Decode(&d))
			return d
		}
}

// part is a lease of a part of a saga, by its n-th attempt.
func part(t *testing.T, l *lockcore.Locker, name string, attempt uint32, change ...func(*lockcore.Request)) lockcore.Lease {
	t.Helper()
	req := one("saga", lockcore.Exclusive("account/42"))
	req.Part, req.Order, req.Persist = name, lockcore.Order{Schedule: 1, Attempt: attempt}, true
	for _, f := range change {
		f(&req)
	}
	leases, err := l.Enter(t.Context(), req, true)
	require.NoError(t, err)
	return leases[0]
}

func TestParallelPartsOfOneHoldWriteAndEarlierAttemptsDoNot(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := on(t, lockcoretest.NewStore(clock.Now), lockcore.Config{})
	write, _ := account(t)
	a, b1 := part(t, l, "a", 1), part(t, l, "b", 1)
	require.NoError(t, write(b1))
	b2 := part(t, l, "b", 2)
	require.Greater(t, b2.Fence, a.Fence)
	require.Equal(t, a.FirstFence, b2.FirstFence)
	for range 3 {
		require.NoError(t, write(b2))
		require.NoError(t, write(a), "it holds, in parallel")
	}
	var fenced *lockcore.FencedError
	require.ErrorAs(t, write(b1), &fenced)
	require.Equal(t, &lockcore.FencedError{Resource: "account/42", Fence: b1.Fence, By: b2.Fence}, fenced)
	b3 := part(t, l, "b", 3)
	require.NoError(t, write(b3))
	require.ErrorIs(t, write(b2), lockcore.ErrFenced)
	require.NoError(t, write(a))

	// A lease that asked for a new fence bars all before it, as compensations need it.
	undo := part(t, l, "undo b", 1, func(r *lockcore.Request) { r.NewFence = true })
	require.NoError(t, write(undo))
	require.ErrorIs(t, write(a), lockcore.ErrFenced)
	require.ErrorIs(t, write(b3), lockcore.ErrFenced)
	require.NoError(t, write(part(t, l, "c", 1)))

	// So does a later hold, once it has written.
	clock.Advance(2 * time.Hour)
	next, err := l.Enter(t.Context(), one("next", lockcore.Exclusive("account/42")), false)
	require.NoError(t, err)
	require.NoError(t, write(undo), "nobody has written since")
	require.NoError(t, write(next[0]))
	require.ErrorIs(t, write(undo), lockcore.ErrFenced)
}

func TestWhatFencedWritesStoreIsBounded(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := on(t, lockcoretest.NewStore(clock.Now), lockcore.Config{})
	write, stored := account(t)
	first := part(t, l, "first", 1)
	for i := range 100 {
		name := fmt.Sprint("step ", i)
		part(t, l, name, 1)
		again := part(t, l, name, 2)
		require.NoError(t, write(again))
		require.NoError(t, write(again))
		require.NoError(t, l.Leave(t.Context(), again))
		clock.Advance(time.Minute)
	}
	require.NoError(t, write(first))
	fence, err := bson.Marshal(stored()[lockcore.FenceField])
	require.NoError(t, err)
	require.Less(t, len(fence), 4096)
}

func TestSharedLeaseIsRefusedAsAFence(t *testing.T) {
	t.Parallel()
	write, _ := account(t)
	err := write(lockcore.Lease{Resource: "r", Fence: 7, Mode: lockcore.ModeShared})
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "lease.Mode", invalid.Field)
}
