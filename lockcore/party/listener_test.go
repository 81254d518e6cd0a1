package party_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// wake makes a wake-up for a request of "next".
func wake(t *testing.T, l *party.Locker) {
	t.Helper()
	leases, err := l.TryEnter(t.Context(), request("holder", party.Exclusive("r")))
	require.NoError(t, err)
	next := request("next", party.Exclusive("r"))
	next.Part, next.Order = "p", party.Order{Schedule: 1, Attempt: 1}
	_, err = l.Enter(t.Context(), next)
	require.ErrorIs(t, err, party.ErrBusy)
	require.NoError(t, l.Leave(t.Context(), leases...))
}

// A stopped listener was once called after stop had returned.
func TestOnWakeup_Stop_WaitsForACallUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
		called, goOn := make(chan struct{}, 100), make(chan struct{})
		var running, stopped atomic.Bool
		stop := l.OnWakeup(func(party.Wakeup) {
			require.False(t, stopped.Load(), "it was stopped")
			running.Store(true)
			called <- struct{}{}
			<-goOn
			running.Store(false)
		})
		var woken sync.WaitGroup
		woken.Go(func() { wake(t, l) })
		<-called
		go func() {
			elapse(time.Second)
			close(goOn)
		}()
		stop()
		stillRuns := running.Load()
		stopped.Store(true)
		woken.Wait()
		require.False(t, stillRuns)
		elapse(time.Minute) // in which the wake-up is repeated for those who listen
		stop()              // again
	})
}

// A stopped listener was once referenced until the Locker closed.
func TestOnWakeup_Stop_ReleasesTheListener(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	collected := make(chan struct{})
	stop := func() func() {
		large := new([1 << 20]byte)
		runtime.AddCleanup(large, func(int) { close(collected) }, 0)
		return l.OnWakeup(func(party.Wakeup) { large[0]++ })
	}()
	stop()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(l)
}
