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
		confirm(t, l, numbered("a", party.Exclusive("r")))
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
