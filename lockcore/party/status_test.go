package party_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

func list(t *testing.T, l *party.Locker, f party.Filter) []string {
	t.Helper()
	out := []string{}
	for _, s := range statuses(t, l, f) {
		out = append(out, s.Resource+" "+s.LockID+" "+string(s.State))
	}
	return out
}

func TestStatus_Filter_SelectsByEachField(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{Host: "host:1"})
	enter := func(queue bool, req party.Request) {
		req.Order, req.Part = party.Order{Schedule: 1}, "p"
		_, err := enterOrTry(t.Context(), l.Locker, req, queue)
		if queue {
			require.ErrorIs(t, err, party.ErrBusy)
		} else {
			require.NoError(t, err)
		}
	}
	enter(false, party.Request{LockID: "a", Resources: []party.Resource{party.Exclusive("x/1")}, Owner: "saga", TTL: time.Minute})
	enter(false, party.Request{LockID: "b", Resources: []party.Resource{party.Shared("x/2")}, TTL: party.Forever, Comment: "$$ROOT"})
	enter(false, party.Request{LockID: "c", Resources: []party.Resource{party.Shared("x/2")}, TTL: 3 * time.Hour})
	enter(true, party.Request{LockID: "d", Resources: []party.Resource{party.Exclusive("x/1")}, Owner: "saga"})
	enter(true, party.Request{LockID: "$owner", Resources: []party.Resource{party.Exclusive("x/2")}})

	everything := []string{"x/1 a holding", "x/1 d waiting", "x/2 b holding", "x/2 c holding", "x/2 $owner waiting"}
	for name, c := range map[string]struct {
		filter party.Filter
		want   []string
	}{
		"nothing":           {party.Filter{}, everything},
		"resource":          {party.Filter{Resource: "x/1"}, everything[:2]},
		"prefix":            {party.Filter{Prefix: "x/"}, everything},
		"prefix of none":    {party.Filter{Prefix: "x/3"}, []string{}},
		"lock ID":           {party.Filter{LockID: "$owner"}, everything[4:]},
		"lock ID's prefix":  {party.Filter{LockIDPrefix: "$own"}, everything[4:]},
		"prefix of no lock": {party.Filter{LockIDPrefix: "b "}, []string{}},
		"owner":             {party.Filter{Owner: "saga"}, everything[:2]},
		"owner by lock ID":  {party.Filter{Owner: "c"}, everything[3:4]},
		"lock ID and owner": {party.Filter{LockID: "d", Owner: "saga"}, everything[1:2]},
		"waiting":           {party.Filter{States: []party.State{party.StateWaiting}}, []string{everything[1], everything[4]}},
		"holding":           {party.Filter{States: []party.State{party.StateHolding}, Resource: "x/2"}, everything[2:4]},
	} {
		require.Equal(t, c.want, list(t, l.Locker, c.filter), name)
	}
	for _, s := range statuses(t, l.Locker, party.Filter{LockID: "d"}) {
		require.Equal(t, 1, s.Position)
		require.Equal(t, "p", s.Part)
	}
	for _, f := range []party.Filter{{States: []party.State{"sleeping"}}, {LockID: "\xff"}} {
		for _, err := range l.Status(t.Context(), f) {
			require.ErrorIs(t, err, party.ErrInvalid)
		}
	}
}

func TestStatus_Silent_CountsFromTheLastRenewal(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, party.Config{})
	silent := func() map[string]time.Duration {
		got := map[string]time.Duration{}
		for _, s := range statuses(t, l, party.Filter{}) {
			got[s.LockID] = s.Silent
		}
		return got
	}
	hold := request("a", party.Exclusive("r"))
	hold.Persist, hold.HoldTTL = true, time.Hour
	leases := enter(t, l, hold)
	wait := numbered("b", party.Exclusive("r"))
	queue(t, l, wait)
	clock.Advance(20 * time.Second)
	require.Equal(t, map[string]time.Duration{"a": 20 * time.Second, "b": 20 * time.Second}, silent())
	_, err := l.Renew(t.Context(), leases...)
	require.NoError(t, err)
	clock.Advance(5 * time.Second)
	require.Equal(t, map[string]time.Duration{"a": 5 * time.Second, "b": 25 * time.Second}, silent())
	require.NoError(t, l.Leave(t.Context(), leases...))
	clock.Advance(time.Minute)
	require.GreaterOrEqual(t, silent()["a"], time.Minute)
}

// TestStatus_KeptHold_HasItsTTL and by which TTL.
func TestStatus_KeptHold_HasItsTTL(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	for name, c := range map[string]struct {
		change func(*party.Request)
		want   time.Duration
	}{
		"a part alone": {func(req *party.Request) { req.Persist = false }, 0},
		"kept":         {func(req *party.Request) { req.HoldTTL = 3 * time.Minute }, 3 * time.Minute},
		"without end":  {func(req *party.Request) { req.HoldTTL = party.Forever }, party.Forever},
	} {
		req := ofRun("one", "step", c.change)
		req.Resources = []party.Resource{party.Exclusive(name)}
		leases := enter(t, l, req)
		for range 2 { // with its part, and without
			for _, s := range statuses(t, l, party.Filter{Resource: name}) {
				require.Equal(t, c.want, s.HoldTTL, name)
			}
			require.NoError(t, l.Leave(t.Context(), leases...))
		}
	}
}

// TestStatus_Claim_NamesItsRequest: by that it can be left, and a janitor knows whose it is.
func TestStatus_Claim_NamesItsRequest(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	holder := tryAcquire(t, l, request("a", party.Exclusive("r")))
	req := request("b", party.Exclusive("r"))
	req.Part, req.Order = "step", party.Order{Schedule: 7, Attempt: 2}
	queue(t, l, req)
	require.NoError(t, holder.Leave(t.Context()))
	claims := statuses(t, l, party.Filter{States: []party.State{party.StateClaimed}})
	require.Len(t, claims, 1)
	require.Equal(t, "step", claims[0].Part)
	require.Equal(t, req.Order, claims[0].Order)
	_, err := l.LeaveQueue(t.Context(), party.Lease{Resource: "r", LockID: "b", Part: claims[0].Part, Order: claims[0].Order})
	require.NoError(t, err)
	require.Empty(t, list(t, l, party.Filter{}))
}

// A part that was cut off keeps others out until its lease ends. After that it is nothing, also while no write has removed it.
func TestStatus_DrainedPart_IsNotListed(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l, err := party.NewWithStore(lockcoretest.NewStore(clock.Now), party.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l) })
	leases := enter(t, l, party.Request{LockID: "a", Resources: []party.Resource{party.Exclusive("x")}, TTL: time.Minute})
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"x"}, FirstFence: leases[0].FirstFence, Force: true, Reason: "by hand"}))
	require.Equal(t, []string{"x a draining"}, list(t, l, party.Filter{}))
	clock.Advance(time.Minute)
	require.Empty(t, list(t, l, party.Filter{}))
}

// What is said of a whole hold is that of its first request, however many parts it has; the parts are listed in it.
func TestStatus_SeveralParts_AreListedInTheHold(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, party.Config{Host: "host:1"})
	found := func() party.Status {
		all := statuses(t, l, party.Filter{})
		require.Len(t, all, 1)
		return all[0]
	}
	enter := func(step string) []party.Lease {
		leases, err := l.Enter(t.Context(), ofRun("one", step, func(req *party.Request) {
			req.Owner, req.Comment, req.HoldTTL, req.TTL = "parent", "of "+step, time.Hour, time.Minute
		}))
		require.NoError(t, err)
		return leases
	}
	first := enter("first")
	began := found()
	clock.Advance(20 * time.Second)
	second := enter("second")
	both := found()
	require.Equal(t, []party.Running{
		{Part: first[0].Part, Silent: 20 * time.Second, ExpiresIn: 40 * time.Second}, {Part: second[0].Part, ExpiresIn: time.Minute},
	}, both.Running)
	require.Equal(t, []any{"parent", "host:1", began.Since}, []any{both.Owner, both.Host, both.Since})
	require.NoError(t, l.Leave(t.Context(), first...))
	require.NoError(t, l.Leave(t.Context(), second...))
	kept := found()
	require.Empty(t, kept.Running)
	require.Equal(t, []any{"parent", began.Since}, []any{kept.Owner, kept.Since})
}
