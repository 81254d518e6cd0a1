package party_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

func TestExclusiveKeepsOthersOut(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	a, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)

	_, err = l.TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	var busy *party.BusyError
	require.ErrorAs(t, err, &busy)
	require.ErrorIs(t, err, party.ErrBusy)
	require.Equal(t, "r", busy.Resource)
	require.Len(t, busy.Holders, 1)
	require.Equal(t, "a", busy.Holders[0].LockID)
	require.Greater(t, busy.RetryIn, 20*time.Second)
	_, err = l.TryAcquire(t.Context(), request("b", party.Shared("r")))
	require.ErrorIs(t, err, party.ErrBusy)

	require.NoError(t, a.Release(t.Context()))
	require.ErrorIs(t, context.Cause(a.Context()), party.ErrEnded)
	b, err := l.TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	require.NoError(t, err)
	require.Greater(t, b.Leases()[0].Fence, a.Leases()[0].Fence)
	require.NoError(t, b.Release(t.Context()))
}

func TestSharedGoTogetherUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	for i := range 2 {
		_, err := l.Enter(t.Context(), request(fmt.Sprint(i), party.SharedLimit("r", 2)), false)
		require.NoError(t, err)
	}
	_, err := l.Enter(t.Context(), request("third", party.SharedLimit("r", 2)), false)
	require.ErrorIs(t, err, party.ErrBusy)
	_, err = l.Enter(t.Context(), request("third", party.Shared("r")), false)
	require.NoError(t, err)
	_, err = l.Enter(t.Context(), request("writer", party.Exclusive("r")), false)
	require.ErrorIs(t, err, party.ErrBusy)
}

func TestNothingIsTakenWhenOneOfSeveralIsBusy(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	_, err := l.Enter(t.Context(), request("other", party.Exclusive("b")), false)
	require.NoError(t, err)
	for _, keep := range []bool{false, true} {
		req := request("mine", party.Exclusive("c"), party.Exclusive("b"), party.Exclusive("a"))
		req.Persist = keep
		_, err = l.Enter(t.Context(), req, false)
		require.ErrorIs(t, err, party.ErrBusy)
		for _, name := range []string{"a", "c"} {
			leases, err := l.Enter(t.Context(), request("probe", party.Exclusive(name)), false)
			require.NoError(t, err, "%s must be free", name)
			require.NoError(t, l.Leave(t.Context(), leases...))
		}
	}
}

// A killed process says nothing any more: its lock is free when its promise has ended, and not before.
func TestExpiredLockIsTakenOverWithAGreaterFenceAndTheOwnerLearnsOfIt(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	req := request("dead", party.Exclusive("r"))
	req.TTL = 300 * time.Millisecond
	dead, err := l.Enter(t.Context(), req, false)
	require.NoError(t, err)
	next, err := l.Acquire(t.Context(), request("next", party.Exclusive("r")))
	require.NoError(t, err)
	require.False(t, dead[0].Valid(), "nobody may be let in while the old lease is still trusted")
	require.Greater(t, next.Leases()[0].Fence, dead[0].Fence)

	_, err = l.Renew(t.Context(), dead...)
	var lost *party.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, "next", lost.By)
	require.NoError(t, l.Leave(t.Context(), dead...), "leaving what is gone is no error")
	_, err = l.Renew(t.Context(), next.Leases()...)
	require.NoError(t, err, "and takes nothing from the one that holds now")
	require.NoError(t, next.Release(t.Context()))
}

func TestOwnerThatComesBackBeforeAnybodyElseGoesOn(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{TTL: 100 * time.Millisecond})
	leases, err := l.Enter(t.Context(), request("a", party.Exclusive("r")), false)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !leases[0].Valid() }, 5*time.Second, time.Millisecond, "the promise ends")
	renewed, err := l.Renew(t.Context(), leases...)
	require.NoError(t, err)
	require.Equal(t, leases[0].Fence, renewed[0].Fence)
	require.Equal(t, 100*time.Millisecond, renewed[0].Left)
}

func TestSessionIsRenewedAndCancelledWithTheCauseWhenLost(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{TTL: 9 * time.Second}) // on a database that may be busy for some of them
	s, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	first := s.Leases()[0]
	require.Eventually(t, func() bool { return !first.Valid() }, time.Minute, 10*time.Millisecond, "the first promise ends")
	require.NoError(t, s.Context().Err(), "and was renewed before")
	require.True(t, s.Leases()[0].Valid())
	_, err = l.TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy)

	// Somebody else releases it: nothing that the session could have done.
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, FirstFence: first.FirstFence}))
	<-s.Context().Done()
	require.ErrorIs(t, context.Cause(s.Context()), party.ErrLost)
	require.NoError(t, s.Release(t.Context()))
}

func TestWaitThatIsCancelledLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	holder, err := l.TryAcquire(t.Context(), request("holder", party.Exclusive("b")))
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan error)
	go func() {
		_, err := l.Acquire(ctx, request("waiter", party.Exclusive("a"), party.Exclusive("b")))
		gone <- err
	}()
	require.Eventually(t, func() bool { return l.waiting(t, "b") == 1 }, 10*time.Second, 5*time.Millisecond, "it queues")
	why := fmt.Errorf("no longer needed")
	cancel(why)
	require.ErrorIs(t, <-gone, why)
	require.Zero(t, l.waiting(t, "b"))
	free, err := l.TryAcquire(t.Context(), request("other", party.Exclusive("a")))
	require.NoError(t, err)
	require.NoError(t, free.Release(t.Context()))
	require.NoError(t, holder.Release(t.Context()))
}

func TestMaxWaitEndsInTheBusyErrorThatSaysWho(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	_, err := l.Enter(t.Context(), request("holder", party.Exclusive("r")), false)
	require.NoError(t, err)
	req := request("waiter", party.Exclusive("r"))
	req.MaxWait = 100 * time.Millisecond
	_, err = l.Acquire(t.Context(), req)
	var busy *party.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "holder", busy.Holders[0].LockID)
	require.Zero(t, l.waiting(t, "r"))
}

func TestWaitersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	holder, err := l.TryAcquire(t.Context(), request("holder", party.Exclusive("r")))
	require.NoError(t, err)
	const n = 8
	var order []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := l.Acquire(t.Context(), request(fmt.Sprint(i), party.Exclusive("r")))
			if err == nil {
				order = append(order, i) // the lock guards it; the race detector looks on
				err = s.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool { return l.waiting(t, "r") == i+1 }, 10*time.Second, 5*time.Millisecond, "%d queues", i)
	}
	require.NoError(t, holder.Release(t.Context()))
	wg.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

func TestNeverTwoAtATime(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for j := range 10 {
				s, err := l.Acquire(t.Context(), request(fmt.Sprintf("%d/%d", i, j), party.Exclusive("r")))
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				inside.Add(-1)
				if err := s.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
}

// The hold of a saga: steps come and go, and between them nobody gets in.
func TestKeptHoldStandsBetweenStepsUntilItIsReleased(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	step := func(part string, schedule uint32, held bool) []party.Lease {
		res := party.Exclusive("r")
		res.Held = held
		leases, err := l.Enter(t.Context(), party.Request{
			LockID: "saga", Part: part, Order: party.Order{Schedule: schedule, Attempt: 1}, Persist: true, Resources: []party.Resource{res},
		}, false)
		require.NoError(t, err)
		return leases
	}
	first := step("debit", 1, false)
	require.NoError(t, l.Leave(t.Context(), first...))
	_, err := l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.ErrorIs(t, err, party.ErrBusy)
	second := step("credit", 2, true)
	require.True(t, second[0].Joined)
	require.Equal(t, first[0].Fence, second[0].Fence)
	require.NoError(t, l.Leave(t.Context(), second...))

	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "saga", Resources: []string{"r"}, Order: party.LastAttempt(2)}))
	_, err = l.Enter(t.Context(), party.Request{
		LockID: "saga", Part: "credit", Order: party.Order{Schedule: 2, Attempt: 7}, Persist: true, Resources: []party.Resource{party.Exclusive("r")},
	}, false)
	require.ErrorIs(t, err, party.ErrSuperseded, "what arrives late takes nothing")
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.NoError(t, err)
	res := party.Exclusive("r")
	res.Held = true
	_, err = l.Enter(t.Context(), party.Request{LockID: "saga", Part: "late", Order: party.Order{Schedule: 3}, Persist: true, Resources: []party.Resource{res}}, false)
	require.ErrorIs(t, err, party.ErrLost)
}

// The next attempt of a step supersedes the one whose worker died: a new fence, and the old one can do no
// more. Until the old one's promise has ended nobody else gets in, even after a release.
func TestNextAttemptSupersedesAndTheOldOneDrains(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	attempt := func(n uint32) []party.Lease {
		leases, err := l.Enter(t.Context(), party.Request{
			LockID: "saga", Part: "step", Order: party.Order{Schedule: 1, Attempt: n}, Persist: true, Resources: []party.Resource{party.Exclusive("r")},
		}, false)
		require.NoError(t, err)
		return leases
	}
	old, next := attempt(1), attempt(2)
	require.Greater(t, next[0].Fence, old[0].Fence)
	_, err := l.Renew(t.Context(), old...)
	require.ErrorIs(t, err, party.ErrLost)
	require.NoError(t, l.Leave(t.Context(), next...))
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "saga", Resources: []string{"r"}, Order: party.LastAttempt(1)}))
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.ErrorIs(t, err, party.ErrBusy, "the zombie may still trust its lease")
	require.NoError(t, l.Leave(t.Context(), old...))
	_, err = l.Enter(t.Context(), request("other", party.Exclusive("r")), false)
	require.NoError(t, err)
}

// Requests that are the first of a resource at the same time both want to make its document.
func TestFirstRequestsOfOneResourceAtTheSameTime(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	for round := range 20 {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				_, err := l.Enter(t.Context(), request(fmt.Sprint(i), party.Exclusive(fmt.Sprintf("r%d", round))), false)
				switch {
				case err == nil:
					granted.Add(1)
				case !errors.Is(err, party.ErrBusy):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, granted.Load())
	}
}
