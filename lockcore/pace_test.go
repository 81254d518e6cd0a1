package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// step is a request of a workflow's step.
func step(lockID string, schedule uint32) lockcore.StepRequest {
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Run: "run", Part: "p", Order: lockcore.Order{Schedule: schedule, Attempt: 1}}, MaxWait: 2 * time.Second,
		Resources: []lockcore.Resource{lockcore.Exclusive("r")},
	}
}

// lasting has some holds of r begin and end, so that a Locker knows how long they last.
func lasting(t *testing.T, l *lockcore.Steps, each time.Duration) {
	t.Helper()
	for i := range 3 {
		leases := confirm(t, l, step(fmt.Sprint("before/", i), 1))
		elapse(each)
		require.NoError(t, l.Leave(t.Context(), leases...))
	}
}

// entering asks in the background, and sends when it was let in, or the error.
func entering(t *testing.T, l *lockcore.Steps, lockID string, each time.Duration) <-chan error {
	t.Helper()
	out := make(chan error, 1)
	go func() {
		leases, err := l.Enter(t.Context(), step(lockID, 1))
		out <- err
		if err == nil {
			elapse(each)
			_ = l.Leave(t.Context(), leases...)
		}
	}()
	synctest.Wait()
	return out
}

func TestEnter_ShortHolds_WaitsWhileItsGrantIsNear(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		const each = 50 * time.Millisecond
		lasting(t, l, each)
		var all []<-chan error
		for i := range 32 {
			all = append(all, entering(t, l, fmt.Sprint("step/", i), each))
		}
		for i, one := range all {
			select {
			case err := <-one:
				if i < 20 { // the twentieth waits for nineteen, in half of the time
					require.NoError(t, err, "%d", i)
				} else {
					require.ErrorIs(t, err, lockcore.ErrBusy, "%d", i)
				}
			case <-time.After(time.Second):
				t.Fatal("it waited too long: ", i)
			}
		}
		elapse(each)
	})
}

func TestEnter_GrantIsFar_DoesNotWait(t *testing.T) {
	type test struct {
		each time.Duration
		wait int
	}
	eachCase(t, map[string]test{
		"the turns of four come in half of the time": {200 * time.Millisecond, 4},
		"a place does not move for long":             {600 * time.Millisecond, 0},
	}, func(t *testing.T, l *lockcore.Steps, _ *faultStore, c test) {
		lasting(t, l, c.each)
		holder := confirm(t, l, step("holder", 1))
		var waiting []<-chan error
		for i := range c.wait {
			waiting = append(waiting, entering(t, l, fmt.Sprint("near/", i), 0))
		}
		began := time.Now()
		require.ErrorIs(t, <-entering(t, l, "far", 0), lockcore.ErrBusy)
		require.Zero(t, time.Since(began), "in virtual time")
		require.NoError(t, l.Leave(t.Context(), holder...))
		for _, one := range waiting {
			require.NoError(t, <-one)
		}
	})
}

func TestEnter_BehindMoreThanMayWait_DoesNotWait(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		l.LimitInlineWaits(2)
		lasting(t, l, 5*time.Millisecond)
		holder := confirm(t, l, step("holder", 1))
		for i := range 3 { // they have come and gone to wait elsewhere
			req := step(fmt.Sprint("parked/", i), 1)
			req.MaxWait = 0
			queue(t, l, req)
		}
		began := time.Now()
		require.ErrorIs(t, <-entering(t, l, "behind them", 0), lockcore.ErrBusy)
		require.Zero(t, time.Since(began), "in virtual time")
		require.NoError(t, l.Leave(t.Context(), holder...))
	})
}

func TestEnter_GrantIsLate_WaitsWhileThePositionMoves(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		lasting(t, l, 5*time.Millisecond)
		var all []<-chan error
		for i := range 6 {
			all = append(all, entering(t, l, fmt.Sprint("step/", i), 300*time.Millisecond))
		}
		began := time.Now()
		for i, one := range all {
			require.NoError(t, <-one, "%d", i)
		}
		require.InDelta(t, (1500 * time.Millisecond).Seconds(), time.Since(began).Seconds(), 0.1, "in virtual time")
		elapse(300 * time.Millisecond)
	})
}

func TestEnter_PositionDoesNotMove_StopsWaiting(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		lasting(t, l, 5*time.Millisecond)
		confirm(t, l, step("holder", 1))
		began := time.Now()
		require.ErrorIs(t, <-entering(t, l, "next", 0), lockcore.ErrBusy)
		require.InDelta(t, pace.PositionWait.Seconds()+pace.Poll.Seconds()/2, time.Since(began).Seconds(), pace.Poll.Seconds(), "in virtual time")
	})
}

// The write that grants the request is on its way when the wait ends. A request that gave up then would leave
// an unused grant, which keeps all others out until its TTL ends.
func TestEnter_GrantedWhileItGivesUp_Holds(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		leases := confirm(t, l, step("holder", 1))
		next := entering(t, l, "next", 0)
		elapse(pace.PositionWait - 10*time.Millisecond)
		db.set(times(1, func(context.Context, command) error { elapse(400 * time.Millisecond); return nil }, grants("next")), nil)
		require.NoError(t, l.Leave(t.Context(), leases...))
		require.NoError(t, <-next)
	})
}

// Nothing is known of how long holds last: one that is next in line waits a moment, and one further back does not.
func TestEnter_HoldsUnknown_OnlyTheNextWaits(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		holder := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
		next := entering(t, l, "next", 0)
		_, err := l.Enter(t.Context(), step("second", 1))
		busy := errorAs[*lockcore.BusyError](t, err)
		require.Equal(t, 2, busy.Position)
		elapse(300 * time.Millisecond)
		require.NoError(t, holder.Release(t.Context()))
		require.NoError(t, <-next)
	})
}

func TestEnter_MaxWait_IsSharedByAllResources(t *testing.T) {
	type test struct{ maxWait, ttl, want time.Duration }
	eachCase(t, map[string]test{
		"as it says":       {400 * time.Millisecond, 0, 400 * time.Millisecond},
		"a quarter of TTL": {2 * time.Second, 1400 * time.Millisecond, 350 * time.Millisecond},
	}, func(t *testing.T, l *lockcore.Steps, _ *faultStore, c test) {
		for i, resource := range []string{"a", "b"} {
			holder := tryAcquire(t, l, request("holder", lockcore.Exclusive(resource)))
			time.AfterFunc(time.Duration(i+1)*300*time.Millisecond, func() { _ = holder.Release(t.Context()) })
		}
		req := step("both", 1)
		req.Resources, req.MaxWait, req.TTL = []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b")}, c.maxWait, c.ttl
		began := time.Now()
		_, err := l.Enter(t.Context(), req)
		busy := errorAs[*lockcore.BusyError](t, err)
		require.Equal(t, "b", busy.Resource)
		require.Equal(t, c.want, time.Since(began), "in virtual time")
		elapse(time.Second)
	})
}

func TestEnter_LongHolds_DoesNotWait(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		lasting(t, l, 2*time.Second)
		confirm(t, l, step("holder", 1))
		began := time.Now()
		queue(t, l, step("next", 1))
		require.Less(t, time.Since(began), 100*time.Millisecond, "in virtual time")
	})
}

func TestLimitInlineWaits_MoreRequests_DoNotWait(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 2} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const each = 10 * time.Millisecond
				l, _ := inMemory(t, lockcore.Config{})
				l.LimitInlineWaits(most)
				l.LimitInlineWaits(7) // no more than before
				lasting(t, l, each)
				var all []<-chan error
				for i := range 5 {
					all = append(all, entering(t, l, fmt.Sprint("step/", i), each))
				}
				for i, lockID := range []string{"holder of another", "next there"} { // the limit is one for all resources
					req, began := step(lockID, 1), time.Now()
					req.Resources = []lockcore.Resource{lockcore.Exclusive("another")}
					_, err := l.Enter(t.Context(), req)
					require.Equal(t, i == 1, errors.Is(err, lockcore.ErrBusy), err)
					require.Zero(t, time.Since(began), "in virtual time")
				}
				for i, one := range all {
					if err := <-one; i <= most {
						require.NoError(t, err, "%d", i)
					} else {
						require.ErrorIs(t, err, lockcore.ErrBusy, "%d", i)
					}
				}
				elapse(each)
			})
		})
	}
}

func TestOnWakeup_ShortHolds_CallsParkedRequestsEarly(t *testing.T) {
	type test struct {
		each time.Duration
		most int
		want int
	}
	eachCase(t, map[string]test{
		"short holds": {50 * time.Millisecond, 25, 4}, "long holds": {2 * time.Second, 25, 0},
		"no room to wait": {50 * time.Millisecond, 0, 0}, "room for two": {50 * time.Millisecond, 2, 2},
	}, func(t *testing.T, l *lockcore.Steps, _ *faultStore, c test) {
		l.LimitInlineWaits(c.most)
		var early []string
		defer l.OnWakeup(func(w lockcore.Wakeup) {
			if w.Early {
				early = append(early, w.LockID)
			}
		})()
		lasting(t, l, c.each)
		holder := confirm(t, l, step("holder", 1))
		for i := range 8 {
			req := step(fmt.Sprint("step/", i), 1)
			req.MaxWait = 0
			queue(t, l, req)
		}
		elapse(c.each)
		require.Empty(t, early)
		require.NoError(t, l.Leave(t.Context(), holder...))
		require.Len(t, early, c.want, "the first has a claim, and these come next: %v", early)
	})
}

// The next holder is in the same process, which learns of the release without a read. Before the first
// hand-over the process does not know that.
func TestWatcher_HolderInTheSameProcess_ReadsRarely(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		const each = 40 * time.Millisecond
		lasting(t, l, each)
		var all []<-chan error
		for i := range 20 {
			all = append(all, entering(t, l, fmt.Sprint("step/", i), each))
		}
		elapse(each + each/2)
		began, before := time.Now(), e.count(of(kindLook))
		for _, one := range all {
			require.NoError(t, <-one)
		}
		looks := e.count(of(kindLook)) - before
		// One more, since a read during a hand-over may find neither the next holder nor the previous one.
		require.LessOrEqual(t, looks, int(time.Since(began)/pace.Poll)+2, "in virtual time")
		elapse(each)
	})
}

// A saga's lock is released by the process that runs its workflow.
func TestWatcher_KeptHold_IsReadOften(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		elsewhere := newLocker(t, e.Store, lockcore.Config{})
		lasting(t, l, 20*time.Millisecond)
		before := confirm(t, l, step("before", 1))
		saga := make(chan error, 1)
		go func() {
			req := step("saga", 1)
			req.Keep = true
			leases, err := l.Enter(t.Context(), req)
			saga <- errors.Join(err, l.Leave(t.Context(), leases...))
		}()
		synctest.Wait()
		next := entering(t, l, "next", 0)
		require.NoError(t, l.Leave(t.Context(), before...))
		require.NoError(t, <-saga)
		looks := e.count(of(kindLook))
		elapse(200 * time.Millisecond)
		require.Greater(t, e.count(of(kindLook)), looks+2)
		require.NoError(t, elsewhere.Release(t.Context(), lockcore.Release{LockID: "saga", Run: "run", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}))
		require.NoError(t, <-next)
	})
}

func TestWatcher_LongHold_IsReadLessOften(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		elsewhere := newLocker(t, e.Store, lockcore.Config{})
		lasting(t, l, 5*time.Millisecond)
		holder := tryAcquire(t, elsewhere, request("holder", lockcore.Exclusive("r")))
		next := acquireLater(t.Context(), l, request("next", lockcore.Exclusive("r")))
		elapse(30 * time.Second)
		require.LessOrEqual(t, e.count(of(kindLook)), 30*4+20, "four a second, and some more at first")
		require.NoError(t, holder.Release(t.Context()))
		got := <-next
		require.NoError(t, got.err)
		require.NoError(t, got.session.Release(t.Context()))
	})
}

// The waiters for other resources are woken although writes of one document hang.
func TestWatcher_WritesOfOneDocumentHang_OthersAreWoken(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		other := newLocker(t, db, lockcore.Config{})
		dead := request("dead", lockcore.Exclusive("a"))
		dead.TTL = time.Second
		enter(t, other, dead)
		holder := enter(t, other, request("holder", lockcore.Exclusive("b")))
		waiting, stop := context.WithCancel(t.Context())
		defer stop()
		woken := make(chan time.Time, 2)
		for _, resource := range []string{"a", "b"} {
			go func() {
				if _, err := l.Acquire(waiting, request("waiter", lockcore.Exclusive(resource))); err == nil {
					woken <- time.Now()
				}
			}()
		}
		elapse(500 * time.Millisecond)
		db.set(hanging(of(kindSwap), onResource("a")), nil)
		elapse(time.Second)
		began := time.Now()
		leave(t, other, holder...)
		require.Less(t, (<-woken).Sub(began), time.Second)
		db.set(nil, nil)
	})
}
