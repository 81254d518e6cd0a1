package party_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// crossed: a holds x and wants y, and b holds y and wants x. It returns their waits, and what a and b hold.
func crossed(t *testing.T, l *party.Locker, mem *lockcoretest.Store, change func(lockID string, req *party.Request)) (a, b <-chan acquired, held []party.Lease) {
	t.Helper()
	for _, req := range []party.Request{request("a", party.Exclusive("x")), request("b", party.Exclusive("y"))} {
		leases, err := l.TryEnter(t.Context(), req)
		require.NoError(t, err)
		held = append(held, leases...)
	}
	wait := func(id, name string) <-chan acquired {
		req := request(id, party.Exclusive(name))
		if change != nil {
			change(id, &req)
		}
		out := acquireLater(t.Context(), l, req)
		eventually(t, 1, waitersOf(mem, name), id+" stands in the queue")
		return out
	}
	return wait("a", "y"), wait("b", "x"), held
}

func TestDeadlock_LastToStart_IsTheVictim(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	a, b, held := crossed(t, l, mem, func(id string, req *party.Request) {
		req.Started = map[string]time.Time{"a": time.Now(), "b": time.Now().Add(-time.Hour)}[id]
	})
	got := <-a
	require.ErrorIs(t, got.err, party.ErrDeadlock)
	var deadlock *party.DeadlockError
	require.ErrorAs(t, got.err, &deadlock)
	require.Equal(t, "y", deadlock.Resource)
	require.Contains(t, deadlock.Cycle, "a waits for b on y")
	require.Contains(t, deadlock.Cycle, "b waits for a on x")
	// What the victim held goes when its owner says so, and then the other goes on.
	require.NoError(t, l.Leave(t.Context(), held[0]))
	got = <-b
	require.NoError(t, got.err)
	require.NoError(t, got.session.Release(t.Context()))
}

func TestDeadlock_NeverVictim_IsSpared(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	a, b, held := crossed(t, l, mem, func(id string, req *party.Request) { req.NeverVictim = id == "b" })
	got := <-a
	require.ErrorIs(t, got.err, party.ErrDeadlock, "b queued last, and compensates")
	require.NoError(t, l.Leave(t.Context(), held[0]))
	got = <-b
	require.NoError(t, got.err)
	require.NoError(t, got.session.Release(t.Context()))
}

func TestDeadlock_AllNeverVictim_StillEnds(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	a, b, held := crossed(t, l, mem, func(id string, req *party.Request) {
		req.NeverVictim = true
		req.Started = map[string]time.Time{"a": time.Now(), "b": time.Now().Add(-time.Hour)}[id]
	})
	got := <-a
	require.ErrorIs(t, got.err, party.ErrDeadlock, "it started last")
	require.NoError(t, l.Leave(t.Context(), held[0]))
	got = <-b
	require.NoError(t, got.err)
	require.NoError(t, got.session.Release(t.Context()))
}

func TestDeadlocks_Cycle_IsListedAndBroken(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	none, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	for id, name := range map[string]string{"a": "x", "b": "y", "c": "z"} {
		_, err := l.TryEnter(t.Context(), request(id, party.Exclusive(name)))
		require.NoError(t, err)
	}
	queue := func(id, owner, name string) {
		req := request(id, party.Exclusive(name))
		req.Part, req.Owner, req.Order = "wait", owner, party.Order{Schedule: 1}
		_, err := l.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	queue("a", "a", "y")
	queue("b", "b", "z")
	queue("bystander", "bystander", "y")
	none, err = l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, none, "a chain is no circle")
	queue("c", "c", "x")
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "a waits for b on y, b waits for c on z, c waits for a on x", found[0].String())
	require.Equal(t, "c", found[0].Waits[found[0].Victim].Owner, "it queued last")

	broken, err := l.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, broken, 1)
	again, err := l.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, again, "one victim is enough")
	require.Len(t, mem.Document("y").Waiters, 2)

	// The victim comes back late, with a greater order, and after much else has ended there.
	victim := request("c", party.Exclusive("x"))
	victim.Part, victim.Order = "wait", party.Order{Schedule: 1, Attempt: 2}
	for i := range 2 * rules.MaxReleases {
		require.NoError(t, l.Release(t.Context(), party.Release{LockID: fmt.Sprint("other/", i), Resources: []string{"x"}, Order: party.LastAttempt(1)}))
	}
	_, err = l.Enter(t.Context(), victim)
	require.ErrorIs(t, err, party.ErrDeadlock)
	victim.Order.Attempt++ // it was told, and has left
	_, err = l.Enter(t.Context(), victim)
	require.ErrorIs(t, err, party.ErrBusy)
}

func TestDeadlocks_LimitMayHaveRoom_IsNotADeadlock(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	for _, req := range []party.Request{
		request("a", party.SharedLimit("seats", 2)), request("b", party.SharedLimit("seats", 2)), request("c", party.Exclusive("x")),
	} {
		_, err := l.TryEnter(t.Context(), req)
		require.NoError(t, err)
	}
	for id, res := range map[string]party.Resource{"c": party.SharedLimit("seats", 2), "a": party.Exclusive("x")} {
		req := request(id, res)
		req.Part, req.Order = "wait", party.Order{Schedule: 1}
		_, err := l.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found, "b may leave, and then c goes on")
}

func TestUpgrade_TwoUpgrades_OneIsTheVictim(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	sessions := map[string]*party.Session{}
	results := make(chan error, 2)
	for _, id := range []string{"a", "b"} {
		s, err := l.TryAcquire(t.Context(), request(id, party.Shared("r")))
		require.NoError(t, err)
		sessions[id] = s
	}
	for _, s := range sessions {
		go func() {
			err := s.Upgrade(context.Background(), "r")
			if err != nil {
				// The victim lets the other through.
				_ = s.Release(context.Background())
			}
			results <- err
		}()
	}
	first, second := <-results, <-results
	if first == nil {
		first, second = second, first
	}
	require.ErrorIs(t, first, party.ErrDeadlock)
	require.NoError(t, second)
	for _, s := range sessions {
		require.NoError(t, s.Release(t.Context()))
	}
}

// A claim that is not confirmed ends by itself, so its party's other waits make no circle with it.
func TestDeadlocks_Claim_IsNotAnEdge(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	held := map[string][]party.Lease{}
	for lockID, name := range map[string]string{"h": "x", "b": "y"} {
		leases, err := l.TryEnter(t.Context(), request(lockID, party.Exclusive(name)))
		require.NoError(t, err)
		held[lockID] = leases
	}
	queue := func(lockID, part, name string) {
		req := request(lockID, party.Exclusive(name))
		req.Part, req.Order = part, party.Order{Schedule: 1}
		_, err := l.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	queue("a", "first", "x")
	require.NoError(t, l.Leave(t.Context(), held["h"]...))
	queue("a", "second", "y")
	queue("b", "wait", "x")
	d := mem.Document("x")
	require.NotNil(t, d.Claim("a", "first"))
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// c is behind b though their modes are compatible: who comes first is served first.
func TestDeadlocks_WaitersAhead_AreEdges(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	for lockID, res := range map[string]party.Resource{"a": party.SharedLimit("x", 2), "c": party.Exclusive("y")} {
		_, err := l.TryEnter(t.Context(), request(lockID, res))
		require.NoError(t, err)
	}
	queue := func(lockID string, res party.Resource) {
		req := request(lockID, res)
		req.Part, req.Order = "wait", party.Order{Schedule: 1}
		_, err := l.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	queue("b", party.SharedLimit("x", 1)) // waits for a
	queue("c", party.Shared("x"))         // waits for b
	queue("a", party.Exclusive("y"))      // waits for c
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "a waits for c on y, c waits for b on x, b waits for a on x", found[0].String())
}

// The parts of a lock ID have owners of their own, who wait each for themselves.
func TestDeadlocks_PartsOfALockID_HaveTheirOwners(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	take := func(lockID, owner string, res party.Resource) {
		req := request(lockID, res)
		req.Owner = owner
		_, err := l.TryEnter(t.Context(), req)
		require.NoError(t, err)
	}
	take("family", "first", party.Shared("x"))
	take("family", "second", party.Shared("x"))
	take("b", "b", party.Exclusive("y"))
	queue := func(lockID, owner, name string) {
		req := request(lockID, party.Exclusive(name))
		req.Part, req.Owner, req.Order = "wait", owner, party.Order{Schedule: 1}
		_, err := l.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	queue("family", "second", "y")
	queue("b", "b", "x")
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "b waits for second on x, second waits for b on y", found[0].String())
}

// The second of two requests of a lock ID that wait in one queue joins the first when that is granted, so it does not
// wait for those between them.
func TestDeadlocks_BehindItsLockID_WaitsForThatAlone(t *testing.T) {
	t.Parallel()
	mem := lockcoretest.NewStore(time.Now)
	l := newLocker(t, mem, party.Config{})
	other, err := l.TryEnter(t.Context(), request("other", party.Exclusive("x")))
	require.NoError(t, err)
	ask := func(lockID, part string, mode party.Resource) ([]party.Lease, error) {
		req := request(lockID, mode)
		req.Part, req.Order = part, party.Order{Schedule: 1}
		return l.Enter(t.Context(), req)
	}
	for _, w := range []struct {
		lockID, part string
		res          party.Resource
	}{
		{"family", "reads", party.Shared("x")},
		{"reader", "reads", party.Shared("x")},
		{"family", "writes", party.Exclusive("x")},
		{"plain", "writes", party.Exclusive("x")},
		{"family", "writes too", party.Exclusive("x")},
	} {
		_, err := ask(w.lockID, w.part, w.res)
		require.ErrorIs(t, err, party.ErrBusy)
	}
	require.NoError(t, l.Leave(t.Context(), other...))
	_, err = ask("family", "reads", party.Shared("x"))
	require.NoError(t, err)
	reader, err := ask("reader", "reads", party.Shared("x"))
	require.NoError(t, err)
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found, "the reader may leave, and then the family goes on")
	require.NoError(t, l.Leave(t.Context(), reader...))
	for _, part := range []string{"writes", "writes too"} {
		_, err = ask("family", part, party.Exclusive("x"))
		require.NoError(t, err)
	}
}

// K2 and K3 ask for a resource in the name of one lock ID, one behind the other. Who holds it waits for what K3 holds. K2 is in nobody's
// way: if it gave up, the deadlock would stand.
func TestDeadlocks_AheadOfItsLockID_IsNotAVictim(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	orders := uint32(0)
	enter := func(lockID, owner, resource string) error {
		orders++
		req := request(lockID, party.Exclusive(resource))
		req.Owner, req.Part, req.Order, req.TTL = owner, owner, party.Order{Schedule: orders, Attempt: 1}, time.Hour
		_, err := l.Enter(t.Context(), req)
		return err
	}
	require.NoError(t, enter("L", "K3", "1"))
	require.NoError(t, enter("f", "F", "2"))
	require.ErrorIs(t, enter("L", "K2", "2"), party.ErrBusy)
	require.ErrorIs(t, enter("L", "K3", "2"), party.ErrBusy)
	require.ErrorIs(t, enter("f", "F", "1"), party.ErrBusy)
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Len(t, found[0].Waits, 2)
	for _, w := range found[0].Waits {
		require.NotEqual(t, "K2", w.Owner)
	}
}

func TestDeadlock_LimitOfOne_Ends(t *testing.T) {
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

func TestDeadlock_DrainingPart_IsNotAnEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: 4 * time.Second})
		_, err := l.TryEnter(t.Context(), request("A", party.Exclusive("r1")))
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), request("B", party.Exclusive("r2")))
		require.NoError(t, err)
		_, err = byForce(t.Context(), l, party.Release{Force: true, LockID: "A", Resources: []string{"r1"}, Reason: "op"})
		require.NoError(t, err)
		b := acquireLater(t.Context(), l, request("B", party.Exclusive("r1")))
		eventually(t, 1, waitersOf(e, "r1"), "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := acquireLater(ctx, l, request("A", party.Exclusive("r2")))
		select {
		case got := <-a:
			t.Fatal(got.err)
		case got := <-b:
			require.NoError(t, got.err)
		}
	})
}
