package lockcore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// threeOf is an attempt of a step that keeps three resources.
func threeOf(lockID string, attempt uint32) lockcore.Request {
	return lockcore.Request{
		LockID: lockID, Part: "step", Order: lockcore.Order{Schedule: 1, Attempt: attempt}, Persist: true,
		Resources: []lockcore.Resource{lockcore.Exclusive("c"), lockcore.Exclusive("a"), lockcore.Exclusive("b")},
	}
}

// askedFor are the acquires that an engine has answered, in order.
type askedFor struct {
	mu  sync.Mutex
	all []engine.Acquire
}

func (a *askedFor) on(e *hookEngine) *askedFor {
	e.acquired = func(op engine.Acquire, _ engine.Document) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, op)
	}
	return a
}

func TestSeveralFreeResourcesAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{})
	var all sync.WaitGroup
	all.Add(3)
	e.acquired = func(engine.Acquire, engine.Document) {
		all.Done()
		all.Wait() // for ever, if one is asked for after the other
	}
	leases, err := l.Enter(t.Context(), threeOf("x", 1), true)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, namesOf(leases))
	require.NoError(t, l.Leave(t.Context(), leases...))
}

func namesOf(leases []lockcore.Lease) (names []string) {
	for _, lease := range leases {
		names = append(names, lease.Resource)
	}
	return names
}

func TestNothingBeyondABusyResourceIsHeldWhileARequestWaits(t *testing.T) {
	t.Parallel()
	e := hooked()
	elsewhere, l := on(t, e.Engine, lockcore.Config{}), on(t, e, lockcore.Config{})
	b, err := elsewhere.TryAcquire(t.Context(), one("other", lockcore.Exclusive("b")))
	require.NoError(t, err)
	beyond := 0
	e.acquired = func(op engine.Acquire, _ engine.Document) {
		if op.Queue {
			beyond += len(e.Document("c").Entries)
		}
	}
	_, err = l.Enter(t.Context(), threeOf("x", 1), true)
	busy := new(lockcore.BusyError)
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "b", busy.Resource)
	require.Equal(t, 1, busy.Position)
	require.Zero(t, beyond, "c was held when the request queued for b")
	a := e.Document("a")
	require.NotNil(t, a.Kept("x"), "what comes before stays")
	require.NoError(t, b.Leave(t.Context()))

	// The resource is known to be contended: the next attempt asks for one after the other.
	seen := new(askedFor).on(e)
	leases, err := l.Enter(t.Context(), threeOf("x", 2), true)
	require.NoError(t, err)
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(t, name, seen.all[i].Resource)
		require.True(t, seen.all[i].Queue)
	}
	require.NoError(t, l.Leave(t.Context(), leases...))
}

func TestARequestGoesOnFromTheFirstBusyResourceIfNothingIsGotBeyond(t *testing.T) {
	t.Parallel()
	e := hooked()
	elsewhere, l := on(t, e.Engine, lockcore.Config{}), on(t, e, lockcore.Config{})
	c, err := elsewhere.TryAcquire(t.Context(), one("other", lockcore.Exclusive("c")))
	require.NoError(t, err)
	req := threeOf("x", 1)
	req.MaxWait = time.Minute
	got := make(chan error, 1)
	go func() {
		leases, err := l.Enter(t.Context(), req, true)
		if err == nil {
			err = l.Leave(t.Context(), leases...)
		}
		got <- err
	}()
	eventually(t, 1, waitersOf(e.Engine, "c"), "it waits where it is")
	require.NoError(t, c.Leave(t.Context()))
	require.NoError(t, <-got)
}

func TestAResourceThatBecomesFreeAtOnceIsAskedForAgain(t *testing.T) {
	t.Parallel()
	e := hooked()
	elsewhere, l := on(t, e.Engine, lockcore.Config{}), on(t, e, lockcore.Config{})
	b, err := elsewhere.TryAcquire(t.Context(), one("other", lockcore.Exclusive("b")))
	require.NoError(t, err)
	var once sync.Once
	var left error
	e.acquired = func(op engine.Acquire, d engine.Document) {
		if op.Resource == "b" && d.Last.Outcome == engine.Busy {
			once.Do(func() { left = b.Leave(t.Context()) })
		}
	}
	req := threeOf("x", 1)
	_, err = l.Enter(t.Context(), req, true)
	require.NoError(t, left)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	for _, name := range []string{"a", "b", "c"} {
		d := e.Document(name)
		require.Nil(t, d.Part("x", "step", 1<<32|1), "nobody uses what was got on %s", name)
	}
	req.Resources = req.Resources[2:]
	_, err = l.Recheck(t.Context(), req)
	require.NoError(t, err, "whoever waits for b is told to ask again")
	leases, err := l.Enter(t.Context(), threeOf("x", 2), true)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))
}

func TestWhatWasGotBesideAnotherRunsHoldIsTheCallers(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{})
	old := threeOf("x", 1)
	old.Run, old.Part, old.Resources = "run 1", "step of run 1", []lockcore.Resource{lockcore.Exclusive("b")}
	leases, err := l.Enter(t.Context(), old, true)
	require.NoError(t, err)
	require.NoError(t, l.Leave(t.Context(), leases...))

	req := threeOf("x", 1)
	req.Run = "run 2"
	leases, err = l.Enter(t.Context(), req, true)
	other := new(lockcore.OtherRunError)
	require.ErrorAs(t, err, &other)
	require.Equal(t, []string{"a", "c"}, namesOf(leases))
	req.TakeOver = other.Other
	again, err := l.Enter(t.Context(), req, true)
	require.NoError(t, err, "it asks again by the same order")
	require.Equal(t, []string{"a", "b", "c"}, namesOf(again))
	require.Equal(t, leases[1].Fence, again[2].Fence, "what it had got is what it gets")
	require.NoError(t, l.Leave(t.Context(), again...))
}
