package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// reading waits for some reads of the watcher.
func (s *faultStore) reading(t *testing.T, why string) {
	t.Helper()
	n := s.count(of(kindLook))
	require.Eventually(t, func() bool { return s.count(of(kindLook)) >= n+4 }, 15*time.Second, time.Millisecond, why)
}

// granted waits for a request that takes far less than this.
func granted(t *testing.T, waits <-chan acquired, why string) {
	t.Helper()
	select {
	case got := <-waits:
		require.NoError(t, got.err)
		require.NoError(t, got.session.Release(context.WithoutCancel(t.Context())))
	case <-time.After(15 * time.Second):
		t.Fatal(why)
	}
}

func TestWatcher_SlowDeadlockSearch_StillReads(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	begun, answer := make(chan struct{}, 100), make(chan struct{})
	e.set(func(_ context.Context, c command) error {
		if searching(c) {
			begun <- struct{}{}
			<-answer
			return errCut
		}
		return nil
	}, nil)
	t.Cleanup(func() { close(answer) })
	here, elsewhere := newLocker(t, e, lockcore.Config{}), newLocker(t, e.Store, lockcore.Config{})
	a := tryAcquire(t, elsewhere, request("a", lockcore.Exclusive("r")))
	b := acquireLater(t.Context(), here, request("b", lockcore.Exclusive("r")))
	<-begun
	require.NoError(t, a.Release(t.Context()))
	granted(t, b, "nobody reads while the search is under way")
}

func TestWatcher_DeadlockSearchFails_StillReads(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	begun := make(chan struct{}, 100)
	fails := func(_ context.Context, c command) error {
		if searching(c) {
			begun <- struct{}{}
			return errCut
		}
		return nil
	}
	e.set(both(fails, cutting(of(kindLook))), nil) // so that a read is due again and again
	here, elsewhere := newLocker(t, e, lockcore.Config{}), newLocker(t, e.Store, lockcore.Config{})
	a := tryAcquire(t, elsewhere, request("a", lockcore.Exclusive("r")))
	b := acquireLater(t.Context(), here, request("b", lockcore.Exclusive("r")))
	<-begun
	e.reading(t, "the search stands for the read, and found nothing")
	require.NoError(t, a.Release(t.Context()))
	e.set(fails, nil)
	granted(t, b, "nobody reads")
}

func TestWatcher_ManyWaiters_ShareReads(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, here *lockcore.Steps, e *faultStore) {
		elsewhere := newLocker(t, e.Store, lockcore.Config{})
		a := tryAcquire(t, elsewhere, request("a", lockcore.Exclusive("r")))
		const waiting = 20
		var waits []<-chan acquired
		start := time.Now()
		for i := range waiting {
			waits = append(waits, acquireLater(t.Context(), here, request(fmt.Sprint("w", i), lockcore.Shared("r"))))
		}
		requireWaiting(t, e, waiting, "r")
		// Reads continue while nothing happens; polling never writes.
		require.Eventually(t, func() bool { return e.count(of(kindLook)) >= 3 }, 10*time.Second, time.Millisecond, "it is read")
		require.LessOrEqual(t, e.count(of(kindSwap)), waiting, "requests that queue at the same time share a swap")
		require.NoError(t, a.Release(t.Context()))
		for _, w := range waits {
			got := <-w
			require.NoError(t, got.err)
			require.NoError(t, got.session.Release(t.Context()))
		}
		atMost := 4*time.Since(start).Seconds() + 12 // the first polls expect a short hold
		require.LessOrEqual(t, float64(e.count(of(kindLook))), atMost, "four reads a second, however many wait")
	})
}

// 24 processes begin to wait at once for a resource of which none has seen a hold end.
func TestWatcher_NoHoldObserved_HandOversAreFast(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, here *lockcore.Steps, e *faultStore) {
		const processes = 24
		first := tryAcquire(t, here, request("first", lockcore.Exclusive("r")))
		waits := make(chan acquired, processes)
		for i := range processes {
			l := newLocker(t, e.Store, lockcore.Config{})
			go func() {
				got := <-acquireLater(t.Context(), l, request(fmt.Sprint("w", i), lockcore.Exclusive("r")))
				if got.err == nil {
					got.err = got.session.Release(t.Context())
				}
				waits <- got
			}()
		}
		requireWaiting(t, e, processes, "r")
		begun := time.Now()
		require.NoError(t, first.Release(t.Context()))
		for range processes {
			require.NoError(t, (<-waits).err)
		}
		require.Less(t, time.Since(begun), processes*50*time.Millisecond)
	})
}

// The search of a wait that is over ends late. It must not delay the search of the next wait.
func TestWatcher_EarlierSearch_DoesNotDelayTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		begun, answer, searched := make(chan struct{}, 100), make(chan struct{}), time.Time{}
		first := true
		e.set(func(_ context.Context, c command) error {
			switch {
			case !searching(c):
				return nil
			case first:
				first = false
				begun <- struct{}{}
				<-answer
			case searched.IsZero():
				searched = time.Now()
			}
			return errCut
		}, nil)
		l := newLocker(t, e, lockcore.Config{})
		wait := func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			out := acquireLater(ctx, l, request("b", lockcore.Exclusive("r")))
			requireWaiting(t, e, 1, "r")
			return func() {
				cancel()
				<-out
			}
		}
		confirm(t, l, numbered("a", lockcore.Exclusive("r")))
		end := wait()
		<-begun
		end()
		end = wait()
		queued := time.Now()
		close(answer)
		elapse(10 * time.Second)
		require.LessOrEqual(t, searched.Sub(queued), 1500*time.Millisecond)
		end()
	})
}

// Each search reads all resources that are waited for: it rests longer when they are many.
func TestWatcher_ManyResources_SearchesRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		e.set(cutting(of(kindLook)), nil) // which would take most of the test's time
		l := newLocker(t, e, lockcore.Config{})
		const many = 250
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan acquired
		for i := range many {
			res := lockcore.Exclusive(fmt.Sprint("r/", i))
			_, err := l.TryEnter(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "holder"}, TTL: lockcore.Forever, Resources: []lockcore.Resource{res}})
			require.NoError(t, err)
			waits = append(waits, acquireLater(ctx, l, request("b", res)))
		}
		elapse(time.Minute)
		before := e.count(searching)
		elapse(4 * time.Minute)
		require.InDelta(t, int(4*time.Minute/(many*pace.PerResource)), e.count(searching)-before, 2)
		cancel()
		for _, wait := range waits {
			<-wait
		}
	})
}
