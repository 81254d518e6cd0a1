package lockcore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// three is a first attempt of a step on three resources, which are named out of order.
func three() lockcore.Request {
	req := one("x", lockcore.Exclusive("c"), lockcore.Shared("a"), lockcore.Exclusive("b"))
	req.Part, req.Order, req.First = "step", lockcore.Order{Schedule: 1, Attempt: 1}, true
	return req
}

// held are the resources of three that somebody holds.
func held(e *faultEngine) (names []string) {
	for _, name := range []string{"a", "b", "c"} {
		if len(e.Document(name).Entries) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func TestSeveralFreeResourcesAreTakenByOneCommand(t *testing.T) {
	t.Parallel()
	e := faulty()
	l := on(t, e, lockcore.Config{})
	leases, err := l.Enter(t.Context(), three(), true)
	require.NoError(t, err)
	require.Len(t, e.commands(), 1)
	require.Len(t, leases, 3)
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(t, name, leases[i].Resource)
		d := e.Document(name)
		require.Equal(t, d.HoldFence("x"), leases[i].FirstFence)
		require.True(t, leases[i].Valid())
	}
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.Empty(t, held(e))
}

func TestOnlyWhatComesBeforeABusyResourceIsTaken(t *testing.T) {
	t.Parallel()
	e := faulty()
	l := on(t, e, lockcore.Config{})
	_, err := l.TryAcquire(t.Context(), one("other", lockcore.Exclusive("b")))
	require.NoError(t, err)
	req := three()
	req.Persist = true
	busy := new(lockcore.BusyError)
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "b", busy.Resource)
	a := e.Document("a")
	require.NotNil(t, a.Kept("x"), "it stands while the step waits")
	require.Empty(t, e.Document("c").ID, "nobody asked for it")
}

// TestSeveralWhoseAnswerIsLostAreAskedForOneByOne: they were granted, so the answer is the same again, although a First
// request shares no part with another.
func TestSeveralWhoseAnswerIsLostAreAskedForOneByOne(t *testing.T) {
	t.Parallel()
	e := faulty()
	l := on(t, e, lockcore.Config{})
	e.set(nil, cutting[[]engine.Acquire])
	leases, err := l.Enter(t.Context(), three(), true)
	require.NoError(t, err)
	require.Len(t, leases, 3)
	require.Len(t, e.commands(), 4)
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.Empty(t, held(e))
}

func TestAPartOfTheSameOrderIsNotSharedByAFirstRequestOfSeveral(t *testing.T) {
	t.Parallel()
	e := faulty()
	l := on(t, e, lockcore.Config{})
	other := three()
	other.Resources = other.Resources[:1]
	_, err := l.Enter(t.Context(), other, true)
	require.NoError(t, err)
	_, err = l.Enter(t.Context(), three(), true)
	require.ErrorIs(t, err, lockcore.ErrSuperseded)
	require.Equal(t, []string{"c"}, held(e), "what the other has")
}

// TestNothingIsLeftOfSeveralByWhoGaveUp: all were granted by one command. Its sender heard of it and was cancelled, or did
// not hear of it, and then could not ask again.
func TestNothingIsLeftOfSeveralByWhoGaveUp(t *testing.T) {
	t.Parallel()
	t.Run("it was heard", func(t *testing.T) {
		t.Parallel()
		e := faulty()
		l := on(t, e, lockcore.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		e.set(nil, func(_ context.Context, op any) error {
			if _, all := op.([]engine.Acquire); all {
				cancel()
			}
			return nil
		})
		_, err := l.Enter(ctx, three(), false)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, held(e))
	})
	t.Run("it was not heard", func(t *testing.T) {
		t.Parallel()
		e := faulty()
		l := on(t, e, lockcore.Config{})
		e.set(cutting[engine.Acquire], cutting[[]engine.Acquire])
		_, err := l.Enter(t.Context(), three(), false)
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
		require.Empty(t, held(e))
	})
	t.Run("it was not heard, and another is in the way on the second", func(t *testing.T) {
		t.Parallel()
		e := faulty()
		l := on(t, e, lockcore.Config{})
		e.set(func(ctx context.Context, op any) error {
			if one, yes := op.(engine.Acquire); yes && one.Resource == "b" && one.LockID == "x" {
				d := e.Document("b")
				_, err := e.Engine.Release(ctx, engine.Release{Resource: "b", LockID: "x", FirstFence: d.HoldFence("x"), Force: true, Now: true})
				require.NoError(t, err)
				_, err = e.Engine.Acquire(ctx, engine.Acquire{Resource: "b", LockID: "y", Order: 1, Mode: engine.Exclusive})
				require.NoError(t, err)
			}
			return nil
		}, cutting[[]engine.Acquire])
		req := three()
		req.First = false
		_, err := l.Enter(t.Context(), req, true)
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
		require.Equal(t, []string{"b"}, held(e), "what the other has")
	})
}
