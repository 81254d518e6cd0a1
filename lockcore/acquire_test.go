package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestTryAcquire_HeldByAnother_IsBusy(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	a := tryAcquire(t, l.Steps, request("a", lockcore.Exclusive("r")))
	_, err := l.TryAcquire(t.Context(), request("b", lockcore.Exclusive("r")))
	busy := errorAs[*lockcore.BusyError](t, err)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.Equal(t, "r", busy.Resource)
	require.Len(t, busy.Holders, 1)
	require.Equal(t, "a", busy.Holders[0].LockID)
	require.Greater(t, busy.RetryIn, 20*time.Second)
	requireBusy(t, l.Steps, request("b", lockcore.Shared("r")))

	require.NoError(t, a.Release(t.Context()))
	require.ErrorIs(t, context.Cause(a.Context()), lockcore.ErrEnded)
	b := tryAcquire(t, l.Steps, request("b", lockcore.Exclusive("r")))
	require.Greater(t, b.Leases()[0].Fence, a.Leases()[0].Fence)
	require.NoError(t, b.Release(t.Context()))
}

// Two processes hold under one lock ID, and the clock of the first is years ahead. That must not make the request of the other late.
func TestTryAcquire_ClockBehindAnotherProcess_IsNotSuperseded(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	ahead := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		behind := tryAcquire(t, newLocker(t, db, lockcore.Config{}), request("a", lockcore.Exclusive("r")))
		require.NoError(t, behind.Leave(t.Context()))
	})
	require.NoError(t, ahead.Release(t.Context()))
	require.Empty(t, db.Document("r").Entries)
}

func TestAcquire_Cancelled_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	holder := tryAcquire(t, l, request("holder", lockcore.Exclusive("b")))
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := acquireLater(ctx, l, request("waiter", lockcore.Exclusive("a"), lockcore.Exclusive("b")))
	requireWaiting(t, db, 1, "b")
	why := errors.New("no longer needed")
	cancel(why)
	require.ErrorIs(t, (<-waits).err, why)
	require.Empty(t, db.Document("a").Entries)
	require.Empty(t, db.Document("b").Waiters)
	require.NoError(t, holder.Release(t.Context()))
}

// Some requests are in the queue and some on their way to it when they are cancelled. At the same time
// the holder releases the resource.
func TestAcquire_CancelledDuringRelease_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	holder := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	var waits []<-chan acquired
	for i := range 10 {
		waits = append(waits, acquireLater(ctx, l, request(fmt.Sprint("w", i), lockcore.Exclusive("r"))))
	}
	require.Eventually(t, func() bool { return len(db.Document("r").Waiters) >= 3 }, 10*time.Second, time.Millisecond)
	go cancel(why)
	require.NoError(t, holder.Release(t.Context()))
	for _, w := range waits {
		if got := <-w; got.err != nil {
			require.ErrorIs(t, got.err, why)
		} else {
			require.NoError(t, got.session.Release(t.Context()))
		}
	}
	require.Empty(t, db.Document("r").Waiters)
	require.Empty(t, db.Document("r").Entries)
}

func TestAcquire_MaxWait_EndsInTime(t *testing.T) {
	hang := hanging(of(kindLoad, kindLook, kindSwap, kindExtend))
	type test struct{ atOnce, queued hook }
	eachCase(t, map[string]test{
		"the database answers":       {},
		"it hangs":                   {atOnce: hang},
		"it hangs in the queue":      {queued: hang},
		"it fails while it is asked": {queued: cutting(of(kindLoad, kindLook, kindSwap))},
	}, func(t *testing.T, l *lockcore.Steps, db *faultStore, c test) {
		tryAcquire(t, newLocker(t, db, lockcore.Config{}), request("holder", lockcore.Exclusive("r")))
		db.set(c.atOnce, nil)
		req := request("a", lockcore.Exclusive("r"))
		req.MaxWait = 200 * time.Millisecond
		began := time.Now()
		waits := acquireLater(t.Context(), l, req)
		synctest.Wait()
		if c.atOnce == nil {
			requireWaiting(t, db, 1, "r")
			db.set(c.queued, nil)
		}
		err := (<-waits).err
		require.LessOrEqual(t, time.Since(began), req.MaxWait+time.Second, "one second more to leave the queue")
		if c.atOnce == nil {
			require.Equal(t, "holder", errorAs[*lockcore.BusyError](t, err).Holders[0].LockID)
		}
		require.Error(t, err)
		db.set(nil, nil)
		elapse(time.Minute)
		require.Empty(t, db.Document("r").Waiters)
	})
}

// When the caller gives up, the reads hang that come before the write which gives back "a". So no
// command that gives it back was sent.
func TestAcquire_GivesUpWhileReadsHang_LeavesNothingBehind(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		tryAcquire(t, l, request("holder", lockcore.Exclusive("b")))
		ctx, cancel := context.WithCancel(t.Context())
		waits := acquireLater(ctx, l, endless("a", lockcore.Exclusive("a"), lockcore.Exclusive("b")))
		requireWaiting(t, db, 1, "b")
		db.set(hanging(of(kindLoad, kindSwap)), cutting(of(kindExtend))) // makes the process forget the documents
		elapse(15 * time.Second)
		cancel()
		require.ErrorIs(t, (<-waits).err, context.Canceled)
		require.Len(t, db.Document("a").Entries, 1)
		db.set(nil, nil)
		elapse(time.Minute)
		require.Empty(t, db.Document("a").Entries)
		require.Empty(t, db.Document("b").Waiters)
	})
}

// Once a request has queued, any error of the database may pass, also one without a label.
func TestAcquire_ErrorsWhileQueued_KeepThePosition(t *testing.T) {
	type test struct{ before, after hook }
	eachCase(t, map[string]test{
		"not primary":    {before: failing(mongo.CommandError{Code: 10107, Message: "not primary"}, of(kindLoad, kindSwap))},
		"not authorized": {before: failing(mongo.CommandError{Code: 13, Message: "not authorized"}, of(kindLoad, kindSwap))},
		"not sent":       {before: failing(errNotSent, of(kindLoad, kindSwap))},
		"not written":    {before: cutting(of(kindSwap))},
		"answers lost":   {after: times(3, failing(errCut), of(kindSwap, kindExtend))},
	}, func(t *testing.T, l *lockcore.Steps, db *faultStore, c test) {
		holder := tryAcquire(t, newLocker(t, db.Store, lockcore.Config{}), endless("holder", lockcore.Exclusive("r")))
		waits := acquireLater(t.Context(), l, request("a", lockcore.Exclusive("r")))
		requireWaiting(t, db, 1, "r")
		since := db.Document("r").Waiters[0].Since
		elapse(99 * time.Second) // the position is refreshed after 100 s
		db.set(c.before, c.after)
		elapse(2 * time.Minute)
		db.set(nil, nil)
		elapse(time.Minute)
		requireWaiting(t, db, 1, "r")
		require.Equal(t, since, db.Document("r").Waiters[0].Since)
		require.NoError(t, holder.Leave(t.Context()))
		require.NoError(t, requireGranted(t, waits).Leave(t.Context()))
	})
}

func TestAcquire_OutageOutlastsPosition_QueuesAgain(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		held := enter(t, l, endless("h", lockcore.Exclusive("r")))
		waits := acquireLater(t.Context(), l, request("next", lockcore.Exclusive("r")))
		requireWaiting(t, db, 1, "r")
		db.set(cutting(), nil)
		elapse(10 * time.Minute)
		sent := db.count(of(kindLoad, kindSwap))
		elapse(10 * time.Minute)
		require.LessOrEqual(t, db.count(of(kindLoad, kindSwap))-sent, 3*20+40, "it asks with growing pauses")
		db.set(nil, nil)
		require.Eventually(t, func() bool {
			d := db.Document("r")
			return len(d.Waiters) == 1 && d.Waiters[0].ExpiresAt.After(time.Now())
		}, time.Minute, time.Second)
		leave(t, l, held...)
		require.NoError(t, requireGranted(t, waits).Release(t.Context()))
	})
}

func TestAcquire_LosesFirstResource_StopsWaitingForSecond(t *testing.T) {
	virtual(t, lockcore.Config{TTL: time.Second}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		tryAcquire(t, l, request("x", lockcore.Exclusive("b")))
		next := acquireLater(t.Context(), l, request("a", lockcore.Exclusive("a"), lockcore.Exclusive("b")))
		requireWaiting(t, db, 1, "b")
		revoke(t, l, "a", "by hand", "a")
		select {
		case got := <-next:
			require.ErrorIs(t, got.err, lockcore.ErrLost)
		case <-time.After(4 * time.Second):
			t.Fatal("it lost a, and still waits for b")
		}
	})
}

// The queue is l, w, l. When the first is granted the third may join it, and waits neither for w nor
// for its own lock ID.
func TestAcquire_SameLockIDHolds_JoinsPastTheQueue(t *testing.T) {
	cases := map[string][]string{"one owner each": {"", "", ""}, "an owner for each request": {"1", "2", "3"}}
	eachCase(t, cases, func(t *testing.T, l *lockcore.Steps, db *faultStore, owners []string) {
		held := tryAcquire(t, newLocker(t, db.Store, lockcore.Config{}), request("h", lockcore.Exclusive("r")))
		var waits []<-chan acquired
		for i, lockID := range []string{"l", "w", "l"} {
			req := request(lockID, lockcore.Exclusive("r"))
			req.Owner = owners[i]
			waits = append(waits, acquireLater(t.Context(), l, req))
			requireWaiting(t, db, i+1, "r")
		}
		require.NoError(t, held.Release(t.Context()))
		first := requireGranted(t, waits[0])
		since := time.Now()
		second := requireGranted(t, waits[2])
		require.LessOrEqual(t, time.Since(since), time.Second, "it joins at once")
		require.NoError(t, first.Leave(t.Context()))
		require.NoError(t, second.Leave(t.Context()))
		require.NoError(t, requireGranted(t, waits[1]).Leave(t.Context()))
	})
}
