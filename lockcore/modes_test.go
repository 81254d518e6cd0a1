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

// An upgrade once used the number of the next attempt of its part. That attempt then got the answer that it
// had been granted before, and the first one kept running at the same time.
func TestUpgrade_NextAttemptOfThePart_SupersedesIt(t *testing.T) {
	eachCase(t, map[string]bool{"granted": true, "waiting": false}, func(t *testing.T, l *lockcore.Steps, e *faultStore, granted bool) {
		req := keeping("a", lockcore.Shared("r"))
		s := tryAcquire(t, l, req)
		upgraded := make(chan error, 1)
		if granted {
			require.NoError(t, s.Upgrade(t.Context(), "r"))
		} else {
			tryAcquire(t, l, request("reader", lockcore.Shared("r")))
			go func() { upgraded <- s.Upgrade(t.Context(), "r") }()
			synctest.Wait()
			requireWaiting(t, e, 1, "r")
		}
		req.Order.Attempt = 2
		next := enter(t, l, req)
		require.Greater(t, next[0].Fence, s.Leases()[0].Fence, "it was not granted before")
		<-s.Context().Done()
		require.ErrorIs(t, s.Lost(), lockcore.ErrLost)
		if !granted {
			require.Error(t, <-upgraded)
			require.Empty(t, e.Document("r").Waiters)
		}
		_, err := l.Renew(t.Context(), next...)
		require.NoError(t, err)
	})
}

// An upgrade whose answer was lost was once tried to be taken back a single time. Without an end of its
// TTL, the exclusive part stood forever, although Leave and Close returned nil.
func TestUpgrade_AnswerIsLostInAnOutage_IsTakenBack(t *testing.T) {
	eachCase(t, map[string]func(*testing.T, *lockcore.Steps, *lockcore.Session, *faultStore){
		"others share again": func(t *testing.T, l *lockcore.Steps, _ *lockcore.Session, e *faultStore) {
			t.Helper()
			elapse(time.Minute)
			require.Len(t, e.Document("r").Entries, 1)
			require.Equal(t, rules.Shared, e.Document("r").Entries[0].Mode)
			tryAcquire(t, l, request("b", lockcore.Shared("r")))
		},
		"it leaves": func(t *testing.T, l *lockcore.Steps, s *lockcore.Session, e *faultStore) {
			t.Helper()
			require.NoError(t, s.Leave(t.Context()))
			require.NoError(t, l.Close(t.Context()))
			require.Empty(t, e.Document("r").Entries)
		},
		"the process closes": func(t *testing.T, l *lockcore.Steps, _ *lockcore.Session, e *faultStore) {
			t.Helper()
			require.NoError(t, l.Close(t.Context()))
			require.Empty(t, e.Document("r").Entries)
		},
	}, func(t *testing.T, l *lockcore.Steps, e *faultStore, after func(*testing.T, *lockcore.Steps, *lockcore.Session, *faultStore)) {
		s := tryAcquire(t, l, endless("a", lockcore.Shared("r")))
		e.set(nil, func(_ context.Context, c command) error {
			if !grants("a")(c) {
				return nil
			}
			e.set(cutting(of(kindSwap)), nil) // nothing is written any longer
			return errCut
		})
		require.ErrorIs(t, s.Upgrade(t.Context(), "r"), lockcore.ErrUnknownOutcome)
		require.Equal(t, rules.Exclusive, e.Document("r").Entries[1].Mode)
		elapse(10 * time.Second)
		require.Equal(t, lockcore.ModeShared, s.Leases()[0].Mode)
		e.set(nil, nil)
		after(t, l, s, e)
	})
}

// Close once did not wait for upgrades: the dead request stayed at the head of the queue.
func TestUpgrade_Close_EndsIt(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		other := newLocker(t, e, lockcore.Config{})
		tryAcquire(t, other, request("reader", lockcore.Shared("r")))
		s := tryAcquire(t, l, request("a", lockcore.Shared("r")))
		upgraded := make(chan error, 1)
		go func() { upgraded <- s.Upgrade(context.Background(), "r") }()
		synctest.Wait()
		requireWaiting(t, e, 1, "r")
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-upgraded, lockcore.ErrClosed)
		require.Empty(t, e.Document("r").Waiters)
		require.Len(t, e.Document("r").Entries, 1, "the reader's")
		require.ErrorIs(t, s.Upgrade(t.Context(), "r"), lockcore.ErrClosed)
	})
}

// An upgrade once dropped the request's own description.
func TestUpgrade_KeepsWhatTheRequestSays(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{Host: "host of the process"})
	req := request("a", lockcore.Shared("r"))
	req.Run, req.Owner, req.Host, req.Comment = "run", "owner", "host", "comment"
	s := tryAcquire(t, l, req)
	for range 2 { // also after a renewal
		was := e.Document("r").Entries[0]
		require.NoError(t, s.Upgrade(t.Context(), "r"))
		now := e.Document("r").Entries[1]
		require.Equal(t, rules.Exclusive, now.Mode)
		require.Equal(t, []string{"run", "owner", "host", "comment"}, []string{now.Run, now.Owner, now.Host, now.Comment})
		require.Equal(t, was.CreatedAt, now.CreatedAt)
		require.NoError(t, s.Downgrade(t.Context()))
	}
	require.NoError(t, s.Release(t.Context()))
	require.Empty(t, e.Document("r").Entries)
}

func TestDowngrade_DuringRenewal_IsKept(t *testing.T) {
	virtual(t, lockcore.Config{TTL: 6 * time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		leases := enter(t, l, request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")))
		renewed, downgraded := make(chan struct{}), make(chan struct{})
		e.set(nil, times(1, func(context.Context, command) error { // the answer is on its way until both are downgraded
			close(renewed)
			<-downgraded
			return nil
		}, of(kindExtend)))
		s := l.NewSession(t.Context(), leases)
		<-renewed
		require.NoError(t, s.Downgrade(t.Context()))
		close(downgraded)
		elapse(10 * time.Second) // several renewals
		for i, name := range []string{"r/1", "r/2"} {
			require.Equal(t, lockcore.ModeShared, s.Leases()[i].Mode)
			require.True(t, s.Leases()[i].Valid())
			require.Equal(t, rules.Shared, e.Document(name).Entries[0].Mode)
		}
	})
}

func TestUpgrade_SessionLeaves_LeavesNoClaim(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	s := tryAcquire(t, l, request("a", lockcore.Shared("r")))
	reader := tryAcquire(t, l, request("b", lockcore.Shared("r")))
	upgraded := make(chan error, 1)
	go func() { upgraded <- s.Upgrade(context.Background(), "r") }()
	requireWaiting(t, e, 1, "r")
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, reader.Release(t.Context()))
	require.ErrorIs(t, <-upgraded, lockcore.ErrEnded)
	require.Empty(t, e.Document("r").Entries, "a claim keeps others out for 30 s")
	require.Empty(t, e.Document("r").Waiters)
}

func TestDowngrade_Readers_AreLetIn(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	s := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
	fence := s.Leases()[0].Fence
	requireBusy(t, l, request("b", lockcore.Shared("r")))
	require.NoError(t, s.Downgrade(t.Context()))
	require.Equal(t, lockcore.ModeShared, s.Leases()[0].Mode)
	require.Equal(t, fence, s.Leases()[0].Fence)
	b := tryAcquire(t, l, request("b", lockcore.Shared("r")))
	require.NoError(t, b.Release(t.Context()))
	require.NoError(t, s.Upgrade(t.Context(), "r"))
	require.Equal(t, lockcore.ModeExclusive, s.Leases()[0].Mode)
	require.Greater(t, s.Leases()[0].Fence, fence)
	require.ErrorIs(t, s.Upgrade(t.Context(), "elsewhere"), lockcore.ErrInvalid)
	require.NoError(t, s.Release(t.Context()))
}

func TestUpgrade_SessionEnded_IsGivenBack(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	s := tryAcquire(t, l, request("a", lockcore.Shared("r")))
	released := make(chan error, 1)
	e.set(nil, times(1, func(context.Context, command) error { // the answer is on its way
		go func() { released <- s.Release(context.Background()) }()
		<-s.Context().Done()
		return nil
	}, grants("a")))
	require.ErrorIs(t, s.Upgrade(t.Context(), "r"), lockcore.ErrEnded)
	require.NoError(t, <-released)
	require.Empty(t, e.Document("r").Entries, "released, ended, and still held by nobody's session")
}

func TestUpgrade_EndlessLease_StaysEndless(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	req := endless("a", lockcore.Shared("r"))
	s := tryAcquire(t, l.Steps, req)
	require.NoError(t, s.Upgrade(t.Context(), "r"))
	require.Equal(t, lockcore.Forever, s.Leases()[0].Left)
	require.NoError(t, s.Release(t.Context()))
}

func TestDowngrade_AnswerLost_TrustsSharedOnly(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	s := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
	e.set(nil, cutting(of(kindSwap)))
	require.ErrorIs(t, s.Downgrade(t.Context()), lockcore.ErrUnknownOutcome)
	e.set(nil, nil)
	_, err := l.TryAcquire(t.Context(), request("b", lockcore.Shared("r")))
	require.NoError(t, err, "the downgrade took effect")
	require.Equal(t, lockcore.ModeShared, s.Leases()[0].Mode, "a reader is in")

	// One that took no effect is made good by the next call, though the session trusts only shared
	// meanwhile.
	c := tryAcquire(t, l, request("c", lockcore.Exclusive("r/2")))
	e.set(cutting(of(kindSwap)), nil)
	require.ErrorIs(t, c.Downgrade(t.Context()), lockcore.ErrUnknownOutcome)
	e.set(nil, nil)
	require.Equal(t, lockcore.ModeShared, c.Leases()[0].Mode)
	require.Equal(t, rules.Exclusive, e.Document("r/2").Entries[0].Mode)
	require.NoError(t, c.Downgrade(t.Context()))
	require.Equal(t, rules.Shared, e.Document("r/2").Entries[0].Mode)
}
