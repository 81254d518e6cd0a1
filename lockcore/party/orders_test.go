package party_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// holdFence is the fence with which the hold of "a" began, and 0 if it has none.
func holdFence(e documents, resource string) int64 {
	d := e.Document(resource)
	return d.HoldFence("a")
}

// TestUpgradeThatWasGrantedUnheardIsTakenBack: the session goes on in shared mode, under the order that it was granted.
func TestUpgradeThatWasGrantedUnheardIsTakenBack(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	s, err := l.TryAcquire(t.Context(), request("a", party.Shared("r")))
	require.NoError(t, err)
	e.set(nil, cutting(of(kindSwap)))
	require.ErrorIs(t, s.Upgrade(t.Context(), "r"), party.ErrUnknownOutcome)
	e.set(nil, nil)
	require.Equal(t, party.ModeShared, s.Leases()[0].Mode)
	leases, err := l.Renew(t.Context(), s.Leases()...)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	_, err = l.TryEnter(t.Context(), request("b", party.Shared("r")))
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context()))
	require.Zero(t, holdFence(e, "r"))
}

func TestASemaphoreOfNoPlacesIsRefused(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	_, err := l.TryEnter(t.Context(), request("a", party.SharedLimit("r", 0)))
	var invalid *party.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Request.Resources[0].Limit", invalid.Field)
	require.Equal(t, "0", invalid.Value)
	_, err = l.TryEnter(t.Context(), request("a", party.Shared("r")))
	require.NoError(t, err)
}

func TestOrdersThatSayNothingAreRefusedAndNothingIsSent(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	refused := func(err error, field, value string) {
		t.Helper()
		var invalid *party.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, value, invalid.Value)
		require.NotEmpty(t, invalid.Bound)
	}
	for _, part := range []string{"", "step"} {
		req := request("a", party.Exclusive("r"))
		req.Part = part
		_, err := l.Enter(t.Context(), req)
		refused(err, "Request.Order", "0.0")
	}
	part := "step"
	release := party.Release{LockID: "a", Resources: []string{"r"}, Leaving: &part}
	refused(l.Release(t.Context(), release), "Release.Leaving", `"step"`)
	release.Order = party.LastAttempt(math.MaxInt32 + 1)
	refused(l.Release(t.Context(), release), "Release.Order.Schedule", "2147483648")
	// All plain requests have such orders: it would end those that others of the lock ID made.
	plain := party.Release{LockID: "a", Resources: []string{"r"}, Order: party.Order{Attempt: 1}}
	refused(l.Release(t.Context(), plain), "Release.Order", "0.1")
	require.Empty(t, e.commands())
}
