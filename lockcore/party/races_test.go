package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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

func TestSlowSearchForDeadlocksDoesNotKeepTheReadsWaiting(t *testing.T) {
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
	here, elsewhere := newLocker(t, e, party.Config{}), newLocker(t, e.Store, party.Config{})
	a, err := elsewhere.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	b := acquireLater(t.Context(), here, request("b", party.Exclusive("r")))
	<-begun
	require.NoError(t, a.Release(t.Context()))
	granted(t, b, "nobody reads while the search is under way")
}

func TestSearchForDeadlocksThatFailsDoesNotTakeTheTurnOfARead(t *testing.T) {
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
	here, elsewhere := newLocker(t, e, party.Config{}), newLocker(t, e.Store, party.Config{})
	a, err := elsewhere.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	b := acquireLater(t.Context(), here, request("b", party.Exclusive("r")))
	<-begun
	e.reading(t, "the search stands for the read, and found nothing")
	require.NoError(t, a.Release(t.Context()))
	e.set(fails, nil)
	granted(t, b, "nobody reads")
}

func TestRenewalUnderWayDoesNotUndoADowngrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: 6 * time.Second})
		leases, err := l.TryEnter(t.Context(), request("a", party.Exclusive("r/1"), party.Exclusive("r/2")))
		require.NoError(t, err)
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
			require.Equal(t, party.ModeShared, s.Leases()[i].Mode)
			require.True(t, s.Leases()[i].Valid())
			require.Equal(t, rules.Shared, e.Document(name).Entries[0].Mode)
		}
	})
}

func TestUpgradeThatIsLostLeavesNoClaimBehind(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewStore(time.Now)
	l := newLocker(t, e, party.Config{})
	s, err := l.TryAcquire(t.Context(), request("a", party.Shared("r")))
	require.NoError(t, err)
	reader, err := l.TryAcquire(t.Context(), request("b", party.Shared("r")))
	require.NoError(t, err)
	upgraded := make(chan error, 1)
	go func() { upgraded <- s.Upgrade(context.Background(), "r") }()
	eventually(t, 1, waitersOf(e, "r"), "the upgrade waits for b")
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, reader.Release(t.Context()))
	require.ErrorIs(t, <-upgraded, party.ErrEnded)
	require.Empty(t, e.Document("r").Entries, "a claim keeps others out for 30 s")
	require.Empty(t, e.Document("r").Waiters)
}
