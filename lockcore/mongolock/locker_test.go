package mongolock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// TestClient_LockerOnTheCollection_RespectsBoth has a Locker wait for a lock of a client, in the queue, and the
// other way round.
func TestClient_LockerOnTheCollection_RespectsBoth(t *testing.T) {
	t.Parallel()
	c := setup(t)
	l, err := party.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	request := party.Request{LockID: "saga", Resources: []lockcore.Resource{lockcore.Exclusive("r")}, Owner: "payments"}

	require.NoError(t, c.XLock(t.Context(), "r", "a", hour))
	_, err = l.TryAcquire(t.Context(), request)
	var busy *lockcore.BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, busy.Holders[0].LockID, "mongo-lock/a/")

	got := make(chan *party.Session, 1)
	go func() {
		s, err := l.Acquire(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	require.Eventually(t, func() bool {
		var d bson.M
		require.NoError(t, c.coll.FindOne(t.Context(), bson.M{"_id": "r"}).Decode(&d))
		return len(d["waiters"].(bson.A)) == 1
	}, 10*time.Second, 5*time.Millisecond, "it queues")
	_, err = c.Unlock(t.Context(), "a")
	require.NoError(t, err)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "b", hour), mongolock.ErrAlreadyLocked, "the waiter is first")
	s := <-got
	require.NotNil(t, s)

	// What a Locker holds is none of a client's locks, whatever its lock ID.
	unlocked, err := c.Unlock(t.Context(), "saga")
	require.NoError(t, err)
	require.Empty(t, unlocked)
	require.Empty(t, c.holders(t, "r"))
	require.ErrorIs(t, c.XLock(t.Context(), "r", "saga", hour), mongolock.ErrAlreadyLocked)
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, c.XLock(t.Context(), "r", "saga", hour))
}

// TestClient_CollectionOfMongoLock_IsRefused has a collection in which clients of the package mongo-lock have left
// a document.
func TestClient_CollectionOfMongoLock_IsRefused(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	_, err := coll.InsertOne(t.Context(), bson.M{
		"resource": "r", "exclusive": bson.M{"lockId": "a", "acquired": true}, "shared": bson.M{"count": 0, "locks": bson.A{}},
	})
	require.NoError(t, err)
	c := mongolock.NewClient(coll)
	var wrong *lockcore.LayoutError
	require.ErrorAs(t, c.CreateIndexes(t.Context()), &wrong)
	require.ErrorAs(t, c.XLock(t.Context(), "r", "b", forever), &wrong)
}

// TestSLock_SameLockIDAtOnce_OneIsGranted has shared locks of one lock ID race.
func TestSLock_SameLockIDAtOnce_OneIsGranted(t *testing.T) {
	t.Parallel()
	c := setup(t)
	var wg sync.WaitGroup
	var got atomic.Int32
	for range 6 {
		wg.Go(func() {
			switch err := c.SLock(t.Context(), "r", "a", hour, -1); err {
			case nil:
				got.Add(1)
			case mongolock.ErrAlreadyLocked: //nolint:errorlint // == is promised
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, got.Load())
	require.Equal(t, "a", c.holders(t, "r"))
}

// TestClient_LockersCompete_OneHoldsAtATime has clients and sessions take turns on one resource.
func TestClient_LockersCompete_OneHoldsAtATime(t *testing.T) {
	t.Parallel()
	c := setup(t)
	l, err := party.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	var inside, turns atomic.Int32
	turn := func(id string) {
		if inside.Add(1) != 1 {
			t.Errorf("%s is not alone", id)
		}
		turns.Add(1)
		inside.Add(-1)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 8 {
				id := fmt.Sprint(i, "/", n)
				if i%2 == 0 {
					s, err := l.Acquire(t.Context(), party.Request{LockID: id, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
					if err != nil {
						t.Error(err)
						return
					}
					turn(id)
					if err := s.Release(t.Context()); err != nil {
						t.Error(err)
					}
					continue
				}
				for err := c.XLock(t.Context(), "r", id, hour); err != nil; err = c.XLock(t.Context(), "r", id, hour) {
					if !errors.Is(err, mongolock.ErrAlreadyLocked) {
						t.Error(err)
						return
					}
					<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond)
				}
				turn(id)
				if _, err := c.Unlock(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 32, turns.Load())
}
