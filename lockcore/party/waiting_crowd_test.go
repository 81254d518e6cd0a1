package party_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// park enters a request, looks after it as a workflow's wait does, and takes the lock when its turn has come.
func (p *parked) park(t *testing.T, lockID string, until time.Time) (granted time.Time) {
	t.Helper()
	woken := make(chan struct{}, 1)
	defer p.OnWakeup(func(turn party.Wakeup) {
		if turn.LockID == lockID {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	})()
	req := request(lockID, party.Exclusive("r"))
	req.Part, req.Order = "p", party.Order{Schedule: 1, Attempt: 1}
	_, err := p.Enter(t.Context(), req)
	for {
		if err == nil {
			return time.Now()
		}
		require.ErrorIs(t, err, party.ErrBusy)
		again, busy := p.Recheck(t.Context(), req)
		if busy == nil {
			req.Order.Attempt++
			_, err = p.Enter(t.Context(), req)
			continue
		}
		require.ErrorIs(t, busy, party.ErrBusy)
		if time.Now().Add(again).After(until) {
			return time.Time{} // dead
		}
		select {
		case <-woken:
			req.Order.Attempt++
			_, err = p.Enter(t.Context(), req)
		case <-time.After(again):
		}
	}
}

// 100 requests park, wait for an hour, and their processes die. Then the holder does. The one behind them waits on.
func TestACrowdOfDeadParkedRequestsCostsNoMoreThanTwentyMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		held, err := p.TryAcquire(t.Context(), request("holder", party.Exclusive("r")))
		require.NoError(t, err)
		start := time.Now()
		die := start.Add(time.Hour)
		var dead sync.WaitGroup
		for i := range 100 {
			dead.Go(func() { require.Zero(t, p.park(t, fmt.Sprint("dead", i), die)) })
		}
		synctest.Wait()
		live := make(chan time.Time, 1)
		var alive sync.WaitGroup
		alive.Go(func() { live <- p.park(t, "live", start.Add(10*time.Hour)) })
		dead.Wait()
		writes := p.store.count(of(kindSwap))
		require.LessOrEqual(t, writes, 101*10, "a parked hour costs few writes")
		elapse(time.Until(die))
		require.NoError(t, held.Release(t.Context()))
		p.WatchFor("r")
		alive.Wait()
		granted := <-live
		require.LessOrEqual(t, granted.Sub(die), 20*time.Minute+31*time.Second)
	})
}

// A worker whose workflows wait for many resources reads each of them rarely, and all of them by few commands.
func TestManyParkedResourcesAreReadByFewCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 500
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		defer l.OnWakeup(func(party.Wakeup) {})()
		for i := range many {
			res := party.Exclusive(fmt.Sprint("r/", i))
			_, err := l.TryEnter(t.Context(), party.Request{LockID: "holder", TTL: party.Forever, Resources: []party.Resource{res}})
			require.NoError(t, err)
			req := request("waits", res)
			req.Part, req.Order = "p", party.Order{Schedule: 1, Attempt: 1}
			_, err = l.Enter(t.Context(), req)
			require.ErrorIs(t, err, party.ErrBusy)
			l.WatchFor(res.Name)
			elapse(100 * time.Millisecond)
		}
		elapse(time.Minute)
		reads := e.count(of(kindLook))
		elapse(2 * time.Minute)
		require.InDelta(t, 2*60, e.count(of(kindLook))-reads, 20, "about one a second, and not one for each of 25 resources a second")
	})
}
