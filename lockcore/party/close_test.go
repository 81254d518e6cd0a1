package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestClose_SessionsAndWaits_AreEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l, other := newLocker(t, e, party.Config{}), newLocker(t, e.Store, party.Config{})
		_, err := other.TryAcquire(t.Context(), request("other", party.Exclusive("busy")))
		require.NoError(t, err)
		plain, err := l.TryAcquire(t.Context(), endless("plain", party.Exclusive("plain")))
		require.NoError(t, err)
		kept := request("saga", party.Exclusive("kept"))
		kept.Persist = true
		_, err = l.TryAcquire(t.Context(), kept)
		require.NoError(t, err)
		waits := acquireLater(t.Context(), l, request("waits", party.Exclusive("a"), party.Exclusive("busy")))
		eventually(t, 1, waitersOf(e.Store, "busy"), "it waits")

		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, (<-waits).err, party.ErrClosed)
		require.ErrorIs(t, context.Cause(plain.Context()), party.ErrClosed)
		require.NoError(t, plain.Lost())
		require.Empty(t, e.Document("busy").Waiters)
		require.Empty(t, e.Document("a").Entries)
		require.Empty(t, e.Document("plain").Entries)
		require.Len(t, e.Document("kept").Entries, 1)
		require.Equal(t, rules.StateKept, e.Document("kept").Entries[0].State, "the saga goes on elsewhere")
		require.NoError(t, l.Close(t.Context()), "again")
		sent := len(e.commands())
		elapse(time.Hour)
		require.Len(t, e.commands(), sent, "nothing goes on")
	})
}

func TestClose_Outage_ReturnsWhatItCouldNotRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		_, err := l.TryAcquire(t.Context(), endless("a", party.Exclusive("held")))
		require.NoError(t, err)
		e.set(cutting(ends("a")), cutting(of(kindSwap)))
		_, err = l.TryAcquire(t.Context(), endless("a", party.Exclusive("gone")))
		require.ErrorIs(t, err, party.ErrUnknownOutcome)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err = l.Close(ctx)
		require.ErrorIs(t, err, party.ErrUnknownOutcome)
		require.ErrorContains(t, err, `"held"`)
		require.ErrorContains(t, err, `"gone"`)
		require.Less(t, time.Since(began), 6*time.Second)
	})
}

func TestClose_LostAnswer_WaitsForCleanup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		e.set(cutting(ends("a")), cutting(of(kindSwap)))
		_, err := l.TryAcquire(t.Context(), endless("a", party.Exclusive("r")))
		require.ErrorIs(t, err, party.ErrUnknownOutcome)
		e.set(nil, nil)
		require.NoError(t, l.Close(t.Context()))
		require.Empty(t, e.Document("r").Entries)
	})
}

func TestClose_HangingRelease_IsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		hang := make(chan struct{})
		e.set(both(times(1, func(context.Context, command) error { close(hang); return nil }, of(kindSwap)), hanging(of(kindSwap))), nil)
		released := make(chan error, 1)
		go func() {
			released <- l.Release(context.Background(), party.Release{LockID: "a", Resources: []string{"r"}, Order: party.LastAttempt(1)})
		}()
		<-hang
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-released, party.ErrUnknownOutcome)
	})
}

func TestClose_HangingRequest_IsEnded(t *testing.T) {
	t.Parallel()
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newFaultStore()
				l := newLocker(t, e, party.Config{})
				hang := make(chan struct{})
				e.set(nil, times(1, func(ctx context.Context, _ command) error {
					close(hang)
					<-ctx.Done()
					return ctx.Err()
				}, grants("a")))
				asked := make(chan error, 1)
				go func() { asked <- ask(context.Background(), l, endless("a", party.Exclusive("r"))) }()
				<-hang
				require.NoError(t, l.Close(t.Context()))
				require.ErrorIs(t, <-asked, party.ErrClosed)
				require.Empty(t, e.Document("r").Entries)
			})
		})
	}
}

// What cannot be paid in an outage is named after 20 s, also if the caller's context never ends.
func TestClose_OutageThatDoesNotEnd_IsNamedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		e.set(cutting(ends("a")), cutting(of(kindSwap)))
		_, err := l.TryAcquire(t.Context(), endless("a", party.Exclusive("gone")))
		require.ErrorIs(t, err, party.ErrUnknownOutcome)
		began := time.Now()
		require.ErrorContains(t, l.Close(context.Background()), `"gone"`)
		require.LessOrEqual(t, time.Since(began), 21*time.Second)
	})
}
