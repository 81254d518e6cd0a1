package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// TestDeadlock_Victim_Ends has a hold x and ask for y, and b hold y and ask for x.
func TestDeadlock_Victim_Ends(t *testing.T) {
	t.Parallel()
	started := func(lockID string, req *lockcore.StepRequest) {
		req.Started = map[string]time.Time{"a": time.Now(), "b": time.Now().Add(-time.Hour)}[lockID]
	}
	for name, c := range map[string]struct {
		change func(lockID string, req *lockcore.StepRequest)
		res    func(name string) lockcore.Resource
		victim string
	}{
		"the last to queue":                    {nil, lockcore.Exclusive, "b"},
		"the last to queue for seats":          {nil, func(name string) lockcore.Resource { return lockcore.SharedLimit(name, 1) }, "b"},
		"the last to start":                    {started, lockcore.Exclusive, "a"},
		"not a request that is never a victim": {func(lockID string, req *lockcore.StepRequest) { req.NeverVictim = lockID == "b" }, lockcore.Exclusive, "a"},
		"the last to start if all are never victims": {func(lockID string, req *lockcore.StepRequest) {
			started(lockID, req)
			req.NeverVictim = true
		}, lockcore.Exclusive, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, db := inMemory(t, lockcore.Config{})
			held := map[string][]lockcore.Lease{"a": enter(t, l, request("a", c.res("x"))), "b": enter(t, l, request("b", c.res("y")))}
			waits := map[string]<-chan acquired{}
			for _, w := range [][2]string{{"a", "y"}, {"b", "x"}} {
				req := request(w[0], c.res(w[1]))
				if c.change != nil {
					c.change(w[0], &req)
				}
				waits[w[0]] = acquireLater(t.Context(), l, req)
				if w[0] == "a" {
					requireWaiting(t, db, 1, "y")
				}
			}
			deadlock := errorAs[*lockcore.DeadlockError](t, (<-waits[c.victim]).err)
			require.ErrorIs(t, deadlock, lockcore.ErrDeadlock)
			require.Contains(t, deadlock.Cycle, "a waits for b on y")
			require.Contains(t, deadlock.Cycle, "b waits for a on x")
			// The other continues once the victim's owner has released what it held.
			leave(t, l, held[c.victim]...)
			other := map[string]string{"a": "b", "b": "a"}[c.victim]
			require.NoError(t, requireGranted(t, waits[other]).Release(t.Context()))
		})
	}
}

func TestDeadlocks_Cycle_IsListedAndBroken(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	for _, w := range [][2]string{{"a", "x"}, {"b", "y"}, {"c", "z"}} {
		enter(t, l, request(w[0], lockcore.Exclusive(w[1])))
	}
	for _, w := range [][2]string{{"a", "y"}, {"b", "z"}, {"bystander", "y"}, {"c", "x"}} {
		queue(t, l, numbered(w[0], lockcore.Exclusive(w[1])))
	}
	broken, err := l.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, broken, 1)
	require.Equal(t, "a waits for b on y, b waits for c on z, c waits for a on x", broken[0].String())
	require.Equal(t, "c", broken[0].Waits[broken[0].Victim].Owner, "it queued last")
	again, err := l.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, again, "one victim is enough")
	require.Len(t, db.Document("y").Waiters, 2)

	// The victim repeats its request late, with a greater order, and after many other locks of the resource have ended.
	victim := numbered("c", lockcore.Exclusive("x"))
	victim.Order.Attempt = 2
	for i := range 2 * rules.MaxReleases {
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: fmt.Sprint("other/", i), Resources: []string{"x"}, Order: lockcore.LastAttempt(1)}))
	}
	_, err = l.Enter(t.Context(), victim)
	require.ErrorIs(t, err, lockcore.ErrDeadlock)
	victim.Order.Attempt++ // it got the error, and has left
	queue(t, l, victim)
}

// Both searches read from a server that is behind, so both find the deadlock.
func TestBreakDeadlocks_EndedSinceTheReads_WithdrawsNobody(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		enter(t, l, request("a", lockcore.Exclusive("x")))
		enter(t, l, request("b", lockcore.Exclusive("y")))
		a, b := numbered("a", lockcore.Exclusive("y")), numbered("b", lockcore.Exclusive("x"))
		queue(t, l, a)
		queue(t, l, b)
		behind := newLocker(t, newLaggingStore(db, "x", "y"), lockcore.Config{})
		found, err := behind.Deadlocks(t.Context())
		require.NoError(t, err)
		require.Equal(t, "b", found[0].Waits[found[0].Victim].Owner)
		_, err = l.LeaveQueue(t.Context(), lockcore.Lease{Resource: "y", LockID: a.LockID, Part: a.Part, Order: a.Order})
		require.NoError(t, err)
		broken, err := behind.BreakDeadlocks(t.Context())
		require.NoError(t, err)
		require.Empty(t, broken)
		queue(t, l, b)
	})
}

// The process has both documents in its cache, as it wrote them.
func TestBreakDeadlocks_Confirmation_ReadsTheDocuments(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		enter(t, l, request("a", lockcore.Exclusive("x")))
		enter(t, l, request("b", lockcore.Exclusive("y")))
		queue(t, l, numbered("a", lockcore.Exclusive("y")))
		queue(t, l, numbered("b", lockcore.Exclusive("x")))
		before := db.count(of(kindLoad))
		broken, err := l.BreakDeadlocks(t.Context())
		require.NoError(t, err)
		require.Len(t, broken, 1)
		require.Equal(t, before+2, db.count(of(kindLoad)), "one for each document")
	})
}

// A program that waits under a second lock ID for what its owner holds is refused.
func TestAcquire_OwnerWaitsForItself_IsADeadlock(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	first, second := request("job/1", lockcore.Exclusive("x")), request("job/2", lockcore.Exclusive("x"))
	first.Owner, second.Owner = "job", "job"
	enter(t, l, first)
	deadlock := errorAs[*lockcore.DeadlockError](t, (<-acquireLater(t.Context(), l, second)).err)
	require.Equal(t, "job waits for job on x", deadlock.Cycle)
}

// TestDeadlocks_Waits_AreEdges lists the deadlocks after some requests hold, and others have queued.
func TestDeadlocks_Waits_AreEdges(t *testing.T) {
	t.Parallel()
	type ask struct {
		lockID, owner, part string
		res                 lockcore.Resource
	}
	seats := lockcore.SharedLimit("seats", 2)
	for name, c := range map[string]struct {
		holds, waits []ask
		want         []string
	}{
		"a chain is not a cycle": {
			[]ask{{"a", "", "", lockcore.Exclusive("x")}, {"b", "", "", lockcore.Exclusive("y")}}, []ask{{"a", "", "", lockcore.Exclusive("y")}}, nil,
		},
		"a limit may get room: b may leave": {
			[]ask{{"a", "", "", seats}, {"b", "", "", seats}, {"c", "", "", lockcore.Exclusive("x")}},
			[]ask{{"c", "", "", seats}, {"a", "", "", lockcore.Exclusive("x")}}, nil,
		},
		"waiters ahead, although the modes are compatible": {
			[]ask{{"a", "", "", lockcore.SharedLimit("x", 2)}, {"c", "", "", lockcore.Exclusive("y")}},
			[]ask{{"b", "", "", lockcore.SharedLimit("x", 1)}, {"c", "", "", lockcore.Shared("x")}, {"a", "", "", lockcore.Exclusive("y")}},
			[]string{"a waits for c on y, c waits for b on x, b waits for a on x"},
		},
		"parts of a lock ID have their own owners": {
			[]ask{{"family", "first", "", lockcore.Shared("x")}, {"family", "second", "other", lockcore.Shared("x")}, {"b", "", "", lockcore.Exclusive("y")}},
			[]ask{{"family", "second", "", lockcore.Exclusive("y")}, {"b", "", "", lockcore.Exclusive("x")}},
			[]string{"b waits for second on x, second waits for b on y"},
		},
		// K2 blocks no other request: if it gave up, the deadlock would remain.
		"a waiter of the same lock ID ahead is not in the cycle": {
			[]ask{{"L", "K3", "", lockcore.Exclusive("1")}, {"f", "F", "", lockcore.Exclusive("2")}},
			[]ask{{"L", "K2", "2", lockcore.Exclusive("2")}, {"L", "K3", "3", lockcore.Exclusive("2")}, {"f", "F", "", lockcore.Exclusive("1")}},
			[]string{"F waits for K3 on 1, K3 waits for F on 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := inMemory(t, lockcore.Config{})
			for _, a := range c.holds {
				req := request(a.lockID, a.res)
				req.Owner = a.owner
				enter(t, l, req)
			}
			for _, a := range c.waits {
				req := numbered(a.lockID, a.res)
				req.Owner, req.Part = a.owner, "wait"+a.part
				queue(t, l, req)
			}
			found, err := l.Deadlocks(t.Context())
			require.NoError(t, err)
			var got []string
			for _, d := range found {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}

// A claim that is not confirmed ends by itself, so the other waits of its party make no cycle with it.
func TestDeadlocks_Claim_IsNotAnEdge(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	holder := enter(t, l, request("h", lockcore.Exclusive("x")))
	enter(t, l, request("b", lockcore.Exclusive("y")))
	queue(t, l, numbered("a", lockcore.Exclusive("x")))
	leave(t, l, holder...)
	second := numbered("a", lockcore.Exclusive("y"))
	second.Part = "second"
	queue(t, l, second)
	queue(t, l, numbered("b", lockcore.Exclusive("x")))
	d := db.Document("x")
	require.NotNil(t, d.Claim(rules.Caller{LockID: "a", Part: "p"}))
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// The second of two requests of a lock ID that wait in one queue joins the first when that is granted, so it does not
// wait for those between them.
func TestDeadlocks_BehindItsLockID_WaitsForThatAlone(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	other := enter(t, l, request("other", lockcore.Exclusive("x")))
	ask := func(lockID, part string, mode lockcore.Resource) ([]lockcore.Lease, error) {
		req := request(lockID, mode)
		req.Part, req.Order = part, lockcore.Order{Schedule: 1}
		return l.Enter(t.Context(), req)
	}
	for _, w := range []struct {
		lockID, part string
		res          lockcore.Resource
	}{
		{"family", "reads", lockcore.Shared("x")},
		{"reader", "reads", lockcore.Shared("x")},
		{"family", "writes", lockcore.Exclusive("x")},
		{"plain", "writes", lockcore.Exclusive("x")},
		{"family", "writes too", lockcore.Exclusive("x")},
	} {
		_, err := ask(w.lockID, w.part, w.res)
		require.ErrorIs(t, err, lockcore.ErrBusy)
	}
	require.NoError(t, l.Leave(t.Context(), other...))
	_, err := ask("family", "reads", lockcore.Shared("x"))
	require.NoError(t, err)
	reader, err := ask("reader", "reads", lockcore.Shared("x"))
	require.NoError(t, err)
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found, "the reader may leave, and then the family goes on")
	require.NoError(t, l.Leave(t.Context(), reader...))
	for _, part := range []string{"writes", "writes too"} {
		_, err = ask("family", part, lockcore.Exclusive("x"))
		require.NoError(t, err)
	}
}

func TestUpgrade_TwoUpgrades_OneIsTheVictim(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	sessions := map[string]*lockcore.Session{}
	results := make(chan error, 2)
	for _, id := range []string{"a", "b"} {
		s := tryAcquire(t, l, request(id, lockcore.Shared("r")))
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
	require.ErrorIs(t, first, lockcore.ErrDeadlock)
	require.NoError(t, second)
	for _, s := range sessions {
		require.NoError(t, s.Release(t.Context()))
	}
}

func TestDeadlock_DrainingPart_IsNotAnEdge(t *testing.T) {
	virtual(t, lockcore.Config{TTL: 4 * time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		enter(t, l, request("A", lockcore.Exclusive("r1")))
		tryAcquire(t, l, request("B", lockcore.Exclusive("r2")))
		revoke(t, l, "A", "op", "r1")
		b := acquireLater(t.Context(), l, request("B", lockcore.Exclusive("r1")))
		requireWaiting(t, e, 1, "r1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := acquireLater(ctx, l, request("A", lockcore.Exclusive("r2")))
		select {
		case got := <-a:
			t.Fatal(got.err)
		case got := <-b:
			require.NoError(t, got.err)
		}
	})
}

// A step inside a workflow that holds the resource is granted ahead of the queue, so it does not wait for the waiters.
func TestBreakDeadlocks_StepThatSkipsTheQueue_IsInNone(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	h := enter(t, l, request("h", lockcore.Exclusive("r")))
	v := numbered("v", lockcore.Shared("r"))
	queue(t, l, v)
	w := numbered("w", lockcore.Shared("r"))
	w.Run, w.Keep, w.HoldOnly, w.HoldTTL = "one", true, true, time.Hour
	queue(t, l, w)
	queue(t, l, numbered("z", lockcore.Exclusive("r")))
	step := numbered("w/1", lockcore.Exclusive("r"))
	step.Run, step.Within, step.Owner = "one", "w", "w"
	queue(t, l, step)
	leave(t, l, h...)
	leases := confirm(t, l, v)
	broken, err := l.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, broken)
	leave(t, l, leases...)
	step.Order.Attempt++
	enter(t, l, step)
}
