package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func openLocker(t *testing.T) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.New(testenv.Mongo(t).Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func phones(lockID string) lockcore.Request {
	return lockcore.Request{LockID: lockID, Resources: []lockcore.Resource{lockcore.Pool("phones")}}
}

// Each session has a member of its own, and sessions of one lock ID share it. What waits gets the member that comes.
func TestPool_Members_AreGrantedInTurn(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	require.NoError(t, l.SetPolicy(ctx, lockcore.Policy{Name: "phones", Members: []string{"one", "two"}, Reason: "a test"}))
	member := func(s *lockcore.Session, err error) string {
		require.NoError(t, err)
		require.Equal(t, lockcore.ModePool, s.Leases()[0].Mode)
		return s.Leases()[0].Member
	}
	require.Equal(t, "one", member(l.TryAcquire(ctx, phones("a"))))
	require.Equal(t, "two", member(l.TryAcquire(ctx, phones("b"))))
	require.Equal(t, "one", member(l.TryAcquire(ctx, phones("a"))))
	_, err := l.TryAcquire(ctx, phones("c"))
	busy := errorAs[*lockcore.BusyError](t, err)
	require.Len(t, busy.Holders, 2)
	require.ElementsMatch(t, []string{"one", "two"}, []string{busy.Holders[0].Member, busy.Holders[1].Member})
	waits := acquireLater(ctx, l.Steps(), request("c", lockcore.Pool("phones")))
	require.Eventually(t, func() bool {
		return len(statuses(t, l.Steps(), lockcore.Filter{States: []lockcore.State{lockcore.StateWaiting}})) == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, l.EditPolicy(ctx, lockcore.Policy{Name: "phones", By: "ann"}, func(p *lockcore.Policy) error {
		p.Members = append(p.Members, "three")
		return nil
	}))
	require.Equal(t, "three", requireGranted(t, waits).Leases()[0].Member)
}

// A member out of service is not granted, and taking it out ends no hold.
func TestPool_MemberIsOut_IsNotGranted(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	pool := lockcore.Policy{Name: "phones", Members: []string{"one", "two"}, Out: map[string]string{"one": "display broken"}}
	require.NoError(t, l.SetPolicy(ctx, pool))
	s, err := l.TryAcquire(ctx, phones("a"))
	require.NoError(t, err)
	require.Equal(t, "two", s.Leases()[0].Member)
	_, err = l.TryAcquire(ctx, phones("b"))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	pool.Out = map[string]string{"two": "lost"}
	require.NoError(t, l.SetPolicy(ctx, pool))
	_, err = l.Steps().Renew(ctx, s.Leases()...)
	require.NoError(t, err)
	policies, err := l.Policies(ctx)
	require.NoError(t, err)
	require.Equal(t, pool.Out, policies[0].Out)
	require.Equal(t, pool.Members, policies[0].Members)
}

func TestPool_WrongKind_IsRefused(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	_, err := l.Acquire(ctx, phones("a"))
	require.ErrorIs(t, err, lockcore.ErrNoPool)
	require.ErrorContains(t, err, "lockstep pool")
	require.NoError(t, l.SetPolicy(ctx, lockcore.Policy{Name: "phones", Members: []string{"one"}}))
	for _, r := range []lockcore.Resource{lockcore.Exclusive("phones"), lockcore.Shared("phones"), lockcore.SharedLimit("phones", 2)} {
		_, err = l.Acquire(ctx, lockcore.Request{LockID: "a", Resources: []lockcore.Resource{r}})
		require.ErrorIs(t, err, lockcore.ErrInvalid)
		require.ErrorContains(t, err, "pool")
	}
	s, err := l.Acquire(ctx, phones("a"))
	require.NoError(t, err)
	require.ErrorIs(t, s.Upgrade(ctx, "phones"), lockcore.ErrInvalid)
	require.NoError(t, s.Downgrade(ctx))
}

func TestSetPolicy_Pool_ContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	for field, p := range map[string]lockcore.Policy{
		"Policy.Prefix":     {Name: "p", Prefix: true, Members: []string{"m"}},
		"Policy.Limit":      {Name: "p", Limit: 1, Members: []string{"m"}},
		"Policy.Until":      {Name: "p", Until: time.Now().Add(time.Hour), Members: []string{"m"}},
		"Policy.Members[1]": {Name: "p", Members: []string{"m", "m"}},
		"Policy.Members[0]": {Name: "p", Members: []string{""}},
		"Policy.Out":        {Name: "p", Members: []string{"m"}, Out: map[string]string{"n": ""}},
	} {
		requireInvalid(t, l.SetPolicy(ctx, p), field)
	}
	require.NoError(t, l.SetPolicy(ctx, lockcore.Policy{Name: "p", Members: []string{"m"}}))
	requireInvalid(t, l.SetPolicy(ctx, lockcore.Policy{Name: "q", Members: []string{"m"}}), "Policy.Members")
	policies, err := l.Policies(ctx)
	require.NoError(t, err)
	require.Len(t, policies, 1)
}

// A request of priority 1 passes others, once priorities are in force. An operator promotes a waiter.
func TestPriority_UrgentRequest_PassesOthers(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	_, err := l.TryAcquire(ctx, lockcore.Request{LockID: "holder", Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err)
	wait := func(lockID string, priority int) {
		req := numbered(lockID, lockcore.Exclusive("r"))
		req.Priority = priority
		queue(t, l.Steps(), req)
	}
	order := func() (out []string) {
		for _, s := range statuses(t, l.Steps(), lockcore.Filter{States: []lockcore.State{lockcore.StateWaiting}}) {
			out = append(out, fmt.Sprint(s.LockID, " ", s.Priority))
		}
		return out
	}
	wait("a", 0)
	wait("b", 1)
	require.Equal(t, []string{"a 3", "b 3"}, order(), "they are not in force yet")
	_, err = l.Promote(ctx, "r", "b")
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.NoError(t, l.EnablePriorities(ctx, "ann", "a test"))
	wait("c", 5)
	wait("d", 1)
	require.Equal(t, []string{"d 1", "a 3", "b 3", "c 5"}, order())
	found, err := l.Promote(ctx, "r", "c")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{"c 0", "d 1", "a 3", "b 3"}, order())
	found, err = l.Promote(ctx, "r", "nobody")
	require.NoError(t, err)
	require.False(t, found)
	_, err = l.Acquire(ctx, lockcore.Request{LockID: "x", Priority: 6, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	requireInvalid(t, err, "Request.Priority")
}

// Two owners hold a member each, and each waits for the pool of the other: both pools have one member.
func TestDeadlocks_PoolsOfOne_AreFound(t *testing.T) {
	t.Parallel()
	l, ctx := openLocker(t), t.Context()
	for i, name := range []string{"p", "q"} {
		require.NoError(t, l.SetPolicy(ctx, lockcore.Policy{Name: name, Members: []string{fmt.Sprint("m", i)}}))
		_, err := l.TryAcquire(ctx, lockcore.Request{LockID: name, Resources: []lockcore.Resource{lockcore.Pool(name)}})
		require.NoError(t, err)
	}
	p, q := numbered("p", lockcore.Pool("q")), numbered("q", lockcore.Pool("p"))
	queue(t, l.Steps(), p)
	queue(t, l.Steps(), q)
	found, err := l.Deadlocks(ctx)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, l.EditPolicy(ctx, lockcore.Policy{Name: "p"}, func(p *lockcore.Policy) error {
		p.Members = append(p.Members, "another")
		return nil
	}))
	found, err = l.Deadlocks(ctx)
	require.NoError(t, err)
	require.Empty(t, found)
}

// A request of priority 1 waits at all times, and holds for half a minute. Others get the lock nevertheless, once they have waited for as
// many periods of ten minutes as their priority is greater; ahead of them is then at most the request that waited already.
func TestPriority_StreamOfUrgentRequests_PassesNobodyForLong(t *testing.T) {
	for priority, bound := range map[int]time.Duration{2: 10 * time.Minute, 3: 20 * time.Minute, 5: 40 * time.Minute} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
				require.NoError(t, l.EnablePriorities(t.Context(), "ann", "a test"))
				held := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
				req := request("patient", lockcore.Exclusive("r"))
				req.Priority = priority
				patient := acquireLater(t.Context(), l, req)
				requireWaiting(t, db, 1, "r")
				began := time.Now()
				for n := 0; ; n++ {
					req := request(fmt.Sprint("urgent ", n), lockcore.Exclusive("r"))
					req.Priority = 1
					urgent := acquireLater(t.Context(), l, req)
					requireWaiting(t, db, 2, "r")
					elapse(30 * time.Second)
					require.NoError(t, held.Leave(t.Context()))
					select {
					case got := <-urgent:
						require.NoError(t, got.err)
						held = got.session
						continue
					case got := <-patient:
						require.NoError(t, got.err)
						require.NoError(t, got.session.Leave(t.Context()))
						require.NoError(t, requireGranted(t, urgent).Leave(t.Context()))
					}
					break
				}
				require.Greater(t, time.Since(began), bound-time.Minute)
				require.LessOrEqual(t, time.Since(began), bound+time.Minute)
			})
		})
	}
}
