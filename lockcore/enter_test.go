package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// ofRun returns a request of a run of workflow "w", which keeps its hold between steps.
func ofRun(run, part string, changes ...func(*lockcore.StepRequest)) lockcore.StepRequest {
	req := numbered("w", lockcore.Exclusive("r"))
	req.Run, req.Part, req.Keep = run, part, true
	for _, change := range changes {
		change(&req)
	}
	return req
}

func TestEnter_OneOfSeveralIsBusy_TakesNothing(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	enter(t, l.Steps, request("other", lockcore.Exclusive("b")))
	for _, keep := range []bool{false, true} {
		req := request("mine", lockcore.Exclusive("c"), lockcore.Exclusive("b"), lockcore.Exclusive("a"))
		req.Keep = keep
		requireBusy(t, l.Steps, req)
		leave(t, l.Steps, enter(t, l.Steps, request("probe", lockcore.Exclusive("a"), lockcore.Exclusive("c")))...)
	}
}

// The second resource of a request is busy. Before the request gives back the first, another part enters and
// leaves the hold that it began there.
func TestEnter_GivesUpHoldThatAnotherJoined_KeepsIt(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		enter(t, l, request("b", lockcore.Exclusive("r/2")))
		req := request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"))
		req.Keep, req.MaxWait = true, time.Second
		gaveUp := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), req)
			gaveUp <- err
		}()
		synctest.Wait()
		requireWaiting(t, db, 1, "r/2")
		other := request("a", lockcore.Exclusive("r/1"))
		other.Keep = true
		leave(t, l, enter(t, l, other)...)
		require.ErrorIs(t, <-gaveUp, lockcore.ErrBusy)
		d := db.Document("r/1")
		require.NotZero(t, d.FirstFence("a"), "the other part relies on it")
		requireBusy(t, l, request("c", lockcore.Exclusive("r/1")))
	})
}

// The claim is made after the request has queued, and before it begins to wait.
func TestEnter_ClaimBeforeItWaits_IsFound(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	leases := enter(t, l, request("a", lockcore.Exclusive("r")))
	db.set(nil, times(1, func(ctx context.Context, _ command) error {
		return change(ctx, db.Store, rules.Leave{Resource: "r", Caller: rules.Caller{LockID: "a", Part: leases[0].Part, Order: 1}})
	}, queues("b")))
	req := numbered("b", lockcore.Exclusive("r"))
	req.MaxWait = 2 * time.Second
	confirm(t, l, req)
}

// Two attempts with the same order that do not know of each other, such as an activity that was
// delivered twice, must not both run. A caller that repeats a request names it by its Call.
func TestEnter_AnotherCallWithTheSameOrder_IsSuperseded(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	req := numbered("a", lockcore.Exclusive("r"))
	req.Call = "first"
	leases := enter(t, l, req)
	require.Equal(t, leases[0].Fence, enter(t, l, req)[0].Fence)
	for _, call := range []string{"second", ""} {
		req.Call = call
		_, err := l.TryEnter(t.Context(), req)
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
	}
	_, err := l.Renew(t.Context(), leases...)
	require.NoError(t, err)
}

func TestEnter_ManySupersededAttempts_DoNotPileUp(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, lockcore.Config{})
	req := numbered("saga", lockcore.Exclusive("r"))
	req.Keep = true
	for range 500 {
		confirm(t, l, req)
		req.Order.Attempt++
		clock.Advance(time.Minute)
	}
	require.Less(t, len(db.Document("r").Entries), 100)
}

func TestEnter_QueueIsFull_IsRefused(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{MaxWaiters: 2})
	enter(t, l, request("holder", lockcore.Exclusive("r")))
	for i := range 2 {
		require.Equal(t, i+1, queueBusy(t, l, numbered(fmt.Sprint(i), lockcore.Exclusive("r"))).Position)
	}
	before := db.Document("r")
	busy := queueBusy(t, l, numbered("one too many", lockcore.Exclusive("r")))
	require.ErrorIs(t, busy, lockcore.ErrQueueFull)
	require.ErrorIs(t, busy, lockcore.ErrBusy)
	require.Equal(t, 2, busy.Waiting)
	require.Zero(t, busy.Position)
	_, err := l.Acquire(t.Context(), request("one too many", lockcore.Exclusive("r")))
	require.ErrorIs(t, err, lockcore.ErrQueueFull, "Acquire does not wait for room in the queue")
	after := db.Document("r")
	require.Equal(t, before.Entries, after.Entries)
	require.Equal(t, before.Waiters, after.Waiters)
}

// Whether the code of a step may have run under the lock depends on the mode: a shared hold does not
// cover a request for the resource alone.
func TestEnter_Busy_ReportsSinceWhenItWasNotHeld(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	schedule := uint32(0)
	next := func(lockID string, res lockcore.Resource) lockcore.StepRequest {
		schedule++
		req := numbered(lockID, res)
		req.Part, req.Order.Schedule, req.Keep = fmt.Sprint("step ", schedule), schedule, true
		return req
	}
	for _, lockID := range []string{"a", "b"} {
		leave(t, l, enter(t, l, next(lockID, lockcore.Shared("r")))...)
	}
	require.NotZero(t, queueBusy(t, l, next("a", lockcore.Exclusive("r"))).NotHeldSince, "a holds the resource shared only")
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "b", Resources: []string{"r"}, Order: lockcore.LastAttempt(schedule)}))
	leave(t, l, confirm(t, l, next("a", lockcore.Exclusive("r")))...)
	require.NotZero(t, queueBusy(t, l, next("b", lockcore.Shared("r"))).NotHeldSince, "b has released it itself")
}

func TestEnter_AnotherRunHolds_NeedsTakeOver(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	before := enter(t, l, ofRun("one", "step"))
	leave(t, l, before...)
	_, err := l.TryEnter(t.Context(), ofRun("two", "step 2"))
	other := errorAs[*lockcore.OtherRunError](t, err)
	require.ErrorIs(t, err, lockcore.ErrOtherRun)
	require.Equal(t, lockcore.OtherRunError{Resource: "r", LockID: "w", Run: "two", Other: "one"}, *other)
	after := enter(t, l, ofRun("two", "step 2", func(req *lockcore.StepRequest) { req.TakeOver = "one" }))
	require.True(t, after[0].Joined)
	require.Greater(t, after[0].Fence, before[0].Fence)
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: lockcore.LastAttempt(9)}))
	enter(t, l, ofRun("two", "step 4")) // the release of run one ended nothing
}

// A step with a lock ID of its own keeps what it has while it waits for the rest. When it has all and
// its process dies, others are let in after its TTL.
func TestEnter_StepWithinLockID_HoldsEndWithItsParts(t *testing.T) {
	virtual(t, lockcore.Config{HoldTTL: 10 * time.Minute}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		step := numbered("w/1", lockcore.Exclusive("q"), lockcore.Exclusive("r"))
		step.Run, step.Within, step.Keep = "run", "w", true
		isFree := func(resource string) bool {
			session, err := l.TryAcquire(t.Context(), request("other", lockcore.Exclusive(resource)))
			if err == nil {
				require.NoError(t, session.Release(t.Context()))
			}
			return err == nil
		}
		blocker := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
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
