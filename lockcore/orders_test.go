package lockcore_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func releaseAll(t *testing.T, l *lockcore.Locker, lockID string) {
	t.Helper()
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: lockID, Resources: []string{"r"}}))
}

func TestReleaseWithoutAnOrderEndsAllThatWasAskedForUntilNow(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	kept := one("saga", lockcore.Exclusive("r"))
	kept.Keep = true
	leases, err := l.Enter(t.Context(), kept, false)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))
	numbered := one("saga", lockcore.Exclusive("r"))
	numbered.Part, numbered.Order = "step", lockcore.Order{Schedule: 400_000, Attempt: 7}
	leases, err = l.Enter(t.Context(), numbered, false)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.NotEmpty(t, e.Document("r").Held, "the hold stands between steps")

	releaseAll(t, l, "saga")
	require.Empty(t, e.Document("r").Held)
	_, err = l.Enter(t.Context(), numbered, false)
	require.ErrorIs(t, err, lockcore.ErrSuperseded, "it arrives late")

	// What is numbered later gets it at once.
	leases, err = l.Enter(t.Context(), kept, false)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))
	releaseAll(t, on(t, e, lockcore.Config{}), "saga")
	require.Empty(t, e.Document("r").Held, "another process ends it too")
	_, err = l.Enter(t.Context(), one("other", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
}

func TestReleaseWithoutAnOrderIsNumberedWithTheRequests(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{})
	var last lockcore.Order
	// Faster than the clock of a coarse machine counts: each is after the one before all the same.
	for range 200 {
		leases, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		require.True(t, last.Less(leases[0].Order))
		last = leases[0].Order
		releaseAll(t, l, "a")
		released := e.Document("r").Released
		require.Greater(t, released[len(released)-1].Order, int64(last.Schedule)<<32|int64(last.Attempt))
		require.NoError(t, l.Leave(t.Context(), leases...))
	}
}

func TestReleaseWithoutAnOrderTakesWaitersOutOfTheQueue(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	_, err := l.Enter(t.Context(), one("holder", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	req := one("waiter", lockcore.Exclusive("r"))
	req.Order.Attempt = 1
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	releaseAll(t, l, "waiter")
	require.Empty(t, e.Document("r").Waiters)
	require.Len(t, e.Document("r").Held, 1, "the other's stands")
}

// sentEngine fails the test at the first command.
type sentEngine struct {
	*lockcoretest.Engine
	t *testing.T
}

func (e sentEngine) Acquire(context.Context, engine.Acquire) (engine.Document, error) {
	e.t.Error("a request was sent")
	return engine.Document{}, errCut
}

func (e sentEngine) Release(context.Context, engine.Release) (engine.Document, error) {
	e.t.Error("a release was sent")
	return engine.Document{}, errCut
}

func TestOrdersThatSayNothingAreRefusedAndNothingIsSent(t *testing.T) {
	t.Parallel()
	l := on(t, sentEngine{lockcoretest.NewEngine(time.Now), t}, lockcore.Config{})
	refused := func(err error, field, value string) {
		t.Helper()
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, value, invalid.Value)
		require.NotEmpty(t, invalid.Bound)
	}
	for _, part := range []string{"", "step"} {
		req := one("a", lockcore.Exclusive("r"))
		req.Part = part
		_, err := l.Enter(t.Context(), req, true)
		refused(err, "Request.Order", "0.0")
	}
	part := "step"
	release := lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: &part}
	refused(l.Release(t.Context(), release), "Release.Leaving", `"step"`)
	release.Order = lockcore.LastAttempt(math.MaxInt32 + 1)
	refused(l.Release(t.Context(), release), "Release.Order.Schedule", "2147483648")
}
