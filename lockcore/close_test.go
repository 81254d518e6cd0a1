package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestClose_SessionsAndWaits_AreEnded(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		other := newLocker(t, e.Store, lockcore.Config{})
		tryAcquire(t, other, request("other", lockcore.Exclusive("busy")))
		plain := tryAcquire(t, l, endless("plain", lockcore.Exclusive("plain")))
		kept := request("saga", lockcore.Exclusive("kept"))
		kept.Keep = true
		tryAcquire(t, l, kept)
		waits := acquireLater(t.Context(), l, request("waits", lockcore.Exclusive("a"), lockcore.Exclusive("busy")))
		requireWaiting(t, e, 1, "busy")

		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, (<-waits).err, lockcore.ErrClosed)
		require.ErrorIs(t, context.Cause(plain.Context()), lockcore.ErrClosed)
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

// It waits for the cleanup until its context ends, and for at most 20 s.
func TestClose_Outage_ReturnsWhatItCouldNotRelease(t *testing.T) {
	type test struct {
		within, most time.Duration
		names        []string
	}
	cases := map[string]test{
		"its context ends":         {5 * time.Second, 6 * time.Second, []string{"gone", "held"}},
		"its context does not end": {24 * time.Hour, 21 * time.Second, []string{"gone"}},
	}
	eachCase(t, cases, func(t *testing.T, l *lockcore.Steps, db *faultStore, c test) {
		if len(c.names) > 1 {
			tryAcquire(t, l, endless("a", lockcore.Exclusive("held")))
		}
		db.set(cutting(ends("a")), cutting(of(kindSwap)))
		_, err := l.TryAcquire(t.Context(), endless("a", lockcore.Exclusive("gone")))
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
		ctx, cancel := context.WithTimeout(t.Context(), c.within)
		defer cancel()
		began := time.Now()
		err = l.Close(ctx)
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
		for _, name := range c.names {
			require.ErrorContains(t, err, `"`+name+`"`)
		}
		require.LessOrEqual(t, time.Since(began), c.most)
	})
}

func TestClose_HangingRelease_IsEnded(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		db.set(hanging(of(kindSwap)), nil)
		released := make(chan error, 1)
		go func() {
			released <- l.Release(context.Background(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)})
		}()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-released, lockcore.ErrUnknownOutcome)
	})
}

func TestClose_HangingRequest_IsEnded(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, db *faultStore, ask asker) {
		hang := make(chan struct{})
		db.set(nil, times(1, func(ctx context.Context, _ command) error {
			close(hang)
			<-ctx.Done()
			return ctx.Err()
		}, grants("a")))
		asked := make(chan error, 1)
		go func() { asked <- ask(context.Background(), l, endless("a", lockcore.Exclusive("r"))) }()
		<-hang
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-asked, lockcore.ErrClosed)
		require.Empty(t, db.Document("r").Entries)
	})
}

// A debt is paid in the last moment before the context of Close ends.
func TestClose_DebtIsPaidAtTheEnd_ReturnsIt(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		swaps := []chan struct{}{make(chan struct{}), make(chan struct{})}
		next := 0
		e.set(func(_ context.Context, c command) error {
			if c.kind == kindSwap {
				next++
				<-swaps[next-1]
			}
			return nil
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.TryEnter(ctx, request("a", lockcore.Exclusive("r"))) // it gives up while its swap is on its way
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(swaps[0])
		elapse(time.Second)
		time.AfterFunc(50*time.Millisecond, func() { close(swaps[1]) })
		closing, end := context.WithTimeout(t.Context(), 55*time.Millisecond)
		defer end()
		require.ErrorIs(t, l.Close(closing), lockcore.ErrUnknownOutcome)
	})
}
