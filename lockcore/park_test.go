package lockcore_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// parked is a Locker with a listener, as the waits of workflows need it.
type parked struct {
	*lockcore.Steps
	db    *faultStore
	wakes chan lockcore.Wakeup
}

func listening(t *testing.T, l *lockcore.Steps, db *faultStore) *parked {
	t.Helper()
	p := &parked{Steps: l.Steps(), db: db, wakes: make(chan lockcore.Wakeup, 100)}
	t.Cleanup(l.OnWakeup(func(w lockcore.Wakeup) {
		select {
		case p.wakes <- w:
		default: // a wake-up that is repeated
		}
	}))
	return p
}

// whileParked runs a test in virtual time, with a Locker that has a listener.
func whileParked(t *testing.T, test func(t *testing.T, p *parked)) {
	t.Helper()
	virtual(t, lockcore.Config{HoldTTL: 10 * time.Minute}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		test(t, listening(t, l, db))
	})
}

// wakeup returns the next wake-up of a lock ID, within five hours of virtual time.
func (p *parked) wakeup(t *testing.T, lockID string) lockcore.Wakeup {
	t.Helper()
	for {
		select {
		case w := <-p.wakes:
			if w.LockID == lockID {
				return w
			}
		case <-time.After(5 * time.Hour):
			require.Fail(t, "there is no wake-up", lockID)
			return lockcore.Wakeup{}
		}
	}
}

// keeping returns a numbered request of a step that keeps its hold.
func keeping(lockID string, resources ...lockcore.Resource) lockcore.StepRequest {
	req := numbered(lockID, resources...)
	req.Keep = true
	return req
}

// stopped returns the release of a numbered request whose part has stopped.
func stopped(lockID string) lockcore.Release {
	part := "p"
	return lockcore.Release{LockID: lockID, Resources: []string{"r"}, Order: lockcore.Order{Schedule: 1, Attempt: 1}, Leaving: &part}
}

func TestOnWakeup_LeaveMakesAClaim_IsReported(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		leases := confirm(t, p.Steps, keeping("a", lockcore.Exclusive("r")))
		queue(t, p.Steps, keeping("b", lockcore.Exclusive("r")))
		require.NoError(t, p.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}))
		leave(t, p.Steps, leases...) // the release only cut off its part
		require.Equal(t, lockcore.Wakeup{Resource: "r", LockID: "b", Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, p.wakeup(t, "b"))
	})
}

// A stopped listener was once called after stop had returned.
func TestOnWakeup_Stop_WaitsForARunningCall(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		called, proceed := make(chan struct{}, 100), make(chan struct{})
		var running, stopped atomic.Bool
		stop := l.OnWakeup(func(lockcore.Wakeup) {
			require.False(t, stopped.Load(), "it was stopped")
			running.Store(true)
			called <- struct{}{}
			<-proceed
			running.Store(false)
		})
		holder := enter(t, l, request("holder", lockcore.Exclusive("r")))
		queue(t, l, numbered("next", lockcore.Exclusive("r")))
		var left sync.WaitGroup
		left.Go(func() { leave(t, l, holder...) })
		<-called
		time.AfterFunc(time.Second, func() { close(proceed) })
		stop()
		stillRuns := running.Load()
		stopped.Store(true)
		left.Wait()
		require.False(t, stillRuns)
		elapse(time.Minute) // a wake-up is repeated while anything listens
		stop()              // again
	})
}

// A stopped listener was once referenced until the Locker closed.
func TestOnWakeup_Stop_ReleasesTheListener(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	collected := make(chan struct{})
	listenAndStop(l, collected)
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(l)
}

// listenAndStop closes collected when the memory of the listener is free.
func listenAndStop(l *lockcore.Steps, collected chan struct{}) {
	large := new([1 << 20]byte)
	runtime.AddCleanup(large, func(int) { close(collected) }, 0)
	stop := l.OnWakeup(func(lockcore.Wakeup) { large[0]++ })
	stop()
}

func TestWatchFor_NoListener_WatchesNothing(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	l.WatchFor("r")
	require.Zero(t, l.Tended())
	stop := l.OnWakeup(func(lockcore.Wakeup) {})
	l.WatchFor("r")
	stop()
	require.Zero(t, l.Tended())
}

// The holder is dead, and the waiter has no process.
func TestWatchFor_HolderDies_WakesTheWaiter(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		dead := request("dead", lockcore.Exclusive("r"))
		dead.TTL = 100 * time.Millisecond
		enter(t, p.Steps, dead)
		next := keeping("b", lockcore.Exclusive("r"))
		queue(t, p.Steps, next)
		p.WatchFor("r")
		p.wakeup(t, "b")
		next.Order.Schedule++
		confirm(t, p.Steps, next)
		end := stopped("b")
		end.Order = next.Order
		require.NoError(t, p.Release(t.Context(), end))
		require.Eventually(t, func() bool { return p.Tended() == 0 }, time.Hour, time.Second, "the watch ends with the last waiter")
	})
}

func TestWatchFor_Deadlock_WakesTheVictim(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{
		"found here": false,
		"found by a process without a listener, like a Go program that does not use Temporal": true,
	} {
		t.Run(name, func(t *testing.T) {
			whileParked(t, func(t *testing.T, p *parked) {
				other := newLocker(t, p.db.Store, lockcore.Config{})
				for lockID, has := range map[string]string{"old": "r1", "young": "r2"} {
					leave(t, p.Steps, confirm(t, p.Steps, keeping(lockID, lockcore.Exclusive(has)))...)
				}
				started := time.Now()
				waits := keeping("old", lockcore.Exclusive("r2"))
				waits.Part, waits.Started = "second step", started
				queue(t, p.Steps, waits)
				waits.LockID, waits.Resources, waits.Started = "young", []lockcore.Resource{lockcore.Exclusive("r1")}, started.Add(time.Second)
				queue(t, p.Steps, waits)
				p.WatchFor("r1")
				p.WatchFor("r2")
				if elsewhere {
					broken, err := other.BreakDeadlocks(t.Context())
					require.NoError(t, err)
					require.Len(t, broken, 1)
				}
				ended := time.Now()
				w := p.wakeup(t, "young")
				require.LessOrEqual(t, time.Since(ended), 2*time.Second)
				require.Contains(t, w.Cycle, "young waits for old on r1")
				_, err := p.Recheck(t.Context(), waits)
				deadlock := errorAs[*lockcore.DeadlockError](t, err)
				require.Equal(t, w.Cycle, deadlock.Cycle)
				end := stopped("young")
				end.Order = waits.Order
				require.NoError(t, p.Release(t.Context(), end))
				require.NoError(t, p.Release(t.Context(), stopped("old")))
			})
		})
	}
}

// The process that frees the resource has no listener, like a Go program that does not use Temporal.
func TestWatchFor_FreedElsewhere_WakesWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holdOnly bool
		before   hook
		within   time.Duration
	}{
		"claim":                        {false, nil, 2 * time.Second},
		"hold":                         {true, nil, 2 * time.Second},
		"versions that cannot be read": {false, cutting(of(kindVersions)), 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			whileParked(t, func(t *testing.T, p *parked) {
				p.db.set(c.before, nil)
				other := newLocker(t, p.db.Store, lockcore.Config{})
				confirm(t, p.Steps, keeping("a", lockcore.Exclusive("r")))
				req := keeping("b", lockcore.Exclusive("r"))
				req.HoldOnly = c.holdOnly
				queue(t, p.Steps, req)
				p.WatchFor("r")
				elapse(time.Minute)
				if c.before == nil {
					reads, compares := p.db.count(of(kindLook)), p.db.count(of(kindVersions))
					elapse(time.Minute)
					require.LessOrEqual(t, p.db.count(of(kindLook))-reads, 16, "one each 20 seconds, and the searches for deadlocks")
					require.InDelta(t, 55, p.db.count(of(kindVersions))-compares, 6, "one a second, unless the document is read")
				}
				freed := time.Now()
				require.NoError(t, other.Release(t.Context(), stopped("a")))
				p.wakeup(t, "b")
				require.LessOrEqual(t, time.Since(freed), c.within)
			})
		})
	}
}

// The queue is l.a, w, l.b. When l.a is granted, l.b may join it.
func TestWatchFor_SameLockIDHolds_WakesTheWaiterThatJoins(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		held := tryAcquire(t, p.Steps, request("h", lockcore.Exclusive("r")))
		ask := func(lockID, part string) lockcore.StepRequest {
			req := numbered(lockID, lockcore.Exclusive("r"))
			req.Part = part
			return req
		}
		for _, req := range []lockcore.StepRequest{ask("l", "a"), ask("w", "a"), ask("l", "b")} {
			queue(t, p.Steps, req)
		}
		p.WatchFor("r")
		require.NoError(t, held.Release(t.Context()))
		confirm(t, p.Steps, ask("l", "a"))
		deadlocks, err := p.Deadlocks(t.Context())
		require.NoError(t, err)
		require.Empty(t, deadlocks)
		since := time.Now()
		for w := p.wakeup(t, "l"); w.Part != "b"; w = p.wakeup(t, "l") {
			require.Empty(t, w.Cycle)
		}
		require.LessOrEqual(t, time.Since(since), 2*time.Second)
		confirm(t, p.Steps, ask("l", "b"))
	})
}

// A worker whose workflows wait for many resources reads all of them by few commands.
func TestWatchFor_ManyResources_AreReadTogether(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		for i := range 500 {
			res := lockcore.Exclusive(fmt.Sprint("r/", i))
			enter(t, p.Steps, endless("holder", res))
			queue(t, p.Steps, numbered("waits", res))
			p.WatchFor(res.Name)
			elapse(100 * time.Millisecond)
		}
		elapse(time.Minute)
		reads := p.db.count(of(kindLook))
		elapse(2 * time.Minute)
		require.InDelta(t, 2*60, p.db.count(of(kindLook))-reads, 20, "about one a second, not one for each of 25 resources")
	})
}

func TestRecheck_PositionIsFresh_WritesNothing(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, lockcore.Config{HoldTTL: 10 * time.Minute})
	for i, lockID := range []string{"a", "b", "c"} {
		_, err := l.Enter(t.Context(), keeping(lockID, lockcore.Exclusive("r")))
		require.Equal(t, i == 0, err == nil)
	}
	recheck := func() (time.Duration, *lockcore.BusyError) {
		again, err := l.Recheck(t.Context(), keeping("c", lockcore.Exclusive("r")))
		busy := errorAs[*lockcore.BusyError](t, err)
		return again, busy
	}
	before := db.swaps()
	again, busy := recheck()
	require.Equal(t, 2, busy.Position)
	require.Equal(t, "a", busy.Holders[0].LockID)
	require.Positive(t, again)
	require.Equal(t, before, db.swaps(), "a fresh position is not written")

	clock.Advance(4 * time.Minute)
	_, _ = recheck()
	require.Equal(t, before+1, db.swaps(), "an old position is refreshed")
	clock.Advance(4 * time.Minute) // b is overdue, and keeps its position
	again, busy = recheck()
	require.Equal(t, 2, busy.Position)
	for _, s := range statuses(t, l, lockcore.Filter{LockID: "c"}) {
		require.Equal(t, busy.Position, s.Position)
	}
	require.LessOrEqual(t, again, 2*time.Minute, "the first waiter that is not overdue asks when the hold expires")
}

func TestRecheck_ReturnsNil_WhenAskingIsWorthwhile(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	req := keeping("b", lockcore.Exclusive("r"))
	recheck := func() error {
		_, err := l.Recheck(t.Context(), req)
		return err
	}
	require.NoError(t, recheck(), "it has no position")
	confirm(t, l, keeping("a", lockcore.Exclusive("r")))
	queue(t, l, req)
	require.ErrorIs(t, recheck(), lockcore.ErrBusy)
	require.NoError(t, l.Release(t.Context(), stopped("a")))
	require.NoError(t, recheck(), "it has a claim")
	confirm(t, l, req)
	require.NoError(t, l.Release(t.Context(), stopped("b")))
	require.NoError(t, recheck(), "it was granted and released")
	require.Empty(t, db.Document("r").Entries, "a recheck takes nothing")
}

// The server is behind: there the resource is free, and the request does not wait.
func TestRecheck_ReadIsOlderThanTheRequest_IsBusy(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		leave(t, l, confirm(t, l, numbered("before", lockcore.Exclusive("r")))...)
		behind := newLocker(t, newLaggingStore(db, "r"), lockcore.Config{})
		enter(t, l, request("a", lockcore.Exclusive("r")))
		req := keeping("b", lockcore.Exclusive("r"))
		queue(t, l, req)
		_, err := behind.Recheck(t.Context(), req)
		require.Equal(t, "a", errorAs[*lockcore.BusyError](t, err).Holders[0].LockID)
	})
}

func TestRecheck_RequestThatCannotQueue_IsRefused(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	for _, req := range []lockcore.StepRequest{numbered("b", lockcore.Exclusive("r"), lockcore.Exclusive("other")), request("b", lockcore.Exclusive("r"))} {
		_, err := l.Recheck(t.Context(), req)
		require.ErrorIs(t, err, lockcore.ErrInvalid)
	}
	require.Empty(t, db.commands())
}

// Nothing else changes: neither the stored details of the request nor the time at which it is overdue.
func TestRefresh_Waiter_KeepsItsPosition(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, lockcore.Config{})
	enter(t, l, endless("a", lockcore.Exclusive("r")))
	req := numbered("b", lockcore.SharedLimit("r", 3))
	req.Run, req.Owner, req.Started, req.NeverVictim = "run", "owner", clock.Now().Add(-time.Hour), true
	queue(t, l, req)
	position := lockcore.Lease{Resource: "r", LockID: "b", Run: "run", Part: req.Part, Order: req.Order}
	waiter := func() rules.Waiter { return db.Document("r").Waiters[0] }
	for _, after := range []time.Duration{time.Minute, 23 * time.Hour, 23 * time.Hour} { // it is overdue after 4 min
		clock.Advance(after)
		before := waiter()
		require.NoError(t, l.Refresh(t.Context(), position))
		now := waiter()
		require.WithinDuration(t, clock.Now().Add(24*time.Hour), now.ExpiresAt, time.Second)
		require.WithinDuration(t, before.OverdueAt, now.OverdueAt, time.Second)
		now.ExpiresAt, now.OverdueAt = before.ExpiresAt, before.OverdueAt
		require.Equal(t, before, now)
	}
	before := waiter()
	otherRun, later, otherResource := position, position, position
	otherRun.Run, later.Order, otherResource.Resource = "another", lockcore.Order{Schedule: 2, Attempt: 1}, "no such"
	for _, lease := range []lockcore.Lease{otherRun, later, otherResource} {
		require.NoError(t, l.Refresh(t.Context(), lease))
		require.Equal(t, before, waiter())
	}
	leave(t, l, position)
	require.NoError(t, l.Refresh(t.Context(), position))
	require.Empty(t, db.Document("r").Waiters, "a request that has left is not queued again")
}

// The holder and those ahead in the queue are dead: each of them costs one claim.
func TestQueue_DeadWaitersAhead_CostTheirClaims(t *testing.T) {
	t.Parallel()
	const dead, bound = 5, 30*time.Second + 5*30*time.Second + time.Second
	prepare := func(t *testing.T, l *lockcore.Steps) {
		t.Helper()
		confirm(t, l, numbered("holder", lockcore.Exclusive("r")))
		for i := range dead {
			queue(t, l, numbered(fmt.Sprint("dead", i), lockcore.Exclusive("r")))
		}
	}
	for _, ttl := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("Acquire with WaiterTTL ", ttl), func(t *testing.T) {
			virtual(t, lockcore.Config{WaiterTTL: ttl}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
				since := time.Now()
				prepare(t, l)
				got := <-acquireLater(t.Context(), l, request("live", lockcore.Exclusive("r")))
				require.NoError(t, got.err)
				require.LessOrEqual(t, time.Since(since), bound)
				require.NoError(t, got.session.Release(t.Context()))
			})
		})
	}
	t.Run("WatchFor", func(t *testing.T) {
		whileParked(t, func(t *testing.T, p *parked) {
			since := time.Now()
			prepare(t, p.Steps)
			queue(t, p.Steps, numbered("live", lockcore.Exclusive("r")))
			p.WatchFor("r")
			p.wakeup(t, "live")
			require.LessOrEqual(t, time.Since(since), bound)
		})
	})
}

// park enters a request, rechecks it as the wait of a workflow does, and takes the lock when it is
// granted. It returns the time of the grant, or zero if its process died before.
func (p *parked) park(t *testing.T, lockID string, dies time.Time) (granted time.Time) {
	t.Helper()
	woken := make(chan struct{}, 1)
	defer p.OnWakeup(func(w lockcore.Wakeup) {
		if w.LockID == lockID {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	})()
	req := numbered(lockID, lockcore.Exclusive("r"))
	for {
		_, err := p.Enter(t.Context(), req)
		if err == nil {
			return time.Now()
		}
		require.ErrorIs(t, err, lockcore.ErrBusy)
		for waits := true; waits; {
			again, busy := p.Recheck(t.Context(), req)
			if busy == nil {
				break
			}
			require.ErrorIs(t, busy, lockcore.ErrBusy)
			if time.Now().Add(again).After(dies) {
				return time.Time{}
			}
			select {
			case <-woken:
				waits = false
			case <-time.After(again):
			}
		}
		req.Order.Attempt++
	}
}

// A hundred requests park for an hour, and their processes die. Then the holder releases.
func TestQueue_CrowdOfDeadParkedRequests_CostsTwentyMinutes(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		held := tryAcquire(t, p.Steps, request("holder", lockcore.Exclusive("r")))
		start := time.Now()
		die := start.Add(time.Hour)
		var dead sync.WaitGroup
		for i := range 100 {
			dead.Go(func() { require.Zero(t, p.park(t, fmt.Sprint("dead", i), die)) })
		}
		synctest.Wait()
		live := make(chan time.Time, 1)
		var waits sync.WaitGroup
		waits.Go(func() { live <- p.park(t, "live", start.Add(10*time.Hour)) })
		dead.Wait()
		require.LessOrEqual(t, p.db.swaps(), 101*10, "a parked hour costs few writes")
		elapse(time.Until(die))
		require.NoError(t, held.Release(t.Context()))
		p.WatchFor("r")
		require.LessOrEqual(t, (<-live).Sub(die), 20*time.Minute+31*time.Second)
	})
}
