package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// run is a request of one part of a workflow's run, which is kept as between the steps of a saga.
func run(label, part string, changes ...func(*party.Request)) party.Request {
	req := party.Request{
		LockID: "w", Run: label, Part: part, Order: party.Order{Schedule: 1, Attempt: 1}, Persist: true, Resources: []party.Resource{party.Exclusive("r")},
	}
	for _, change := range changes {
		change(&req)
	}
	return req
}

func takeOver(label string) func(*party.Request) {
	return func(req *party.Request) { req.TakeOver = label }
}

func TestTheNextRunTakesOverWhatTheOneBeforeKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
		before, err := l.Enter(t.Context(), run("one", "step"), false)
		require.NoError(t, err)
		require.NoError(t, l.Leave(t.Context(), before...))
		_, err = l.Enter(t.Context(), run("two", "step 2"), false)
		var other *party.OtherRunError
		require.ErrorAs(t, err, &other)
		require.ErrorIs(t, err, party.ErrOtherRun)
		require.Equal(t, party.OtherRunError{Resource: "r", LockID: "w", Run: "two", Other: "one"}, *other)
		after, err := l.Enter(t.Context(), run("two", "step 2", takeOver(other.Other)), false)
		require.NoError(t, err)
		require.True(t, after[0].Joined)
		require.Greater(t, after[0].Fence, before[0].Fence)
		_, err = l.Enter(t.Context(), run("one", "step 3", takeOver("two")), false)
		require.ErrorIs(t, err, party.ErrOtherRun, "a label that was replaced never returns")
		held, err := l.ReleaseHeld(t.Context(), party.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: party.LastAttempt(9)})
		require.NoError(t, err)
		require.NotEmpty(t, held, "nothing says that it was lost")
		_, err = l.Enter(t.Context(), run("two", "step 4"), false)
		require.NoError(t, err, "the release of the run before ended nothing")
	})
}

// TestAStepThatStillRunsKeepsItsCompensationWaiting although their workflow holds the lock.
func TestAStepThatStillRunsKeepsItsCompensationWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
		step, err := l.Acquire(t.Context(), run("one", "step"))
		require.NoError(t, err)
		began := time.Now()
		done := make(chan *party.Session)
		go func() {
			s, err := l.Acquire(context.WithoutCancel(t.Context()), run("one", "undo", func(req *party.Request) { req.Undo = []string{"step"} }))
			assert.NoError(t, err)
			done <- s
		}()
		<-step.Context().Done()
		require.ErrorIs(t, step.Lost(), party.ErrLost, "it is over")
		elapse(time.Second)
		select {
		case <-done:
			t.Fatal("the compensation runs beside its step")
		default:
		}
		require.NoError(t, l.Leave(t.Context(), step.Leases()...))
		undo := <-done
		require.Less(t, time.Since(began), time.Minute)
		require.Equal(t, []string{"step"}, undo.Leases()[0].Undone)
		_, err = l.Enter(t.Context(), run("one", "step", func(req *party.Request) { req.Order.Attempt = 2 }), false)
		require.ErrorIs(t, err, party.ErrSuperseded)
		require.ErrorContains(t, err, "a compensation undoes it")
		require.NoError(t, undo.Release(t.Context()))
	})
}

// TestAStepWithinItsWorkflowWaitsForTheOthersAlone is about a guard of scope step in a saga that keeps the resource.
func TestAStepWithinItsWorkflowWaitsForTheOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
		kept, err := l.Enter(t.Context(), run("one", "saga"), false)
		require.NoError(t, err)
		within := func(lockID string) party.Request {
			req := run("one", "", func(req *party.Request) { req.LockID, req.Within, req.Persist = lockID, "w", false })
			req.Part = lockID
			return req
		}
		done := make(chan *party.Session)
		for _, lockID := range []string{"w/1", "w/2"} {
			go func() {
				s, err := l.Acquire(context.WithoutCancel(t.Context()), within(lockID))
				assert.NoError(t, err)
				done <- s
			}()
		}
		stranger := make(chan struct{})
		go func() {
			defer close(stranger)
			s, err := l.Acquire(context.WithoutCancel(t.Context()), request("b", party.Exclusive("r")))
			if assert.NoError(t, err) {
				assert.NoError(t, s.Release(context.WithoutCancel(t.Context())))
			}
		}()
		synctest.Wait()
		require.NoError(t, l.Leave(t.Context(), kept...))
		for range 2 { // one after the other, and nobody else in between
			s := <-done
			synctest.Wait()
			select {
			case <-done:
				t.Fatal("two steps at once")
			case <-stranger:
				t.Fatal("somebody else came in between")
			default:
			}
			require.NoError(t, s.Release(t.Context()))
		}
		require.NoError(t, l.Release(t.Context(), party.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: party.LastAttempt(1)}))
		<-stranger
	})
}
