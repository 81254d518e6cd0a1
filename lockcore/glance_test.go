package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestRechecksOfALongQueueShareWhatTheyRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewEngine(time.Now)
		e := &countingEngine{Engine: mem}
		l := on(t, e, lockcore.Config{})
		holder := one("holder", lockcore.Exclusive("r"))
		holder.TTL = time.Hour
		_, err := l.Enter(t.Context(), holder, false)
		require.NoError(t, err)
		const waiting = 400
		request := func(i int) lockcore.Request {
			req := one(fmt.Sprint("w", i), lockcore.Exclusive("r"))
			req.Part, req.Order = "p", lockcore.Order{Schedule: 1, Attempt: 1}
			return req
		}
		recheck := func(i int) time.Duration {
			again, err := l.Recheck(t.Context(), request(i))
			require.ErrorIs(t, err, lockcore.ErrBusy)
			return again
		}
		var next [waiting]time.Time
		for i := range waiting {
			_, err := l.Enter(t.Context(), request(i), true)
			require.ErrorIs(t, err, lockcore.ErrBusy)
			next[i] = time.Now().Add(recheck(i)) // its place is new, so it is read
		}
		reads, looks, began := e.reads.Load(), 0, time.Now()
		for ; time.Since(began) < time.Hour-time.Second; elapse(time.Second) {
			for i := range waiting {
				if !time.Now().Before(next[i]) {
					next[i] = time.Now().Add(recheck(i))
					looks++
				}
			}
		}
		require.LessOrEqual(t, looks, 11*waiting, "with the first one 12 an hour")
		require.LessOrEqual(t, e.reads.Load()-reads, int64(1800), "one in two seconds at most")
	})
}

// crowd has n requests queue for r, and returns them by their numbers.
func crowd(t *testing.T, l *lockcore.Locker, n int) func(i int) lockcore.Request {
	t.Helper()
	request := func(i int) lockcore.Request {
		req := one(fmt.Sprint("w", i), lockcore.Exclusive("r"))
		req.Part, req.Order = "p", lockcore.Order{Schedule: 1, Attempt: 1}
		return req
	}
	for i := range n {
		_, err := l.Enter(t.Context(), request(i), true)
		require.ErrorIs(t, err, lockcore.ErrBusy)
	}
	return request
}

func TestARecheckTellsANewRequestOfNoOldDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewEngine(time.Now)
		l := on(t, mem, lockcore.Config{})
		_, err := l.Enter(t.Context(), one("holder", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		request := crowd(t, l, 40)
		_, err = mem.Withdraw(t.Context(), engine.Withdraw{Policy: engine.Policy{}, Resource: "r", LockID: "w7", Part: "p", Order: 1<<32 | 1, Reason: "deadlock: w7 waits for holder"})
		require.NoError(t, err)
		_, err = l.Recheck(t.Context(), request(20)) // of whoever else waits
		require.ErrorIs(t, err, lockcore.ErrBusy)
		_, err = l.Recheck(t.Context(), request(7))
		require.ErrorIs(t, err, lockcore.ErrDeadlock, "the victim is told")
		next := request(7)
		next.Order.Schedule = 2
		_, err = l.Enter(t.Context(), next, true)
		require.ErrorIs(t, err, lockcore.ErrDeadlock, "and reads it, which ends its place")
		next.Order.Schedule = 3
		_, err = l.Enter(t.Context(), next, true)
		require.NotErrorIs(t, err, lockcore.ErrDeadlock)
		require.ErrorIs(t, err, lockcore.ErrBusy, "it begins again, and queues")
		_, err = l.Recheck(t.Context(), next)
		require.NotErrorIs(t, err, lockcore.ErrDeadlock, "there is no deadlock any more")
	})
}

func TestARecheckSeesATurnThatHasComeInALongQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewEngine(time.Now)
		l := on(t, mem, lockcore.Config{})
		h := one("holder", lockcore.Exclusive("r"))
		h.TTL = time.Hour
		leases, err := l.Enter(t.Context(), h, false)
		require.NoError(t, err)
		request := crowd(t, l, 40)
		var again time.Duration
		for range 4 { // so that places stand long
			for i := range 40 {
				again, err = l.Recheck(t.Context(), request(i))
				require.ErrorIs(t, err, lockcore.ErrBusy)
			}
			elapse(2 * time.Minute)
		}
		_ = again
		_, err = l.Recheck(t.Context(), request(20)) // of whoever else waits
		require.ErrorIs(t, err, lockcore.ErrBusy)
		require.NoError(t, l.Leave(t.Context(), leases...)) // by the same Locker
		d := mem.Document("r")
		require.NotNil(t, d.Claim("w0", "p"), "w0 has a claim")
		again, err = l.Recheck(t.Context(), request(0))
		require.NoError(t, err, "w0 is told to look again in %v; its claim stands for 30 s", again)
	})
}

func TestARecheckOfALongQueueEndsWithItsLocker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := on(t, lockcoretest.NewEngine(time.Now), lockcore.Config{})
		_, err := l.Enter(t.Context(), one("holder", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		request := crowd(t, l, 40)
		_, err = l.Recheck(t.Context(), request(0))
		require.ErrorIs(t, err, lockcore.ErrBusy)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Recheck(ctx, request(1))
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close(t.Context()))
		_, err = l.Recheck(t.Context(), request(1))
		require.ErrorIs(t, err, lockcore.ErrClosed)
	})
}

func TestWhatIsDueInALongQueueIsWrittenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &countingEngine{Engine: lockcoretest.NewEngine(time.Now)}
		l := on(t, e, lockcore.Config{})
		h := one("holder", lockcore.Exclusive("r"))
		h.TTL = 10 * time.Second
		_, err := l.Enter(t.Context(), h, false)
		require.NoError(t, err)
		request := crowd(t, l, 400)
		elapse(10*time.Second + 100*time.Millisecond) // the holder is dead
		before := e.acquires.Load()
		for i := range 400 {
			_, _ = l.Recheck(t.Context(), request(399-i))
		}
		t.Logf("400 rechecks wrote %d times", e.acquires.Load()-before)
		require.Less(t, e.acquires.Load()-before, int64(50))
	})
}

func TestTheFirstRecheckSeesAVerdictInALongQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewEngine(time.Now)
		l, elsewhere := on(t, mem, lockcore.Config{}), on(t, mem, lockcore.Config{})
		h := one("holder", lockcore.Exclusive("r"))
		h.TTL, h.Owner = time.Hour, "holder"
		_, err := elsewhere.Enter(t.Context(), h, false)
		require.NoError(t, err)
		// w20 keeps s, for which the holder comes to wait.
		s := one("w20", lockcore.Exclusive("s"))
		s.Part, s.Order, s.TTL = "p", lockcore.Order{Schedule: 1, Attempt: 1}, time.Hour
		_, err = elsewhere.Enter(t.Context(), s, false)
		require.NoError(t, err)
		request := crowd(t, l, 40)
		elapse(150 * time.Second)
		next := request(20) // it was called up, asked again, and queues on
		next.Order.Schedule = 2
		_, err = l.Enter(t.Context(), next, true)
		require.ErrorIs(t, err, lockcore.ErrBusy)
		_, err = l.Recheck(t.Context(), request(5)) // of whoever else waits
		require.ErrorIs(t, err, lockcore.ErrBusy)
		_, err = mem.Withdraw(t.Context(), engine.Withdraw{Resource: "r", LockID: "w20", Part: "p", Order: 2<<32 | 1, Reason: "deadlock: w20 waits for holder on r, holder waits for w20 on s"})
		require.NoError(t, err)
		again, err := l.Recheck(t.Context(), next)
		require.ErrorIs(t, err, lockcore.ErrDeadlock, "it is to look again in %v, and the circle stands until then", again)
	})
}
