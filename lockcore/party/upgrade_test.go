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

// An upgrade once numbered itself like the next attempt of its part. That attempt was then told that it
// had been granted before, and the first one ran on beside it.
func TestUpgrade_NextAttemptOfThePart_SupersedesIt(t *testing.T) {
	t.Parallel()
	for _, granted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e := newFaultStore()
			l := newLocker(t, e, party.Config{})
			req := request("a", party.Shared("r"))
			req.Part, req.Order, req.Persist = "part", party.Order{Schedule: 1, Attempt: 1}, true
			s, err := l.TryAcquire(t.Context(), req)
			require.NoError(t, err)
			upgraded := make(chan error, 1)
			if granted {
				require.NoError(t, s.Upgrade(t.Context(), "r"))
			} else {
				_, err = l.TryAcquire(t.Context(), request("reader", party.Shared("r")))
				require.NoError(t, err)
				go func() { upgraded <- s.Upgrade(t.Context(), "r") }()
				synctest.Wait()
				require.Equal(t, 1, waitersOf(e, "r")())
			}
			req.Order.Attempt = 2
			next, err := l.TryEnter(t.Context(), req)
			require.NoError(t, err)
			require.Greater(t, next[0].Fence, s.Leases()[0].Fence, "it was not granted before")
			<-s.Context().Done()
			require.ErrorIs(t, s.Lost(), party.ErrLost)
			if !granted {
				require.Error(t, <-upgraded)
				require.Empty(t, e.Document("r").Waiters)
			}
			_, err = l.Renew(t.Context(), next...)
			require.NoError(t, err)
		})
	}
}

// An upgrade whose answer was lost was once tried to be taken back a single time. Without an end of its
// TTL, the exclusive part stood forever, although Leave and Close returned nil.
func TestUpgrade_AnswerIsLostInAnOutage_IsTakenBack(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(*testing.T, *party.Locker, *party.Session, *faultStore){
		"others share again": func(t *testing.T, l *party.Locker, _ *party.Session, e *faultStore) {
			t.Helper()
			elapse(time.Minute)
			require.Equal(t, rules.Shared, e.Document("r").Entries[0].Mode)
			_, err := l.TryAcquire(t.Context(), request("b", party.Shared("r")))
			require.NoError(t, err)
		},
		"it leaves": func(t *testing.T, l *party.Locker, s *party.Session, e *faultStore) {
			t.Helper()
			require.NoError(t, s.Leave(t.Context()))
			require.NoError(t, l.Close(t.Context()))
			require.Empty(t, e.Document("r").Entries)
		},
		"the process closes": func(t *testing.T, l *party.Locker, _ *party.Session, e *faultStore) {
			t.Helper()
			require.NoError(t, l.Close(t.Context()))
			require.Empty(t, e.Document("r").Entries)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newFaultStore()
				l := newLocker(t, e, party.Config{})
				s, err := l.TryAcquire(t.Context(), endless("a", party.Shared("r")))
				require.NoError(t, err)
				e.set(nil, func(_ context.Context, c command) error {
					if !grants("a")(c) {
						return nil
					}
					e.set(cutting(of(kindSwap)), nil) // nothing is written any longer
					return errCut
				})
				require.ErrorIs(t, s.Upgrade(t.Context(), "r"), party.ErrUnknownOutcome)
				require.Equal(t, rules.Exclusive, e.Document("r").Entries[0].Mode)
				elapse(10 * time.Second)
				require.Equal(t, party.ModeShared, s.Leases()[0].Mode)
				e.set(nil, nil)
				after(t, l, s, e)
			})
		})
	}
}

// Close once did not wait for upgrades: the dead request stayed at the head of the queue.
func TestUpgrade_Close_EndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l, other := newLocker(t, e, party.Config{}), newLocker(t, e, party.Config{})
		_, err := other.TryAcquire(t.Context(), request("reader", party.Shared("r")))
		require.NoError(t, err)
		s, err := l.TryAcquire(t.Context(), request("a", party.Shared("r")))
		require.NoError(t, err)
		upgraded := make(chan error, 1)
		go func() { upgraded <- s.Upgrade(context.Background(), "r") }()
		synctest.Wait()
		require.Equal(t, 1, waitersOf(e, "r")())
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-upgraded, party.ErrClosed)
		require.Empty(t, e.Document("r").Waiters)
		require.Len(t, e.Document("r").Entries, 1, "the reader's")
		require.ErrorIs(t, s.Upgrade(t.Context(), "r"), party.ErrClosed)
	})
}

// An upgrade once dropped what the request says of itself.
func TestUpgrade_KeepsWhatTheRequestSays(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{Host: "host of the process"})
	req := request("a", party.Shared("r"))
	req.Run, req.Owner, req.Host, req.Comment = "run", "owner", "host", "comment"
	s, err := l.TryAcquire(t.Context(), req)
	require.NoError(t, err)
	for range 2 { // also after a renewal
		was := e.Document("r").Entries[0]
		require.NoError(t, s.Upgrade(t.Context(), "r"))
		now := e.Document("r").Entries[0]
		require.Equal(t, rules.Exclusive, now.Mode)
		require.Equal(t, []string{"run", "owner", "host", "comment"}, []string{now.Label, now.Owner, now.Host, now.Comment})
		require.Equal(t, was.CreatedAt, now.CreatedAt)
		require.NoError(t, s.Downgrade(t.Context()))
	}
	require.NoError(t, s.Release(t.Context()))
	require.Empty(t, e.Document("r").Entries)
}
