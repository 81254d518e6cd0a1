package lockcore_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// holdFence is the fence with which the hold of "a" began, and 0 if it has none.
func holdFence(e interface{ Document(string) rules.Document }, resource string) int64 {
	d := e.Document(resource)
	return d.HoldFence("a")
}

// TestOrdersComeFromNoClock has two processes of one lock ID, of which the first is years ahead of the other: what it asked
// for and released must not make the other's requests late.
func TestOrdersComeFromNoClock(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	ahead, err := on(t, e, lockcore.Config{}).TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	require.NoError(t, ahead.Release(t.Context()))
	synctest.Test(t, func(t *testing.T) { // in which it is the year 2000
		s, err := on(t, lockcoretest.NewEngine(time.Now), lockcore.Config{}).TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
		behind := on(t, e, lockcore.Config{})
		s, err = behind.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
		require.Zero(t, holdFence(e, "r"), "its release released it")
	})
}

// TestReleaseOfASessionEndsNothingThatWasGrantedSince repeats what a session's release sent, when another session of the
// lock ID holds.
func TestReleaseOfASessionEndsNothingThatWasGrantedSince(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	first, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	lease := first.Leases()[0]
	require.NoError(t, first.Release(t.Context()))
	second, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, FirstFence: lease.FirstFence}))
	require.Equal(t, second.Leases()[0].FirstFence, holdFence(e, "r"))
}

// TestForceReleaseRepeatedEndsNothingThatWasGrantedSince, and one that does not wait frees the resource although its holder
// was promised hours.
func TestForceReleaseRepeatedEndsNothingThatWasGrantedSince(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	req := one("a", lockcore.Exclusive("r"))
	req.TTL = 6 * time.Hour
	dead, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	force := lockcore.Release{Force: true, LockID: "a", Resources: []string{"r"}, FirstFence: dead[0].FirstFence, Reason: "it hangs"}
	held, err := l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	require.Equal(t, []string{"r"}, held)
	_, err = l.Enter(t.Context(), one("b", lockcore.Exclusive("r")), false)
	require.ErrorContains(t, err, "draining", "it may still work")

	force.Now = true
	_, err = l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	other, err := l.TryAcquire(t.Context(), one("b", lockcore.Exclusive("r")))
	require.NoError(t, err, "it does not wait for the holder, which is dead")
	require.NoError(t, other.Release(t.Context()))
	again, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	_, err = l.ReleaseHeld(t.Context(), force)
	require.NoError(t, err)
	require.Equal(t, again.Leases()[0].FirstFence, holdFence(e, "r"))
}

// TestReleaseRepeatedAfterALostAnswerIsNoLoss, and one that finds evidence of a loss says so as often as it is asked.
func TestReleaseRepeatedAfterALostAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	e := &deafEngine{Engine: lockcoretest.NewEngine(clock.Now)}
	l := on(t, e, lockcore.Config{})
	req := one("a", lockcore.Exclusive("r"))
	req.Part, req.Order, req.Persist = "p", lockcore.Order{Schedule: 1, Attempt: 1}, true
	_, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	e.lost = 1
	held, err := l.ReleaseHeld(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: req.Order, Leaving: &req.Part})
	require.NoError(t, err)
	require.Equal(t, []string{"r"}, held, "its first copy released it")

	req.Order.Schedule = 2
	_, err = l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	clock.Advance(2 * time.Hour)
	_, err = on(t, e, lockcore.Config{}).Enter(t.Context(), one("b", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	for range 2 {
		e.lost = 1
		held, err = l.ReleaseHeld(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: req.Order})
		require.NoError(t, err)
		require.Empty(t, held, "b was let in")
	}
}

// deafEngine loses the answers to so many releases.
type deafEngine struct {
	*lockcoretest.Engine
	lost int
}

func (e *deafEngine) Release(ctx context.Context, op rules.Release) (rules.Document, error) {
	d, err := e.Engine.Release(ctx, op)
	if e.lost > 0 {
		e.lost--
		return rules.Document{}, errCut
	}
	return d, err
}

// TestRequestThatGivesUpLeavesAHoldThatAnotherEntered: its second resource is busy, and meanwhile another part entered, and
// left, the hold that it had begun on the first. It may keep that hold itself or not.
func TestRequestThatGivesUpLeavesAHoldThatAnotherEntered(t *testing.T) {
	t.Parallel()
	for name, persist := range map[string]bool{"it keeps": true, "it keeps nothing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := hooked()
			l := on(t, e, lockcore.Config{})
			_, err := l.Enter(t.Context(), one("b", lockcore.Exclusive("r/2")), false)
			require.NoError(t, err)
			other := one("a", lockcore.Exclusive("r/1"))
			other.Persist = true
			e.acquired = func(op rules.Acquire, d rules.Document) {
				if op.Resource != "r/2" || d.Last.Outcome != rules.Busy {
					return
				}
				e.acquired = nil
				leases, err := l.Enter(t.Context(), other, false)
				require.NoError(t, err)
				require.NoError(t, l.Leave(t.Context(), leases...))
			}
			req := one("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"))
			req.Persist = persist
			_, err = l.Enter(t.Context(), req, false)
			require.ErrorIs(t, err, lockcore.ErrBusy)
			require.NotZero(t, holdFence(e, "r/1"), "the other part relies on it")
			_, err = l.Enter(t.Context(), one("c", lockcore.Exclusive("r/1")), false)
			require.ErrorIs(t, err, lockcore.ErrBusy)
		})
	}
}

// TestUpgradeThatWasGrantedUnheardIsTakenBack: the session goes on in shared mode, under the order that it was granted.
func TestUpgradeThatWasGrantedUnheardIsTakenBack(t *testing.T) {
	t.Parallel()
	e := &unheardEngine{Engine: lockcoretest.NewEngine(time.Now)}
	l := on(t, e, lockcore.Config{})
	s, err := l.TryAcquire(t.Context(), one("a", lockcore.Shared("r")))
	require.NoError(t, err)
	e.deaf = true
	require.ErrorIs(t, s.Upgrade(t.Context(), "r"), lockcore.ErrUnknownOutcome)
	e.deaf = false
	require.Equal(t, lockcore.ModeShared, s.Leases()[0].Mode)
	leases, err := l.Renew(t.Context(), s.Leases()...)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	_, err = l.Enter(t.Context(), one("b", lockcore.Shared("r")), false)
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context()))
	require.Zero(t, holdFence(e, "r"))
}

// unheardEngine does what it is asked to do, and while it is deaf its answers to acquires are lost.
type unheardEngine struct {
	*lockcoretest.Engine
	deaf bool
}

func (e *unheardEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	d, err := e.Engine.Acquire(ctx, op)
	if e.deaf {
		return rules.Document{}, errCut
	}
	return d, err
}

// TestARequestThatHasTakenItsClaimUpIsNotWaitingAnyMore: giving up its place comes too late.
func TestARequestThatHasTakenItsClaimUpIsNotWaitingAnyMore(t *testing.T) {
	t.Parallel()
	e := lockcoretest.NewEngine(time.Now)
	l := on(t, e, lockcore.Config{})
	other, err := l.Enter(t.Context(), one("other", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	req := one("a", lockcore.Exclusive("r"))
	req.Part, req.Order = "step", lockcore.Order{Schedule: 1, Attempt: 1}
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	place := lockcore.Lease{Resource: "r", LockID: "a", Part: "step", Order: req.Order}
	require.NoError(t, l.Leave(t.Context(), other...))
	leases, err := l.Enter(t.Context(), req, true)
	require.NoError(t, err)
	require.NoError(t, l.LeaveQueue(t.Context(), place))
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err, "the part stands")
	require.NoError(t, l.Leave(t.Context(), leases...))
	_, err = l.Enter(t.Context(), one("other", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	req.Order.Attempt++
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	place.Order = req.Order
	require.NoError(t, l.LeaveQueue(t.Context(), place))
	require.Empty(t, e.Document("r").Waiters)
}

// TestAFirstRequestDoesNotShareAPart that stands by its order.
func TestAFirstRequestDoesNotShareAPart(t *testing.T) {
	t.Parallel()
	l := on(t, lockcoretest.NewEngine(time.Now), lockcore.Config{})
	req := one("a", lockcore.Exclusive("r"))
	req.Part, req.Order, req.First = "step", lockcore.Order{Schedule: 1, Attempt: 1}, true
	leases, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	_, err = l.Enter(t.Context(), req, false)
	require.ErrorIs(t, err, lockcore.ErrSuperseded)
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err, "the part stands")
	req.First = false
	_, err = l.Enter(t.Context(), req, false)
	require.NoError(t, err)
}

func TestASemaphoreOfNoPlacesIsRefused(t *testing.T) {
	t.Parallel()
	l := on(t, lockcoretest.NewEngine(time.Now), lockcore.Config{})
	_, err := l.Enter(t.Context(), one("a", lockcore.SharedLimit("r", 0)), false)
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Request.Resources[0].Limit", invalid.Field)
	require.Equal(t, "0", invalid.Value)
	_, err = l.Enter(t.Context(), one("a", lockcore.Shared("r")), false)
	require.NoError(t, err)
}

// sentEngine fails the test at the first command.
type sentEngine struct {
	*lockcoretest.Engine
	t *testing.T
}

func (e sentEngine) Acquire(context.Context, rules.Acquire) (rules.Document, error) {
	e.t.Error("a request was sent")
	return rules.Document{}, errCut
}

func (e sentEngine) Release(context.Context, rules.Release) (rules.Document, error) {
	e.t.Error("a release was sent")
	return rules.Document{}, errCut
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
	// All plain requests have such orders: it would end those that others of the lock ID made.
	plain := lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.Order{Attempt: 1}}
	refused(l.Release(t.Context(), plain), "Release.Order", "0.1")
}
