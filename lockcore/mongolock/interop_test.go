package mongolock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/theirs"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// A document that was there before, as mongo-lock leaves it: without comment, as the older one does, and with ends that are null.
func TestUnderstandsOldDocuments(t *testing.T) {
	t.Parallel()
	c := setup(t)
	held := func(id string, expiresAt any) bson.M {
		return bson.M{"_id": bson.NewObjectID(), "lockId": id, "owner": "john", "host": nil, "createdAt": time.Now().Add(-time.Hour), "renewedAt": nil, "expiresAt": expiresAt, "acquired": true}
	}
	none := bson.M{"lockId": nil, "owner": nil, "host": nil, "createdAt": nil, "renewedAt": nil, "expiresAt": nil, "acquired": false}
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	insert := func(name string, exclusive bson.M, shared ...any) {
		_, err := c.coll.InsertOne(t.Context(), bson.M{"resource": name, "exclusive": exclusive, "shared": bson.M{"count": len(shared), "locks": append(bson.A{}, shared...)}})
		require.NoError(t, err)
	}
	insert("free", none)
	insert("x", held("a", nil))
	insert("x expired", held("a", past))
	insert("s", none, held("a", future), held("b", nil))
	insert("s expired", none, held("a", past), held("b", past))
	insert("s partly", none, held("a", past), held("b", future))
	insert("upserted", bson.M{"acquired": false}, held("a", future)) // what SLock makes of nothing

	for name, free := range map[string]struct{ x, s2 bool }{
		"free": {true, true}, "x": {}, "x expired": {true, true}, "s": {}, "s expired": {true, true}, "s partly": {false, true}, "upserted": {false, true},
	} {
		if err := c.SLock(t.Context(), name, "new", hour, 2); free.s2 {
			require.NoError(t, err, name)
			_, err = c.Unlock(t.Context(), "new")
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, mongolock.ErrAlreadyLocked, name)
		}
		if err := c.XLock(t.Context(), name, "new", hour); free.x {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, mongolock.ErrAlreadyLocked, name)
		}
	}

	statuses, err := c.Status(t.Context(), mongolock.Filter{Resource: "s", LockId: "b"})
	require.NoError(t, err)
	require.Equal(t, "john", statuses[0].Owner)
	require.EqualValues(t, -1, statuses[0].TTL)
	renewed, err := c.Renew(t.Context(), "b", 90)
	require.NoError(t, err)
	require.Len(t, renewed, 2, "that of s, and that of s partly")
	unlocked, err := c.Unlock(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, unlocked, 2)
	require.Equal(t, "a", *c.stored(t, "s").Shared.Locks[0].LockID)
}

func TestWritesWhatTheyRead(t *testing.T) {
	t.Parallel()
	c := setup(t)
	require.NoError(t, c.XLock(t.Context(), "x", "a", mongolock.LockDetails{Owner: "a", Host: "h", Comment: "c", TTL: 60}))
	d := c.stored(t, "x")
	require.Equal(t, []string{"a", "a", "h", "c"}, []string{*d.Exclusive.LockID, *d.Exclusive.Owner, *d.Exclusive.Host, *d.Exclusive.Comment})
	require.True(t, d.Exclusive.Acquired)
	require.Nil(t, d.Exclusive.RenewedAt)
	require.False(t, d.Exclusive.ID.IsZero())
	require.Equal(t, time.Minute, d.Exclusive.ExpiresAt.Sub(*d.Exclusive.CreatedAt))
	require.Empty(t, d.Shared.Locks)

	require.ErrorIs(t, c.them.XLock(t.Context(), "x", "them", 0), theirs.ErrRefused)
	require.ErrorIs(t, c.them.SLock(t.Context(), "x", "them", 0, -1), theirs.ErrRefused)
	require.NoError(t, c.them.Unlock(t.Context(), "x", "a"))
	require.NoError(t, c.SLock(t.Context(), "x", "b", forever, -1))
	require.NoError(t, c.them.SLock(t.Context(), "x", "them", 0, 2))
	require.ErrorIs(t, c.them.SLock(t.Context(), "x", "third", 0, 2), theirs.ErrRefused)

	d = c.stored(t, "x")
	require.Equal(t, theirs.Lock{}, d.Exclusive)
	require.Nil(t, d.Shared.Locks[0].ExpiresAt)
	require.Nil(t, d.Shared.Locks[0].Owner)

	var raw bson.M
	require.NoError(t, c.coll.FindOne(t.Context(), bson.M{"resource": "x"}).Decode(&raw))
	require.IsType(t, bson.ObjectID{}, raw["_id"])
	require.NotContains(t, raw, "idleAt")
	require.NotContains(t, raw, "t")
	require.NotContains(t, raw, "m")
}

func TestSeesWhatTheyDoInBetween(t *testing.T) {
	t.Parallel()
	c := setup(t)
	// They take what we let go, and we what they do.
	require.NoError(t, c.XLock(t.Context(), "r", "we", hour))
	_, err := c.Unlock(t.Context(), "we")
	require.NoError(t, err)
	require.NoError(t, c.them.XLock(t.Context(), "r", "them", time.Hour))
	require.ErrorIs(t, c.XLock(t.Context(), "r", "we", hour), mongolock.ErrAlreadyLocked)
	require.NoError(t, c.them.Unlock(t.Context(), "r", "them"))
	require.NoError(t, c.SLock(t.Context(), "r", "we", hour, -1))

	// They unlock our lock, and take another in the same name, which is not ours any more.
	require.NoError(t, c.them.SLock(t.Context(), "r", "them", time.Hour, -1))
	require.NoError(t, c.them.Unlock(t.Context(), "r", "we"))
	require.NoError(t, c.them.SLock(t.Context(), "r", "we", 0, -1))
	require.NoError(t, c.SLock(t.Context(), "r", "three", hour, 3))
	require.Equal(t, 3, c.stored(t, "r").Shared.Count)
	ours, err := c.Status(t.Context(), mongolock.Filter{Resource: "r", LockId: "we"})
	require.NoError(t, err)
	require.Equal(t, theirs.Owner, ours[0].Owner)
	require.EqualValues(t, -1, ours[0].TTL)

	// They renew ours.
	require.NoError(t, c.them.Renew(t.Context(), "r", "three", 2*time.Hour))
	require.NoError(t, c.SLock(t.Context(), "r", "four", hour, -1))
	three, err := c.Status(t.Context(), mongolock.Filter{LockId: "three"})
	require.NoError(t, err)
	requireLeft(t, 7200, three[0].TTL)

	// We unlock theirs, and take what they let expire.
	for _, id := range []string{"them", "we", "three", "four"} {
		unlocked, err := c.Unlock(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, unlocked, 1)
	}
	require.NoError(t, c.them.XLock(t.Context(), "r", "them", -time.Second))
	require.NoError(t, c.XLock(t.Context(), "r", "we", hour))
}

func TestALockerOnTheSameCollection(t *testing.T) {
	t.Parallel()
	c := setup(t)
	l, err := lockcore.New(c.coll, lockcore.Config{Layout: lockcore.LayoutMongoLock})
	require.NoError(t, err)
	require.NoError(t, l.CreateIndexes(t.Context()))
	request := lockcore.Request{LockID: "saga", Resources: []lockcore.Resource{lockcore.Exclusive("r")}, Owner: "payments"}

	require.NoError(t, c.XLock(t.Context(), "r", "a", hour))
	_, err = l.TryAcquire(t.Context(), request)
	var busy *lockcore.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "a", busy.Holders[0].LockID)

	// It waits, and gets the resource when Unlock lets it go.
	got := make(chan *lockcore.Session, 1)
	go func() {
		s, err := l.Acquire(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	require.Eventually(t, func() bool {
		var d bson.M
		require.NoError(t, c.coll.FindOne(t.Context(), bson.M{"resource": "r"}).Decode(&d))
		return len(d["waiters"].(bson.A)) == 1
	}, 10*time.Second, 5*time.Millisecond, "it queues")
	_, err = c.Unlock(t.Context(), "a")
	require.NoError(t, err)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "b", hour), mongolock.ErrAlreadyLocked, "the waiter is first")
	s := <-got
	require.NotNil(t, s)
	require.ErrorIs(t, c.them.XLock(t.Context(), "r", "them", 0), theirs.ErrRefused)
	statuses, err := c.Status(t.Context(), mongolock.Filter{Resource: "r"})
	require.NoError(t, err)
	require.Equal(t, "payments", statuses[0].Owner)

	// A purge leaves it alone, and Unlock by its lock ID takes it away; its session may still trust.
	_, err = mongolock.NewPurger(c.Client).Purge(t.Context())
	require.NoError(t, err)
	unlocked, err := c.Unlock(t.Context(), "saga")
	require.NoError(t, err)
	require.Len(t, unlocked, 1)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "b", hour), mongolock.ErrAlreadyLocked)
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, c.XLock(t.Context(), "r", "b", hour))
}

func TestOwnLayoutIsRefused(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	own, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	require.NoError(t, own.CreateIndexes(t.Context()))
	var wrong *lockcore.LayoutError
	require.ErrorAs(t, mongolock.NewClient(coll).CreateIndexes(t.Context()), &wrong)
	require.ErrorAs(t, mongolock.NewClient(coll).XLock(t.Context(), "r", "a", forever), &wrong)

	c := setup(t)
	own, err = lockcore.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	require.ErrorAs(t, own.CreateIndexes(t.Context()), &wrong)
	_, err = own.TryAcquire(t.Context(), lockcore.Request{LockID: "a", Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.ErrorAs(t, err, &wrong)
	_, err = lockcore.New(c.coll, lockcore.Config{Layout: "other"})
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}

func TestGCRemovesWhatIsIdle(t *testing.T) {
	t.Parallel()
	c := setup(t)
	require.NoError(t, c.them.XLock(t.Context(), "theirs, free", "a", 0))
	require.NoError(t, c.them.Unlock(t.Context(), "theirs, free", "a"))
	require.NoError(t, c.them.XLock(t.Context(), "theirs, held", "a", 0))
	require.NoError(t, c.XLock(t.Context(), "ours, free", "b", forever))
	require.NoError(t, c.XLock(t.Context(), "ours, ended by them", "c", forever))
	_, err := c.Unlock(t.Context(), "b")
	require.NoError(t, err)
	require.NoError(t, c.them.Unlock(t.Context(), "ours, ended by them", "c"))
	names := func() []string {
		var docs []theirs.Document
		cursor, err := c.coll.Find(t.Context(), bson.M{})
		require.NoError(t, err)
		require.NoError(t, cursor.All(t.Context(), &docs))
		var names []string
		for _, d := range docs {
			names = append(names, d.Resource)
		}
		return names
	}
	require.NoError(t, c.GC(t.Context()))
	require.ElementsMatch(t, []string{"theirs, held", "ours, free", "ours, ended by them"}, names())
	// A day later.
	_, err = c.coll.UpdateMany(t.Context(), bson.M{"at": bson.M{"$exists": true}}, bson.M{"$set": bson.M{"at": time.Now().Add(-25 * time.Hour)}})
	require.NoError(t, err)
	require.NoError(t, c.GC(t.Context()))
	require.ElementsMatch(t, []string{"theirs, held"}, names())
}

// TestNobodyIsInTogether has clients of both kinds take turns on one resource.
func TestNobodyIsInTogether(t *testing.T) {
	t.Parallel()
	c := setup(t)
	require.NoError(t, c.them.XLock(t.Context(), "r", "first", time.Hour))
	require.NoError(t, c.them.Unlock(t.Context(), "r", "first"))
	c.them.NoUpsert = true
	var inside, turns atomic.Int32
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := range 12 {
				id := fmt.Sprint(i, "/", n)
				take := func() error { return c.XLock(t.Context(), "r", id, hour) }
				end := func() error { return second(c.Unlock(t.Context(), id)) }
				if i%2 == 0 {
					take = func() error { return c.them.XLock(t.Context(), "r", id, time.Hour) }
					end = func() error { return c.them.Unlock(t.Context(), "r", id) }
				}
				for err := take(); err != nil; err = take() {
					if !errors.Is(err, theirs.ErrRefused) && !errors.Is(err, mongolock.ErrAlreadyLocked) {
						t.Error(err)
						return
					}
					<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond)
				}
				if inside.Add(1) != 1 {
					t.Errorf("%s is not alone", id)
				}
				turns.Add(1)
				inside.Add(-1)
				if err := end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 72, turns.Load())
}
