package party_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// ofRun returns a request of a run of workflow "w", which keeps its hold between steps.
func ofRun(label, part string, changes ...func(*party.Request)) party.Request {
	req := numbered("w", party.Exclusive("r"))
	req.Run, req.Part, req.Persist = label, part, true
	for _, change := range changes {
		change(&req)
	}
	return req
}

func TestEnter_OneOfSeveralIsBusy_TakesNothing(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	enter(t, l.Locker, request("other", party.Exclusive("b")))
	for _, persist := range []bool{false, true} {
		req := request("mine", party.Exclusive("c"), party.Exclusive("b"), party.Exclusive("a"))
		req.Persist = persist
		requireBusy(t, l.Locker, req)
		leave(t, l.Locker, enter(t, l.Locker, request("probe", party.Exclusive("a"), party.Exclusive("c")))...)
	}
}

// The second resource of a request is busy. Before the request gives back the first, another part enters and
// leaves the hold that it began there.
func TestEnter_GivesUpHoldThatAnotherJoined_KeepsIt(t *testing.T) {
	virtual(t, party.Config{}, func(t *testing.T, l *party.Locker, db *faultStore) {
		enter(t, l, request("b", party.Exclusive("r/2")))
		req := request("a", party.Exclusive("r/1"), party.Exclusive("r/2"))
		req.Persist, req.MaxWait = true, time.Second
		gaveUp := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), req)
			gaveUp <- err
		}()
		synctest.Wait()
		requireWaiting(t, db, 1, "r/2")
		other := request("a", party.Exclusive("r/1"))
		other.Persist = true
		leave(t, l, enter(t, l, other)...)
		require.ErrorIs(t, <-gaveUp, party.ErrBusy)
		d := db.Document("r/1")
		require.NotZero(t, d.HoldFence("a"), "the other part relies on it")
		requireBusy(t, l, request("c", party.Exclusive("r/1")))
	})
}

// The claim is made after the request has queued, and before it begins to wait.
func TestEnter_ClaimBeforeItWaits_IsFound(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, party.Config{})
	leases := enter(t, l, request("a", party.Exclusive("r")))
	db.set(nil, times(1, func(ctx context.Context, _ command) error {
		return change(ctx, db.Store, rules.Leave{Resource: "r", LockID: "a", Part: leases[0].Part, Order: 1})
	}, queues("b")))
	req := numbered("b", party.Exclusive("r"))
	req.MaxWait = 2 * time.Second
	confirm(t, l, req)
}

// Two attempts with the same order that do not know of each other, such as an activity that was
// delivered twice, must not both run. A caller that repeats a request names it by its Call.
func TestEnter_AnotherCallWithTheSameOrder_IsSuperseded(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	req := numbered("a", party.Exclusive("r"))
	req.Call = "first"
	leases := enter(t, l, req)
	require.Equal(t, leases[0].Fence, enter(t, l, req)[0].Fence)
	for _, call := range []string{"second", ""} {
		req.Call = call
		_, err := l.TryEnter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrSuperseded)
	}
	_, err := l.Renew(t.Context(), leases...)
	require.NoError(t, err)
}

func TestEnter_ManySupersededAttempts_DoNotPileUp(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, party.Config{})
	req := numbered("saga", party.Exclusive("r"))
	req.Persist = true
	for range 500 {
		confirm(t, l, req)
		req.Order.Attempt++
		clock.Advance(time.Minute)
	}
	require.Less(t, len(db.Document("r").Entries), 100)
}

func TestEnter_QueueIsFull_IsRefused(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, party.Config{MaxWaiters: 2})
	enter(t, l, request("holder", party.Exclusive("r")))
	for i := range 2 {
		require.Equal(t, i+1, queueBusy(t, l, numbered(fmt.Sprint(i), party.Exclusive("r"))).Position)
	}
	before := db.Document("r")
	busy := queueBusy(t, l, numbered("one too many", party.Exclusive("r")))
	require.ErrorIs(t, busy, party.ErrQueueFull)
	require.ErrorIs(t, busy, party.ErrBusy)
	require.Equal(t, 2, busy.Waiting)
	require.Zero(t, busy.Position)
	_, err := l.Acquire(t.Context(), request("one too many", party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrQueueFull, "Acquire does not wait for room in the queue")
	after := db.Document("r")
	require.Equal(t, before.Entries, after.Entries)
	require.Equal(t, before.Waiters, after.Waiters)
}

// Whether the code of a step may have run under the lock depends on the mode: a shared hold does not
// cover a request for the resource alone.
func TestEnter_Busy_ReportsSinceWhenItWasNotHeld(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	schedule := uint32(0)
	next := func(lockID string, res party.Resource) party.Request {
		schedule++
		req := numbered(lockID, res)
		req.Part, req.Order.Schedule, req.Persist = fmt.Sprint("step ", schedule), schedule, true
		return req
	}
	for _, lockID := range []string{"a", "b"} {
		leave(t, l, enter(t, l, next(lockID, party.Shared("r")))...)
	}
	require.NotZero(t, queueBusy(t, l, next("a", party.Exclusive("r"))).NotHeldSince, "a holds the resource shared only")
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "b", Resources: []string{"r"}, Order: party.LastAttempt(schedule)}))
	leave(t, l, confirm(t, l, next("a", party.Exclusive("r")))...)
	require.NotZero(t, queueBusy(t, l, next("b", party.Shared("r"))).NotHeldSince, "b has released it itself")
}

func TestEnter_AnotherRunHolds_NeedsTakeOver(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	before := enter(t, l, ofRun("one", "step"))
	leave(t, l, before...)
	_, err := l.TryEnter(t.Context(), ofRun("two", "step 2"))
	other := errorAs[*party.OtherRunError](t, err)
	require.ErrorIs(t, err, party.ErrOtherRun)
	require.Equal(t, party.OtherRunError{Resource: "r", LockID: "w", Run: "two", Other: "one"}, *other)
	after := enter(t, l, ofRun("two", "step 2", func(req *party.Request) { req.TakeOver = "one" }))
	require.True(t, after[0].Joined)
	require.Greater(t, after[0].Fence, before[0].Fence)
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: party.LastAttempt(9)}))
	enter(t, l, ofRun("two", "step 4")) // the release of run one ended nothing
}

// A step with a lock ID of its own keeps what it has while it waits for the rest. When it has all and
// its process dies, others are let in after its TTL.
func TestEnter_StepWithinLockID_HoldsEndWithItsParts(t *testing.T) {
	virtual(t, party.Config{HoldTTL: 10 * time.Minute}, func(t *testing.T, l *party.Locker, _ *faultStore) {
		step := numbered("w/1", party.Exclusive("q"), party.Exclusive("r"))
		step.Run, step.Within, step.Persist = "run", "w", true
		isFree := func(resource string) bool {
			session, err := l.TryAcquire(t.Context(), request("other", party.Exclusive(resource)))
			if err == nil {
				require.NoError(t, session.Release(t.Context()))
			}
			return err == nil
		}
		blocker := tryAcquire(t, l, request("a", party.Exclusive("r")))
		queue(t, l, step)
		elapse(5 * time.Minute)
		require.False(t, isFree("q"), "the step waits for r")
		require.NoError(t, blocker.Release(t.Context()))
		step.Order.Attempt = 2
		held := l.NewSession(t.Context(), confirm(t, l, step))
		elapse(5 * time.Minute)
		require.False(t, isFree("q") || isFree("r"), "the session renews both")
		require.NoError(t, held.Leave(t.Context()))

		step.Order.Attempt = 3
		confirm(t, l, step) // its process dies
		elapse(20 * time.Second)
		require.False(t, isFree("q"))
		elapse(11 * time.Second)
		require.True(t, isFree("q") && isFree("r"), "the TTL of 30 s is over")
	})
}
