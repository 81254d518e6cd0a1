package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// countingEngine counts the commands.
type countingEngine struct {
	*lockcoretest.Engine
	acquires, reads, lists atomic.Int64
	// hold, where it is set, holds up reads until it is closed.
	hold chan struct{}
}

func (e *countingEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	e.acquires.Add(1)
	return e.Engine.Acquire(ctx, op)
}

func (e *countingEngine) Read(ctx context.Context, names ...string) ([]rules.Document, error) {
	e.reads.Add(1)
	if e.hold != nil {
		<-e.hold
	}
	return e.Engine.Read(ctx, names...)
}

func (e *countingEngine) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	e.lists.Add(1)
	return e.Engine.List(ctx, q)
}

func TestReleaseInTheSameProcessWakesTheNextWithoutARead(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewEngine(time.Now)
	e := &countingEngine{Engine: mem}
	l := on(t, e, lockcore.Config{})
	a, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	next := acquireLater(t.Context(), l, one("b", lockcore.Exclusive("r")))
	eventually(t, 1, waitersOf(mem, "r"), "b stands in the queue")
	require.EqualValues(t, 2, e.acquires.Load())
	require.NoError(t, a.Release(t.Context()))
	got := <-next
	require.NoError(t, got.err)
	require.EqualValues(t, 3, e.acquires.Load(), "one write to queue, and one to confirm")
	require.NoError(t, got.session.Release(t.Context()))
}

func TestReleaseInAnotherProcessIsFoundByReadsThatAllWaitersShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewEngine(time.Now)
		e := &countingEngine{Engine: mem}
		here, elsewhere := on(t, e, lockcore.Config{}), on(t, mem, lockcore.Config{})
		a, err := elsewhere.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
		require.NoError(t, err)
		const waiting = 20
		var waits []<-chan acquired
		start := time.Now()
		for i := range waiting {
			waits = append(waits, acquireLater(t.Context(), here, one(fmt.Sprint("w", i), lockcore.Shared("r"))))
		}
		eventually(t, waiting, waitersOf(mem, "r"), "all stand in the queue")
		// Reads go on while nothing happens; nobody polls with writes.
		require.Eventually(t, func() bool { return e.reads.Load() >= 3 }, 10*time.Second, time.Millisecond, "it is read")
		require.EqualValues(t, waiting, e.acquires.Load())
		require.NoError(t, a.Release(t.Context()))
		for _, w := range waits {
			got := <-w
			require.NoError(t, got.err)
			require.NoError(t, got.session.Release(t.Context()))
		}
		atMost := 4*time.Since(start).Seconds() + 2
		require.LessOrEqual(t, float64(e.reads.Load()), atMost, "four reads a second, however many wait")
	})
}

func TestDeadHolderIsNoticedWithoutAnybodyReleasing(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	mem := lockcoretest.NewEngine(clock.Now)
	l := on(t, mem, lockcore.Config{})
	// Entered as a value: nothing renews it, as if its process had died.
	_, err := l.Enter(t.Context(), one("dead", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	next := acquireLater(t.Context(), l, one("b", lockcore.Exclusive("r")))
	eventually(t, 1, waitersOf(mem, "r"), "b stands in the queue")
	clock.Advance(31 * time.Second)
	got := <-next
	require.NoError(t, got.err)
	require.NoError(t, got.session.Release(t.Context()))
}

func TestWaitersThatAreCancelledLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewEngine(time.Now)
	l := on(t, mem, lockcore.Config{})
	a, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	var waits []<-chan acquired
	for i := range 10 {
		waits = append(waits, acquireLater(ctx, l, one(fmt.Sprint("w", i), lockcore.Exclusive("r"))))
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
