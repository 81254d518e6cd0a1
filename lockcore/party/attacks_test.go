package party_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

func TestReleaseOfALaterAttemptLeavesTheEarlierOneToDrain(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	req := party.Request{LockID: "saga", Part: "step", Order: party.Order{Schedule: 1, Attempt: 1}, Resources: []party.Resource{party.Exclusive("r")}}
	old, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	req.Order.Attempt = 2
	s, err := l.TryAcquire(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
	require.True(t, old[0].Valid())
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.ErrorIs(t, err, party.ErrBusy, "the zombie still trusts")
}

func TestFailedRequestLeavesAHoldThatWasThereBeforeIt(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	step := party.Request{LockID: "saga", Part: "one", Order: party.Order{Schedule: 1, Attempt: 1}, Persist: true, Resources: []party.Resource{party.Exclusive("a")}}
	first, err := l.Enter(t.Context(), step, false)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), first...))
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("b")), false)
	require.NoError(t, err)
	step.Part, step.Order.Schedule = "two", 2
	step.Resources = append(step.Resources, party.Exclusive("b"))
	_, err = l.Enter(t.Context(), step, false)
	require.ErrorIs(t, err, party.ErrBusy)
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("a")), false)
	require.ErrorIs(t, err, party.ErrBusy, "the saga's hold on a must stand")
}

func TestSupersededAttemptsDoNotPileUp(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	e := lockcoretest.NewStore(clock.Now)
	l, err := party.NewWithStore(e, party.Config{})
	require.NoError(t, err)
	for i := range 500 {
		req := request("saga", party.Exclusive("r"))
		req.Part, req.Persist, req.Order = "step", true, party.Order{Schedule: 1, Attempt: uint32(i + 1)}
		_, err := l.Enter(t.Context(), req, true)
		require.NoError(t, err)
		clock.Advance(time.Minute)
	}
	require.Less(t, len(e.Document("r").Entries), 100)
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
