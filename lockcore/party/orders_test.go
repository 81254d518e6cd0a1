package party_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// holdFence is the fence with which the hold of "a" began, and 0 if it has none.
func holdFence(e documents, resource string) int64 {
	d := e.Document(resource)
	return d.HoldFence("a")
}

// TestReleaseOfASessionEndsNothingThatWasGrantedSince repeats what a session's release sent, when another session of the
// lock ID holds.
func TestReleaseOfASessionEndsNothingThatWasGrantedSince(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewStore(time.Now)
	l := newLocker(t, e, party.Config{})
	first, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	lease := first.Leases()[0]
	require.NoError(t, first.Release(t.Context()))
	second, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, FirstFence: lease.FirstFence}))
	require.Equal(t, second.Leases()[0].FirstFence, holdFence(e, "r"))
}

// TestForceReleaseRepeatedEndsNothingThatWasGrantedSince, and one that does not wait frees the resource although its holder
// was promised hours.
func TestForceReleaseRepeatedEndsNothingThatWasGrantedSince(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewStore(time.Now)
	l := newLocker(t, e, party.Config{})
	req := request("a", party.Exclusive("r"))
	req.TTL = 6 * time.Hour
	dead, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	force := party.Release{Force: true, LockID: "a", Resources: []string{"r"}, FirstFence: dead[0].FirstFence, Reason: "it hangs"}
	held, err := l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	require.Equal(t, []string{"r"}, held)
	_, err = l.Enter(t.Context(), request("b", party.Exclusive("r")), false)
	require.ErrorContains(t, err, "draining", "it may still work")

	force.Now = true
	_, err = l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	other, err := l.TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	require.NoError(t, err, "it does not wait for the holder, which is dead")
	require.NoError(t, other.Release(t.Context()))
	again, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	_, err = l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	require.Equal(t, again.Leases()[0].FirstFence, holdFence(e, "r"))
}

// TestReleaseRepeatedAfterALostAnswerIsNoLoss, and one that finds evidence of a loss says so as often as it is asked.
func TestReleaseRepeatedAfterALostAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	e := newFaultStoreAt(clock.Now)
	l := newLocker(t, e, party.Config{})
	req := request("a", party.Exclusive("r"))
	req.Part, req.Order, req.Persist = "p", party.Order{Schedule: 1, Attempt: 1}, true
	_, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	e.set(nil, times(1, cutting(), of(kindSwap)))
	held, err := l.ReleaseHeld(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, Order: req.Order, Leaving: &req.Part})
	require.NoError(t, err)
	require.Equal(t, []string{"r"}, held, "its first copy released it")

	req.Order.Schedule = 2
	_, err = l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	clock.Advance(2 * time.Hour)
	_, err = newLocker(t, e, party.Config{}).Enter(t.Context(), request("b", party.Exclusive("r")), false)
	require.NoError(t, err)
	for range 2 {
		e.set(nil, times(1, cutting(), of(kindSwap)))
		held, err = l.ReleaseHeld(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, Order: req.Order})
		require.NoError(t, err)
		require.Empty(t, held, "b was let in")
	}
}

// TestRequestThatGivesUpLeavesAHoldThatAnotherEntered: its second resource is busy, and meanwhile another part entered, and
// left, the hold that it had begun on the first. It may keep that hold itself or not.
func TestRequestThatGivesUpLeavesAHoldThatAnotherEntered(t *testing.T) {
	t.Parallel()
	for name, persist := range map[string]bool{"it keeps": true, "it keeps nothing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFaultStore()
			l := newLocker(t, e, party.Config{})
			_, err := l.Enter(t.Context(), request("b", party.Exclusive("r/2")), false)
			require.NoError(t, err)
			other := request("a", party.Exclusive("r/1"))
			other.Persist = true
			e.set(nil, times(1, func(context.Context, command) error { // it finds it busy
				leases, err := l.Enter(t.Context(), other, false)
				require.NoError(t, err)
				return l.Leave(t.Context(), leases...)
			}, of(kindLoad), onResource("r/2"), not(onResource("r/1"))))
			req := request("a", party.Exclusive("r/1"), party.Exclusive("r/2"))
			req.Persist = persist
			_, err = l.Enter(t.Context(), req, false)
			require.ErrorIs(t, err, party.ErrBusy)
			require.NotZero(t, holdFence(e, "r/1"), "the other part relies on it")
			_, err = l.Enter(t.Context(), request("c", party.Exclusive("r/1")), false)
			require.ErrorIs(t, err, party.ErrBusy)
		})
	}
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
	_, err = l.Enter(t.Context(), request("b", party.Shared("r")), false)
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context()))
	require.Zero(t, holdFence(e, "r"))
}

// TestARequestThatHasTakenItsClaimUpIsNotWaitingAnyMore: giving up its place comes too late.
func TestARequestThatHasTakenItsClaimUpIsNotWaitingAnyMore(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewStore(time.Now)
	l := newLocker(t, e, party.Config{})
	other, err := l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.NoError(t, err)
	req := request("a", party.Exclusive("r"))
	req.Part, req.Order = "step", party.Order{Schedule: 1, Attempt: 1}
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, party.ErrBusy)
	place := party.Lease{Resource: "r", LockID: "a", Part: "step", Order: req.Order}
	require.NoError(t, l.Leave(t.Context(), other...))
	leases, err := l.Enter(t.Context(), req, true)
	require.NoError(t, err)
	require.NoError(t, l.LeaveQueue(t.Context(), place))
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err, "the part stands")
	require.NoError(t, l.Leave(t.Context(), leases...))
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.NoError(t, err)
	req.Order.Attempt++
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, party.ErrBusy)
	place.Order = req.Order
	require.NoError(t, l.LeaveQueue(t.Context(), place))
	require.Empty(t, e.Document("r").Waiters)
}

// Whoever sends a request again says so by its Call. Two attempts with the same order that do not
// know of each other, such as an activity that was delivered twice, must not both run.
func TestEnter_AnotherCallWithTheSameOrder_IsSuperseded(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	req := request("a", party.Exclusive("r"))
	req.Part, req.Order, req.Call = "step", party.Order{Schedule: 1, Attempt: 1}, "first"
	leases, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	again, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	require.Equal(t, leases[0].Fence, again[0].Fence)
	for _, call := range []string{"second", ""} {
		req.Call = call
		_, err = l.Enter(t.Context(), req, false)
		require.ErrorIs(t, err, party.ErrSuperseded)
	}
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err, "the part stands")
}

func TestASemaphoreOfNoPlacesIsRefused(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	_, err := l.Enter(t.Context(), request("a", party.SharedLimit("r", 0)), false)
	var invalid *party.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Request.Resources[0].Limit", invalid.Field)
	require.Equal(t, "0", invalid.Value)
	_, err = l.Enter(t.Context(), request("a", party.Shared("r")), false)
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
		_, err := l.Enter(t.Context(), req, true)
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

func TestRelease_PlainRequests_LaterOnesAreGranted(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	release := party.Release{LockID: "a", Resources: []string{"r"}, Order: party.LastAttempt(0)}
	first, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context(), release))
	require.NoError(t, first.Leave(t.Context()))
	require.NoError(t, l.Release(t.Context(), release), "its repetition")
	again, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}

func TestRelease_PlainRequestThatWaits_QueuesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
		holder, err := l.TryAcquire(t.Context(), request("holder", party.Exclusive("r")))
		require.NoError(t, err)
		granted := make(chan *party.Session)
		for _, lockID := range []string{"a", "b"} {
			go func() {
				s, err := l.Acquire(t.Context(), request(lockID, party.Exclusive("r")))
				assert.NoError(t, err)
				granted <- s
			}()
			synctest.Wait()
		}
		require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, Order: party.LastAttempt(0)}))
		require.NoError(t, holder.Release(t.Context()))
		for _, lockID := range []string{"b", "a"} {
			s := <-granted
			require.Equal(t, lockID, s.Leases()[0].LockID)
			require.NoError(t, s.Release(t.Context()))
		}
	})
}
