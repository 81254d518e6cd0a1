package party_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

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
