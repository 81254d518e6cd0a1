package party_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// enterOnce asks for r by a request that may queue, and that nobody renews or refreshes: its process is dead from then on.
func enterOnce(t *testing.T, l *party.Locker, lockID, part string) error {
	t.Helper()
	req := request(lockID, party.Exclusive("r"))
	req.Part, req.Order = part, party.Order{Schedule: 1, Attempt: 1}
	_, err := l.Enter(t.Context(), req)
	return err
}

func TestAParkedRequestWhoseLockIDHoldsJoinsPastTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		held, err := p.TryAcquire(t.Context(), request("h", party.Exclusive("r")))
		require.NoError(t, err)
		for _, who := range [][2]string{{"l", "a"}, {"w", "a"}, {"l", "b"}} {
			require.ErrorIs(t, enterOnce(t, p.Locker, who[0], who[1]), party.ErrBusy)
		}
		p.WatchFor("r")
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, enterOnce(t, p.Locker, "l", "a"))
		deadlocks, err := p.Deadlocks(t.Context())
		require.NoError(t, err)
		require.Empty(t, deadlocks)
		since := time.Now()
		for turn := p.turn(t); turn.Part != "b"; turn = p.turn(t) {
			require.Empty(t, turn.Deadlock)
		}
		require.LessOrEqual(t, time.Since(since), 2*time.Second)
		require.NoError(t, enterOnce(t, p.Locker, "l", "b"))
	})
}

// The holder and those ahead in the queue are dead: each of these costs one claim.
func TestDeadPredecessorsCostTheirClaimsAndNoMore(t *testing.T) {
	t.Parallel()
	const dead, bound = 5, 30*time.Second + 5*30*time.Second + time.Second
	for _, ttl := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("in a process, places stand for ", ttl), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := lockcoretest.NewStore(time.Now)
				l := newLocker(t, mem, party.Config{WaiterTTL: ttl})
				require.NoError(t, enterOnce(t, l, "holder", "p"))
				since := time.Now()
				for i := range dead {
					require.ErrorIs(t, enterOnce(t, l, fmt.Sprint("dead", i), "p"), party.ErrBusy)
				}
				got := <-acquireLater(t.Context(), l, request("live", party.Exclusive("r")))
				require.NoError(t, got.err)
				require.LessOrEqual(t, time.Since(since), bound)
				require.NoError(t, got.session.Release(t.Context()))
			})
		})
	}
	t.Run("parked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newParked(t, nil)
			require.NoError(t, enterOnce(t, p.Locker, "holder", "p"))
			since := time.Now()
			for i := range dead {
				require.ErrorIs(t, enterOnce(t, p.Locker, fmt.Sprint("dead", i), "p"), party.ErrBusy)
			}
			require.ErrorIs(t, enterOnce(t, p.Locker, "live", "p"), party.ErrBusy)
			p.WatchFor("r")
			p.turnOf(t, "live")
			require.LessOrEqual(t, time.Since(since), bound)
		})
	})
}

// turnOf takes the turns of others away until that of a lock ID comes.
func (p *parked) turnOf(t *testing.T, lockID string) {
	t.Helper()
	for {
		select {
		case turn := <-p.turns:
			if turn.LockID == lockID {
				return
			}
		case <-time.After(5 * time.Hour): // of virtual time
			require.Fail(t, "nobody was told that it is its turn")
		}
	}
}

func TestADeadlockOfRequestsWithALimitOfOneEnds(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	for lockID, name := range map[string]string{"a": "x", "b": "y"} {
		_, err := l.TryEnter(t.Context(), request(lockID, party.SharedLimit(name, 1)))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := acquireLater(ctx, l, request("a", party.SharedLimit("y", 1)))
	eventually(t, 1, waitersOf(mem, "y"), "a stands in the queue")
	b := acquireLater(ctx, l, request("b", party.SharedLimit("x", 1)))
	select {
	case got := <-b:
		require.ErrorIs(t, got.err, party.ErrDeadlock, "it queued last")
	case <-time.After(15 * time.Second):
		require.Fail(t, "the deadlock stands")
	}
	cancel()
	require.ErrorIs(t, (<-a).err, context.Canceled)
}

// The search of a wait that is over ends late: it is no reason to put off that of the next wait.
func TestASearchOfAnEarlierWaitDoesNotPutOffTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		begun, answer, searched := make(chan struct{}, 100), make(chan struct{}), time.Time{}
		first := true
		e.set(func(_ context.Context, c command) error {
			switch {
			case !searching(c):
				return nil
			case first:
				first = false
				begun <- struct{}{}
				<-answer
			case searched.IsZero():
				searched = time.Now()
			}
			return errCut
		}, nil)
		l := newLocker(t, e, party.Config{})
		wait := func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			out := acquireLater(ctx, l, request("b", party.Exclusive("r")))
			eventually(t, 1, waitersOf(e, "r"), "it stands in the queue")
			return func() {
				cancel()
				<-out
			}
		}
		require.NoError(t, enterOnce(t, l, "a", "p"))
		end := wait()
		<-begun
		end()
		end = wait()
		queued := time.Now()
		close(answer)
		elapse(10 * time.Second)
		require.LessOrEqual(t, searched.Sub(queued), 1500*time.Millisecond)
		end()
	})
}

// Each search reads all resources that are waited for: it rests longer when they are many.
func TestSearchesAreRarerWhereManyResourcesAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		e.set(cutting(of(kindLook)), nil) // which would take most of the test's time
		l := newLocker(t, e, party.Config{})
		const many = 250
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan acquired
		for i := range many {
			res := party.Exclusive(fmt.Sprint("r/", i))
			_, err := l.TryEnter(ctx, party.Request{LockID: "holder", TTL: party.Forever, Resources: []party.Resource{res}})
			require.NoError(t, err)
			waits = append(waits, acquireLater(ctx, l, request("b", res)))
		}
		elapse(time.Minute)
		before := e.count(searching)
		elapse(4 * time.Minute)
		require.InDelta(t, int(4*time.Minute/(many*pace.PerResource)), e.count(searching)-before, 2)
		cancel()
		for _, wait := range waits {
			<-wait
		}
	})
}
