package party_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// The swap that frees the resource also grants it to the next waiter of the process.
func TestRelease_NextWaiterInTheSameProcess_IsGrantedByTheSameSwap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		a, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
		require.NoError(t, err)
		next := acquireLater(t.Context(), l, request("b", party.Exclusive("r")))
		synctest.Wait()
		require.Equal(t, 1, waitersOf(e, "r")())
		require.Equal(t, 2, e.count(of(kindSwap)))
		sent := e.count()
		require.NoError(t, a.Release(t.Context()))
		got := <-next
		require.NoError(t, got.err)
		require.Equal(t, 3, e.count(of(kindSwap)))
		require.Equal(t, sent+1, e.count(), "no read")
		require.NoError(t, got.session.Release(t.Context()))
	})
}

func TestReleaseInAnotherProcessIsFoundByReadsThatAllWaitersShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		here, elsewhere := newLocker(t, e, party.Config{}), newLocker(t, e.Store, party.Config{})
		a, err := elsewhere.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
		require.NoError(t, err)
		const waiting = 20
		var waits []<-chan acquired
		start := time.Now()
		for i := range waiting {
			waits = append(waits, acquireLater(t.Context(), here, request(fmt.Sprint("w", i), party.Shared("r"))))
		}
		eventually(t, waiting, waitersOf(e, "r"), "all stand in the queue")
		// Reads go on while nothing happens; nobody polls with writes.
		require.Eventually(t, func() bool { return e.count(of(kindLook)) >= 3 }, 10*time.Second, time.Millisecond, "it is read")
		require.LessOrEqual(t, e.count(of(kindSwap)), waiting, "requests that queue at the same time share a swap")
		require.NoError(t, a.Release(t.Context()))
		for _, w := range waits {
			got := <-w
			require.NoError(t, got.err)
			require.NoError(t, got.session.Release(t.Context()))
		}
		atMost := 4*time.Since(start).Seconds() + 2
		require.LessOrEqual(t, float64(e.count(of(kindLook))), atMost, "four reads a second, however many wait")
	})
}

func TestDeadHolderIsNoticedWithoutAnybodyReleasing(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	mem := lockcoretest.NewStore(clock.Now)
	l := newLocker(t, mem, party.Config{})
	// Entered as a value: nothing renews it, as if its process had died.
	_, err := l.Enter(t.Context(), request("dead", party.Exclusive("r")), false)
	require.NoError(t, err)
	next := acquireLater(t.Context(), l, request("b", party.Exclusive("r")))
	eventually(t, 1, waitersOf(mem, "r"), "b stands in the queue")
	clock.Advance(31 * time.Second)
	got := <-next
	require.NoError(t, got.err)
	require.NoError(t, got.session.Release(t.Context()))
}

func TestWaitersThatAreCancelledLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	a, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	var waits []<-chan acquired
	for i := range 10 {
		waits = append(waits, acquireLater(ctx, l, request(fmt.Sprint("w", i), party.Exclusive("r"))))
	}
	// Some are in the queue, some on their way to it, and the holder releases at the same time.
	require.Eventually(t, func() bool { return waitersOf(mem, "r")() >= 3 }, 10*time.Second, time.Millisecond)
	go cancel(why)
	require.NoError(t, a.Release(t.Context()))
	for _, w := range waits {
		if got := <-w; got.err != nil {
			require.ErrorIs(t, got.err, why)
		} else {
			require.NoError(t, got.session.Release(t.Context()))
		}
	}
	d := mem.Document("r")
	require.Empty(t, d.Waiters)
	require.Empty(t, d.Entries)
}
