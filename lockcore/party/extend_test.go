package party_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// keptOn takes resources for a lock ID and leaves at once, so that the holds stand without a process.
func keptOn(t *testing.T, l *party.Locker, lockID string, holdTTL time.Duration, resources ...party.Resource) {
	t.Helper()
	req := request(lockID, resources...)
	req.Part, req.Order, req.Persist, req.HoldTTL, req.TTL = "p", party.Order{Schedule: 7, Attempt: 1}, true, holdTTL, time.Second
	leases, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))
}

func TestExtend_Holds_KeptOrReportedLost(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := newLocker(t, lockcoretest.NewStore(clock.Now), party.Config{})
	mine, gone := party.Exclusive("r/1"), party.Shared("r/2")
	keptOn(t, l, "a", time.Minute, mine, gone)
	for range 5 {
		clock.Advance(45 * time.Second)
		for _, r := range []party.Resource{mine, gone} {
			again, err := l.Extend(t.Context(), "a", "", r.Name, false)
			require.NoError(t, err)
			require.Equal(t, 20*time.Second, again)
		}
	}
	clock.Advance(45 * time.Second)
	_, err := l.TryEnter(t.Context(), request("b", mine))
	require.ErrorIs(t, err, party.ErrBusy)

	_, err = byForce(t.Context(), l, party.Release{Force: true, LockID: "a", Resources: []string{gone.Name}, Reason: "it has to go"})
	require.NoError(t, err)
	_, err = l.Extend(t.Context(), "a", "", gone.Name, false)
	var lost *party.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, gone.Name, lost.Resource)
	require.Equal(t, "it has to go", lost.Reason)
	_, err = l.Extend(t.Context(), "a", "", mine.Name, false)
	require.NoError(t, err)
	clock.Advance(45 * time.Second)
	_, err = l.TryEnter(t.Context(), request("b", mine))
	require.ErrorIs(t, err, party.ErrBusy)
}

func TestExtend_NothingHeld_IsLost(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := newLocker(t, lockcoretest.NewStore(clock.Now), party.Config{})
	r := party.Exclusive("r/1")
	_, err := l.Extend(t.Context(), "a", "", r.Name, false)
	require.ErrorIs(t, err, party.ErrLost)

	keptOn(t, l, "a", party.Forever, r)
	again, err := l.Extend(t.Context(), "a", "", r.Name, false)
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, again)
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{r.Name}, Order: party.LastAttempt(7)}))
	_, err = l.Extend(t.Context(), "a", "", r.Name, false)
	require.ErrorIs(t, err, party.ErrLost)
	_, err = l.TryEnter(t.Context(), request("b", r))
	require.NoError(t, err)

	_, err = l.Extend(t.Context(), "", "", r.Name, false)
	require.ErrorIs(t, err, party.ErrInvalid)
}

// What a request got, and left, before it was queued is extended like any kept hold.
func TestExtend_HoldOfAQueuedRequest_IsKept(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := newLocker(t, lockcoretest.NewStore(clock.Now), party.Config{})
	keptOn(t, l, "other", party.Forever, party.Exclusive("r/2"))
	req := request("a", party.Exclusive("r/1"), party.Exclusive("r/2"))
	req.Part, req.Order, req.Persist, req.TTL, req.HoldTTL = "p", party.Order{Schedule: 1, Attempt: 1}, true, time.Second, 20*time.Second
	_, err := l.Enter(t.Context(), req)
	require.ErrorIs(t, err, party.ErrBusy)
	for range 5 {
		clock.Advance(15 * time.Second)
		_, err = l.Extend(t.Context(), "a", "", "r/1", false)
		require.NoError(t, err)
	}
	_, err = l.TryEnter(t.Context(), request("b", party.Exclusive("r/1")))
	require.ErrorIs(t, err, party.ErrBusy)
}
