package mongolock_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

var (
	forever = mongolock.LockDetails{}
	hour    = mongolock.LockDetails{TTL: 3600}
)

func TestXLock_Held_IsAlreadyLocked(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "r", "a", forever)
	for _, id := range []string{"a", "b"} { // the lock ID itself is refused too
		require.Equal(t, mongolock.ErrAlreadyLocked, c.XLock(t.Context(), "r", id, forever))
		require.ErrorIs(t, c.SLock(t.Context(), "r", id, forever, -1), mongolock.ErrAlreadyLocked)
	}
	c.xlock(t, "other", "b", forever)
	unlocked := c.unlock(t, "a")
	require.Len(t, unlocked, 1)
	c.xlock(t, "r", "b", forever)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "a", forever), mongolock.ErrAlreadyLocked)
}

func TestClose_LaterCalls_ReturnErrClosed(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "r", "a", forever)
	require.NoError(t, c.Close(t.Context()))
	for name, call := range map[string]func() error{
		"XLock":         func() error { return c.XLock(t.Context(), "r", "b", forever) },
		"SLock":         func() error { return c.SLock(t.Context(), "r", "b", forever, -1) },
		"Status":        func() error { _, err := c.Status(t.Context(), mongolock.Filter{}); return err },
		"Unlock":        func() error { _, err := c.Unlock(t.Context(), "nobody"); return err },
		"Renew":         func() error { _, err := c.Renew(t.Context(), "a", 9); return err },
		"Purge":         func() error { _, err := mongolock.NewPurger(c.Client).Purge(t.Context()); return err },
		"CreateIndexes": func() error { return c.CreateIndexes(t.Context()) },
	} {
		require.ErrorIs(t, call(), lockcore.ErrClosed, name)
	}
}

func TestSLock_Limit_IsRespected(t *testing.T) {
	t.Parallel()
	c := setup(t)
	require.ErrorIs(t, c.SLock(t.Context(), "r", "a", forever, 0), mongolock.ErrAlreadyLocked)
	c.slock(t, "r", "a", forever, 2)
	require.ErrorIs(t, c.SLock(t.Context(), "r", "a", forever, -1), mongolock.ErrAlreadyLocked, "once per lock ID")
	require.ErrorIs(t, c.XLock(t.Context(), "r", "a", forever), mongolock.ErrAlreadyLocked, "no upgrade")
	c.slock(t, "r", "b", forever, 2)
	require.ErrorIs(t, c.SLock(t.Context(), "r", "c", forever, 2), mongolock.ErrAlreadyLocked)
	c.slock(t, "r", "c", forever, 3)
	c.slock(t, "r", "d", forever, -1)
	c.slock(t, "r", "e", forever, math.MaxInt)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "f", forever), mongolock.ErrAlreadyLocked)
	require.Equal(t, "a b c d e", c.holders(t, "r"))
}

func TestLock_ManyAtOnce_OneIsGranted(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for name, lock := range map[string]func(i int) error{
		"exclusive":             func(i int) error { return c.XLock(t.Context(), "exclusive", fmt.Sprint(i), hour) },
		"shared by one lock ID": func(int) error { return c.SLock(t.Context(), "shared", "a", hour, -1) },
	} {
		var wg sync.WaitGroup
		var got, refused atomic.Int32
		for i := range 8 {
			wg.Go(func() {
				switch err := lock(i); err {
				case nil:
					got.Add(1)
				case mongolock.ErrAlreadyLocked: //nolint:errorlint // == is promised
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, got.Load(), name)
		require.EqualValues(t, 7, refused.Load(), name)
	}
}

func TestUnlock_SeveralLocks_NewestFirst(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for i := range 3 {
		c.xlock(t, fmt.Sprint("r", i), "a", forever)
	}
	c.slock(t, "s", "a", mongolock.LockDetails{Owner: "o", Host: "h", Comment: "c", TTL: 60}, -1)
	c.slock(t, "s", "b", forever, -1)
	unlocked := c.unlock(t, "a")
	require.Equal(t, "s/a r2/a r1/a r0/a", names(unlocked))
	require.Equal(t, mongolock.LOCK_TYPE_SHARED, unlocked[0].Type)
	require.Equal(t, []string{"o", "h", "c"}, []string{unlocked[0].Owner, unlocked[0].Host, unlocked[0].Comment})
	requireLeft(t, 60, unlocked[0].TTL)
	require.Equal(t, "s/b", names(c.status(t, mongolock.Filter{})))
	require.Empty(t, c.unlock(t, "a"))
}

func TestStatus_Filter_SelectsByEachField(t *testing.T) {
	t.Parallel()
	c := setup(t)
	take := func(resource, id string, ld mongolock.LockDetails) {
		c.slock(t, resource, id, ld, -1)
	}
	take("r1", "a", mongolock.LockDetails{Owner: "$john", Host: "host.name", TTL: 3600})
	take("r2", "a", mongolock.LockDetails{Owner: "$john", TTL: 60})
	all := c.status(t, mongolock.Filter{})
	at := all[0].CreatedAt
	// Wait until the server's clock has advanced: CreatedAt is a time of that clock.
	require.Eventually(t, func() bool {
		c.slock(t, "clock", "clock", forever, -1)
		unlocked := c.unlock(t, "clock")
		return unlocked[0].CreatedAt.After(at)
	}, 10*time.Second, time.Millisecond)
	take("r2", "$b", mongolock.LockDetails{Owner: "smith"})
	take("r3", "$b", mongolock.LockDetails{Owner: "$b"})

	after := at.Add(time.Millisecond / 2)
	for name, want := range map[string]struct {
		filter mongolock.Filter
		locks  string
	}{
		"all":       {mongolock.Filter{}, "r1/a r2/$b r2/a r3/$b"},
		"resource":  {mongolock.Filter{Resource: "r2"}, "r2/$b r2/a"},
		"lock ID":   {mongolock.Filter{LockId: "$b"}, "r2/$b r3/$b"},
		"owner":     {mongolock.Filter{Owner: "$john"}, "r1/a r2/a"},
		"own owner": {mongolock.Filter{Owner: "$b"}, "r3/$b"},
		"no end":    {mongolock.Filter{TTLlt: 4000}, "r1/a r2/a"},
		"less":      {mongolock.Filter{TTLlt: 100}, "r2/a"},
		"at least":  {mongolock.Filter{TTLgte: 100}, "r1/a"},
		"between":   {mongolock.Filter{TTLgte: 50, TTLlt: 70}, "r2/a"},
		"before":    {mongolock.Filter{CreatedBefore: after}, "r1/a r2/a"},
		"after":     {mongolock.Filter{CreatedAfter: after}, "r2/$b r3/$b"},
		"both":      {mongolock.Filter{CreatedBefore: after, CreatedAfter: after}, ""},
		"several":   {mongolock.Filter{LockId: "a", Resource: "r2", TTLlt: 5000}, "r2/a"},
		"operator":  {mongolock.Filter{LockId: "$ne"}, ""},
	} {
		got := c.status(t, want.filter)
		slices.SortFunc(got, func(a, b mongolock.LockStatus) int {
			return strings.Compare(a.Resource+"/"+a.LockId, b.Resource+"/"+b.LockId)
		})
		require.Equal(t, want.locks, names(got), name)
	}
}

func TestStatus_TTL_IsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "forever", "a", forever)
	c.xlock(t, "hour", "a", hour)
	c.xlock(t, "over", "a", mongolock.LockDetails{TTL: 10})
	c.age(t, "over", time.Minute)
	left := map[string]int64{}
	statuses := c.status(t, mongolock.Filter{LockId: "a"})
	for _, s := range statuses {
		left[s.Resource] = s.TTL
		require.Nil(t, s.RenewedAt)
		require.Empty(t, s.Owner)
	}
	require.EqualValues(t, -1, left["forever"])
	requireLeft(t, 3600, left["hour"])
	require.Zero(t, left["over"])
	require.Len(t, left, 3)
}

// mongo-lock returns the host that it was given, and no default.
func TestStatus_Host_IsAsGiven(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for i, host := range []string{"", "-", "--", "host-1", "-x", "host:4711"} {
		resource, id := fmt.Sprint("r", i), fmt.Sprint("id", i)
		c.xlock(t, resource, id, mongolock.LockDetails{Host: host, TTL: 60})
		status := c.status(t, mongolock.Filter{Resource: resource})
		require.Len(t, status, 1)
		require.Equal(t, host, status[0].Host)
		renewed, err := c.Renew(t.Context(), id, 120)
		require.NoError(t, err)
		require.Equal(t, host, renewed[0].Host)
		unlocked := c.unlock(t, id)
		require.Equal(t, host, unlocked[0].Host)
	}
}

func TestRenew_AllLocks_HaveTheNewTTL(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "x", "a", hour)
	c.slock(t, "s", "b", hour, -1)
	c.slock(t, "s", "a", forever, -1)
	for _, ttl := range []uint{7200, 60} { // longer, and shorter
		renewed, err := c.Renew(t.Context(), "a", ttl)
		require.NoError(t, err)
		require.Len(t, renewed, 2)
		for _, s := range renewed {
			require.EqualValues(t, ttl, s.TTL)
			require.NotNil(t, s.RenewedAt)
		}
		statuses := c.status(t, mongolock.Filter{LockId: "a"})
		for _, s := range statuses {
			requireLeft(t, int64(ttl), s.TTL)
			require.NotNil(t, s.RenewedAt)
		}
	}
	other := c.status(t, mongolock.Filter{LockId: "b"})
	require.Nil(t, other[0].RenewedAt)
}

func TestRenew_LessThanASecondLeft_IsNotFound(t *testing.T) {
	t.Parallel()
	c := setup(t)
	renewed, err := c.Renew(t.Context(), "nobody", 60)
	require.Equal(t, mongolock.ErrLockNotFound, err)
	require.Empty(t, renewed)

	c.xlock(t, "good", "a", hour)
	c.slock(t, "short", "a", mongolock.LockDetails{TTL: 30}, -1)
	c.age(t, "short", 29*time.Second+10*time.Millisecond)
	renewed, err = c.Renew(t.Context(), "a", 7200)
	require.ErrorIs(t, err, mongolock.ErrLockNotFound)
	require.Empty(t, renewed)
	good := c.status(t, mongolock.Filter{Resource: "good"})
	requireLeft(t, 3600, good[0].TTL) // nothing was renewed
}

func TestLock_ExpiredHolder_IsReplaced(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.slock(t, "r", "reader", mongolock.LockDetails{TTL: 30}, 1)
	c.age(t, "r", time.Minute)
	c.slock(t, "r", "reader", mongolock.LockDetails{TTL: 30}, 1) // nor in its own
	require.Equal(t, "reader", c.holders(t, "r"))
	c.age(t, "r", time.Minute)
	c.slock(t, "r", "reader", mongolock.LockDetails{TTL: 30}, -1) // which has ended
	require.Equal(t, "reader", c.holders(t, "r"))
	c.age(t, "r", time.Minute)
	c.slock(t, "r", "another", mongolock.LockDetails{TTL: 30}, 1)
	c.age(t, "r", time.Minute)
	c.xlock(t, "r", "writer", mongolock.LockDetails{TTL: 30})
	require.Equal(t, "writer", c.holders(t, "r"))
	c.age(t, "r", time.Minute)
	c.slock(t, "r", "reader", hour, -1)
	require.Equal(t, "reader", c.holders(t, "r"))
}

func TestPurge_OneLockExpired_EndsAllOfItsLockID(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "x", "a", mongolock.LockDetails{TTL: 30})
	c.slock(t, "s", "b", mongolock.LockDetails{TTL: 30}, -1)
	c.age(t, "x", time.Minute)
	c.age(t, "s", time.Minute)
	c.slock(t, "s", "c", hour, -1)
	c.xlock(t, "alive", "a", hour)
	c.xlock(t, "forever", "b", forever)
	c.xlock(t, "other", "c", forever)
	l, err := lockcore.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	running, err := l.TryAcquire(t.Context(), lockcore.Request{LockID: "a", Resources: []lockcore.Resource{lockcore.Exclusive("running")}})
	require.NoError(t, err)

	purged, err := mongolock.NewPurger(c.Client).Purge(t.Context())
	require.NoError(t, err)
	require.Equal(t, "forever/b alive/a s/b x/a", names(purged), "all of both lock IDs, the newest first")
	require.Equal(t, "c", c.holders(t, "s"))
	require.Equal(t, "c", c.holders(t, "other"))
	left := c.status(t, mongolock.Filter{})
	require.Len(t, left, 2)
	// What a session of the same lock ID holds still runs.
	require.ErrorIs(t, c.XLock(t.Context(), "running", "b", hour), mongolock.ErrAlreadyLocked)
	require.NoError(t, running.Context().Err())
	require.NoError(t, running.Release(t.Context()))
	purged, err = mongolock.NewPurger(c.Client).Purge(t.Context())
	require.NoError(t, err)
	require.Empty(t, purged)
}

func TestLock_AnyText_IsStoredAsItIs(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for _, text := range []string{"$owner", "a.b", "$$NOW", "$", "{$ne: null}", "ä ", "exclusive.lockId"} {
		c.slock(t, text, text, mongolock.LockDetails{Owner: text, Host: text, Comment: text, TTL: 60}, 3)
		_, err := c.Renew(t.Context(), text, 90)
		require.NoError(t, err)
		s := c.unlock(t, text)[0]
		require.Equal(t, []string{text, text, text, text, text}, []string{s.Resource, s.LockId, s.Owner, s.Host, s.Comment})
	}
}

func TestClient_InvalidInput_IsRefusedByName(t *testing.T) {
	t.Parallel()
	c := setup(t)
	long := strings.Repeat("x", 1025)
	for field, err := range map[string]error{
		"resourceName":        c.XLock(t.Context(), "", "a", forever),
		"lockId":              c.SLock(t.Context(), "r", "\xff", forever, 0),
		"LockDetails.Owner":   c.XLock(t.Context(), "r", "a", mongolock.LockDetails{Owner: long}),
		"LockDetails.Host":    c.XLock(t.Context(), "r", "a", mongolock.LockDetails{Host: long}),
		"LockDetails.Comment": c.XLock(t.Context(), "r", "a", mongolock.LockDetails{Comment: long}),
		"LockDetails.TTL":     c.XLock(t.Context(), "r", "a", mongolock.LockDetails{TTL: math.MaxUint32}),
		"ttl":                 second(c.Renew(t.Context(), "a", 0)),
		"lockId ":             second(c.Renew(t.Context(), "", 1)),
		"lockId  ":            second(c.Unlock(t.Context(), "")), // of mongo-lock, it unlocks all locks of the lock ID
		"lockId   ":           c.XLock(t.Context(), "r", long[:477], forever),
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, strings.TrimSpace(field), invalid.Field)
	}
	left := c.status(t, mongolock.Filter{})
	require.Empty(t, left)
}

func second[T any](_ T, err error) error { return err }

func TestClient_EndedContext_IsNotAnAnswer(t *testing.T) {
	t.Parallel()
	c := setup(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Renew(ended, "a", 60)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, mongolock.ErrLockNotFound)
	require.NotErrorIs(t, c.XLock(ended, "r", "a", forever), mongolock.ErrAlreadyLocked)
}

func TestClient_Outage_IsNotALoss(t *testing.T) {
	t.Parallel()
	c := setup(t)
	wire, uri := testenv.MongoByWire(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	far := mongolock.NewClient(client.Database(c.coll.Database().Name()).Collection(c.coll.Name()))
	require.NoError(t, far.XLock(t.Context(), "r", "a", hour))
	wire.Cut()
	_, err = far.Renew(t.Context(), "a", 60)
	require.Error(t, err)
	require.NotErrorIs(t, err, mongolock.ErrLockNotFound)
	err = far.XLock(t.Context(), "r", "b", hour)
	require.Error(t, err)
	require.NotErrorIs(t, err, mongolock.ErrAlreadyLocked)
	_, err = far.Unlock(t.Context(), "a")
	require.Error(t, err)
	require.Equal(t, "a", c.holders(t, "r"))
}

// TestClient_LockerOnTheCollection_RespectsBoth has a Locker wait for a lock of a client, in the queue, and the
// other way round.
func TestClient_LockerOnTheCollection_RespectsBoth(t *testing.T) {
	t.Parallel()
	c := setup(t)
	l, err := lockcore.New(c.coll, lockcore.Config{})
	require.NoError(t, err)
	request := lockcore.Request{LockID: "saga", Resources: []lockcore.Resource{lockcore.Exclusive("r")}, Owner: "payments"}
	c.xlock(t, "r", "a", hour)
	_, err = l.TryAcquire(t.Context(), request)
	var busy *lockcore.BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, busy.Holders[0].LockID, "mongo-lock/a/")

	got := make(chan *lockcore.Session, 1)
	go func() {
		s, err := l.Acquire(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	require.Eventually(t, func() bool {
		for s, err := range l.Status(t.Context(), lockcore.Filter{States: []lockcore.State{lockcore.StateWaiting}}) {
			return err == nil && s.Resource == "r"
		}
		return false
	}, 10*time.Second, 5*time.Millisecond, "it queues")
	c.unlock(t, "a")
	require.ErrorIs(t, c.XLock(t.Context(), "r", "b", hour), mongolock.ErrAlreadyLocked, "the waiter is first")
	s := <-got
	require.NotNil(t, s)

	// A hold of a Locker is not a client's lock, whatever its lock ID.
	require.Empty(t, c.unlock(t, "saga"))
	require.Empty(t, c.holders(t, "r"))
	require.ErrorIs(t, c.XLock(t.Context(), "r", "saga", hour), mongolock.ErrAlreadyLocked)
	require.NoError(t, s.Release(t.Context()))
	c.xlock(t, "r", "saga", hour)
}

// A lock matches neither CreatedBefore nor CreatedAfter if it was created at exactly that time.
func TestStatus_CreatedBeforeEqualsCreatedAt_DoesNotMatch(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.xlock(t, "r", "a", forever)
	at := c.status(t, mongolock.Filter{})[0].CreatedAt
	require.Equal(t, at, at.Truncate(time.Millisecond))
	for name, want := range map[string]struct {
		filter mongolock.Filter
		found  int
	}{
		"BeforeEqual":     {mongolock.Filter{CreatedBefore: at}, 0},
		"AfterEqual":      {mongolock.Filter{CreatedAfter: at}, 0},
		"BeforeNextMilli": {mongolock.Filter{CreatedBefore: at.Add(time.Millisecond)}, 1},
		"BeforeSameMilli": {mongolock.Filter{CreatedBefore: at.Add(time.Microsecond)}, 1},
		"AfterPrevious":   {mongolock.Filter{CreatedAfter: at.Add(-time.Millisecond)}, 1},
	} {
		require.Len(t, c.status(t, want.filter), want.found, name)
	}
}
