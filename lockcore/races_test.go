package lockcore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// watchedEngine counts its reads, and can refuse them. It has no answer to searches, which read all queues and would find
// what a test keeps from the reads.
type watchedEngine struct {
	*hookEngine
	reads  atomic.Int64
	refuse atomic.Bool
}

func watched() *watchedEngine {
	e := &watchedEngine{hookEngine: hooked()}
	e.list = func(context.Context) error { return errCut }
	return e
}

func (e *watchedEngine) Read(ctx context.Context, names ...string) ([]rules.Document, error) {
	defer e.reads.Add(1)
	if e.refuse.Load() {
		return nil, errCut
	}
	return e.Engine.Read(ctx, names...)
}

// reading waits for some reads.
func (e *watchedEngine) reading(t *testing.T, why string) {
	t.Helper()
	n := e.reads.Load()
	require.Eventually(t, func() bool { return e.reads.Load() >= n+4 }, 15*time.Second, time.Millisecond, why)
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
	e := hooked()
	searching, answer := make(chan struct{}, 100), make(chan struct{})
	e.list = func(context.Context) error {
		searching <- struct{}{}
		<-answer
		return errCut
	}
	t.Cleanup(func() { close(answer) })
	here, elsewhere := on(t, e, lockcore.Config{}), on(t, e.Engine, lockcore.Config{})
	a, err := elsewhere.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	b := acquireLater(t.Context(), here, one("b", lockcore.Exclusive("r")))
	<-searching
	require.NoError(t, a.Release(t.Context()))
	granted(t, b, "nobody reads while the search is under way")
}

func TestSearchForDeadlocksThatFailsDoesNotTakeTheTurnOfARead(t *testing.T) {
	t.Parallel()
	e := watched()
	searching := make(chan struct{}, 100)
	e.list = func(context.Context) error {
		searching <- struct{}{}
		return errCut
	}
	e.refuse.Store(true) // so that a read is due again and again
	here, elsewhere := on(t, e, lockcore.Config{}), on(t, e.Engine, lockcore.Config{})
	a, err := elsewhere.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	b := acquireLater(t.Context(), here, one("b", lockcore.Exclusive("r")))
	<-searching
	e.reading(t, "the search stands for the read, and found nothing")
	require.NoError(t, a.Release(t.Context()))
	e.refuse.Store(false)
	granted(t, b, "nobody reads")
}

func TestRenewalUnderWayDoesNotUndoADowngrade(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{TTL: 6 * time.Second})
	leases, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")), false)
	require.NoError(t, err)
	first, downgraded, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	e.after = func(op rules.Renew) { // the first answer is on its way until both are downgraded
		if !op.Downgrade && op.Resource == "r/1" {
			close(first)
			<-downgraded
		}
	}
	e.renew = func(_ context.Context, op rules.Renew) error { // the second is asked for when the first was taken in
		if !op.Downgrade && op.Resource == "r/2" {
			close(second)
		}
		return nil
	}
	e.renewAll = func(context.Context, []rules.Renew) error { return errCut } // so that each is renewed by itself
	s := l.Renewing(t.Context(), leases)
	<-first
	require.NoError(t, s.Downgrade(t.Context()))
	close(downgraded)
	<-second
	require.Equal(t, lockcore.ModeShared, s.Leases()[0].Mode)
	require.Equal(t, rules.Shared, e.Document("r/1").Entries[0].Mode)
}

func TestUpgradeThatIsLostLeavesNoClaimBehind(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	s, err := l.TryAcquire(t.Context(), one("a", lockcore.Shared("r")))
	require.NoError(t, err)
	reader, err := l.TryAcquire(t.Context(), one("b", lockcore.Shared("r")))
	require.NoError(t, err)
	upgraded := make(chan error, 1)
	go func() { upgraded <- s.Upgrade(context.Background(), "r") }()
	eventually(t, 1, waitersOf(e, "r"), "the upgrade waits for b")
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, reader.Release(t.Context()))
	require.ErrorIs(t, <-upgraded, lockcore.ErrEnded)
	require.Empty(t, e.Document("r").Entries, "a claim keeps others out for 30 s")
	require.Empty(t, e.Document("r").Waiters)
}
