package party_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

func TestReleaseOfALaterAttemptLeavesTheEarlierOneToDrain(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	req := party.Request{LockID: "saga", Part: "step", Order: party.Order{Schedule: 1, Attempt: 1}, Resources: []party.Resource{party.Exclusive("r")}}
	old, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	req.Order.Attempt = 2
	s, err := l.TryAcquire(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
	require.True(t, old[0].Valid())
	_, err = l.TryEnter(t.Context(), request("other", party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy, "the zombie still trusts")
}

func TestUpgradeOfALeaseWithoutEndHasNone(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	req := request("a", party.Shared("r"))
	req.TTL = party.Forever
	s, err := l.TryAcquire(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, s.Upgrade(t.Context(), "r"))
	require.Equal(t, party.Forever, s.Leases()[0].Left)
	require.NoError(t, s.Release(t.Context()))
}
