package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A request for two resources that is refused one of them writes nothing: the expired holder of the other
// keeps its hold.
func TestRequest_OneOfTwoIsRefused_WritesNothing(t *testing.T) {
	both := []lockcore.Resource{lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")}
	eachCase(t, map[string]func(t *testing.T, l *lockcore.Steps){
		"busy": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			_, err := l.TryEnter(t.Context(), request("a", both...))
			require.ErrorIs(t, err, lockcore.ErrBusy)
		},
		"full": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			req := numbered("a", both...)
			_, err := l.Enter(t.Context(), req)
			require.ErrorIs(t, err, lockcore.ErrQueueFull)
		},
		"full, and would wait": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			_, err := l.Acquire(t.Context(), request("a", both...))
			require.ErrorIs(t, err, lockcore.ErrQueueFull)
		},
		"another run, and would wait": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			req := request("other", both...)
			req.Run = "two"
			_, err := l.Acquire(t.Context(), req)
			require.ErrorIs(t, err, lockcore.ErrOtherRun)
		},
		"another run": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			req := request("other", both...)
			req.Run = "two"
			leases, err := l.TryEnter(t.Context(), req)
			require.ErrorIs(t, err, lockcore.ErrOtherRun)
			require.Empty(t, leases)
		},
		"lost": func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			req := request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"))
			req.Run, req.HeldSince = "one", map[string]uint32{"r/2": 9}
			_, err := l.TryEnter(t.Context(), req)
			require.ErrorIs(t, err, lockcore.ErrLost)
		},
	}, func(t *testing.T, l *lockcore.Steps, db *faultStore, refused func(*testing.T, *lockcore.Steps)) {
		other := newLocker(t, db, lockcore.Config{MaxWaiters: 1})
		holder := request("other", lockcore.Exclusive("r/2"))
		holder.Run, holder.TTL = "one", time.Hour
		enter(t, other, holder)
		queue(t, other, numbered("waiter", lockcore.Exclusive("r/2")))
		enter(t, l, request("expired", lockcore.Exclusive("r/1")))
		elapse(time.Minute)
		before := db.Version("r/1")
		refused(t, other)
		require.Equal(t, before, db.Version("r/1"))
		require.Equal(t, "expired", db.Document("r/1").Entries[0].LockID)
	})
}

// What one request keeps for a shorter time must not shorten what its lock ID keeps.
func TestTryEnter_GivesUp_KeepsTheTimeOfItsPartysHold(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	saga := keeping("a", lockcore.Exclusive("r/1"))
	saga.HoldTTL = time.Hour
	leave(t, l, enter(t, l, saga)...)
	short := keeping("a", lockcore.Exclusive("r/1"))
	short.Part, short.TTL, short.HoldTTL = "q", time.Second, time.Second
	s, err := l.TryAcquire(t.Context(), short)
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context()))
	d := db.Document("r/1")
	require.Equal(t, time.Hour.Milliseconds(), d.Kept("a").TTL)
}

// A look that is not possible now is made again: another process has reserved the second resource for a moment, or the
// read fails.
func TestTryEnter_CannotLookAtOnce_WritesNothing(t *testing.T) {
	eachCase(t, map[string]func(t *testing.T, db *faultStore){
		"reserved": func(t *testing.T, db *faultStore) {
			t.Helper()
			require.NoError(t, db.Store.Reserve(t.Context(), "r/2", rules.Reservation{By: "far", Until: time.Now().Add(3 * time.Second)}))
		},
		"the read fails": func(_ *testing.T, db *faultStore) { db.set(times(1, failing(errNotSent), of(kindLoad)), nil) },
	}, func(t *testing.T, l *lockcore.Steps, db *faultStore, happens func(*testing.T, *faultStore)) {
		enter(t, l, request("expired", lockcore.Exclusive("r/1")))
		elapse(time.Minute)
		holder := request("holder", lockcore.Exclusive("r/2"))
		holder.TTL = time.Hour
		enter(t, l, holder)
		other := newLocker(t, db, lockcore.Config{})
		happens(t, db)
		_, err := other.TryEnter(t.Context(), request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")))
		require.ErrorIs(t, err, lockcore.ErrBusy)
		require.Equal(t, "expired", db.Document("r/1").Entries[0].LockID)
	})
}

// The read before the write finds a document that cannot be decoded.
func TestTryEnter_OneOfTwoIsDamaged_WritesNothing(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	enter(t, l, request("holder", lockcore.Exclusive("r/2")))
	db.Damage("r/2", bson.Raw("\x05\x00\x00\x00\x00"))
	other := newLocker(t, db, lockcore.Config{})
	_, err := other.TryEnter(t.Context(), request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")))
	require.ErrorIs(t, err, lockcore.ErrDamaged)
	require.Zero(t, db.Version("r/1"))
}

// A request that gives up during an outage is taken back when the database answers again, not only when its TTL ends.
func TestAcquire_GivesUpInAnOutage_IsTakenBack(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		other := newLocker(t, db, lockcore.Config{})
		holder := request("holder", lockcore.Exclusive("r/2"))
		holder.TTL = time.Hour
		enter(t, other, holder)
		ctx, giveUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")))
			done <- err
		}()
		elapse(time.Second)
		require.Len(t, db.Document("r/1").Entries, 1)
		db.set(failing(errNotSent, of(kindSwap, kindExtend)), nil)
		giveUp()
		require.ErrorIs(t, <-done, context.Canceled)
		elapse(3 * time.Second)
		db.set(nil, nil)
		elapse(10 * time.Second)
		require.Empty(t, db.Document("r/1").Entries)
	})
}
