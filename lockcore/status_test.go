package lockcore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func list(t *testing.T, l *lockcore.Steps, f lockcore.Filter) []string {
	t.Helper()
	out := []string{}
	for _, s := range statuses(t, l, f) {
		out = append(out, s.Resource+" "+s.LockID+" "+string(s.State))
	}
	return out
}

func TestStatus_Filter_SelectsByEachField(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{Host: "host:1"})
	enter := func(queue bool, req lockcore.StepRequest) {
		req.Order, req.Part = lockcore.Order{Schedule: 1}, "p"
		_, err := enterOrTry(t.Context(), l.Steps, req, queue)
		if queue {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		} else {
			require.NoError(t, err)
		}
	}
	enter(false, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "a"}, Resources: []lockcore.Resource{lockcore.Exclusive("x/1")}, Owner: "saga", TTL: time.Minute})
	enter(false, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "b"}, Resources: []lockcore.Resource{lockcore.Shared("x/2")}, TTL: lockcore.Forever, Comment: "$$ROOT"})
	enter(false, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "c"}, Resources: []lockcore.Resource{lockcore.Shared("x/2")}, TTL: 3 * time.Hour})
	enter(true, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "d"}, Resources: []lockcore.Resource{lockcore.Exclusive("x/1")}, Owner: "saga"})
	enter(true, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "$owner"}, Resources: []lockcore.Resource{lockcore.Exclusive("x/2")}})

	everything := []string{"x/1 a holding", "x/1 d waiting", "x/2 b holding", "x/2 c holding", "x/2 $owner waiting"}
	for name, c := range map[string]struct {
		filter lockcore.Filter
		want   []string
	}{
		"nothing":           {lockcore.Filter{}, everything},
		"resource":          {lockcore.Filter{Resource: "x/1"}, everything[:2]},
		"prefix":            {lockcore.Filter{Prefix: "x/"}, everything},
		"prefix of none":    {lockcore.Filter{Prefix: "x/3"}, []string{}},
		"lock ID":           {lockcore.Filter{LockID: "$owner"}, everything[4:]},
		"lock ID's prefix":  {lockcore.Filter{LockIDPrefix: "$own"}, everything[4:]},
		"prefix of no lock": {lockcore.Filter{LockIDPrefix: "b "}, []string{}},
		"owner":             {lockcore.Filter{Owner: "saga"}, everything[:2]},
		"owner by lock ID":  {lockcore.Filter{Owner: "c"}, everything[3:4]},
		"lock ID and owner": {lockcore.Filter{LockID: "d", Owner: "saga"}, everything[1:2]},
		"waiting":           {lockcore.Filter{States: []lockcore.State{lockcore.StateWaiting}}, []string{everything[1], everything[4]}},
		"holding":           {lockcore.Filter{States: []lockcore.State{lockcore.StateHolding}, Resource: "x/2"}, everything[2:4]},
	} {
		require.Equal(t, c.want, list(t, l.Steps, c.filter), name)
	}
	for _, s := range statuses(t, l.Steps, lockcore.Filter{LockID: "d"}) {
		require.Equal(t, 1, s.Position)
		require.Equal(t, "p", s.Part)
	}
	for _, f := range []lockcore.Filter{{States: []lockcore.State{"sleeping"}}, {LockID: "\xff"}} {
		for _, err := range l.Status(t.Context(), f) {
			require.ErrorIs(t, err, lockcore.ErrInvalid)
		}
	}
}

func TestStatus_Silent_CountsFromTheLastRenewal(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{})
	silent := func() map[string]time.Duration {
		got := map[string]time.Duration{}
		for _, s := range statuses(t, l, lockcore.Filter{}) {
			got[s.LockID] = s.Silent
		}
		return got
	}
	hold := request("a", lockcore.Exclusive("r"))
	hold.Keep, hold.HoldTTL = true, time.Hour
	leases := enter(t, l, hold)
	wait := numbered("b", lockcore.Exclusive("r"))
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
	l, _ := inMemory(t, lockcore.Config{})
	for name, c := range map[string]struct {
		change func(*lockcore.StepRequest)
		want   time.Duration
		kept   bool
	}{
		"a part alone": {func(req *lockcore.StepRequest) { req.Keep = false }, 0, false},
		"kept":         {func(req *lockcore.StepRequest) { req.HoldTTL = 3 * time.Minute }, 3 * time.Minute, true},
		"without end":  {func(req *lockcore.StepRequest) { req.HoldTTL = lockcore.Forever }, lockcore.Forever, true},
		"without run":  {func(req *lockcore.StepRequest) { req.Run, req.Saga = "", "" }, time.Hour, false},
	} {
		req := ofRun("one", "step", c.change)
		req.Resources = []lockcore.Resource{lockcore.Exclusive(name)}
		leases := enter(t, l, req)
		for range 2 { // with its part, and without
			for _, s := range statuses(t, l, lockcore.Filter{Resource: name}) {
				require.Equal(t, c.want, s.HoldTTL, name)
				require.Equal(t, c.kept, s.Kept, name)
			}
			require.NoError(t, l.Leave(t.Context(), leases...))
		}
	}
}

// TestStatus_Claim_NamesItsRequest: by that it can be left, and a janitor knows whose it is.
func TestStatus_Claim_NamesItsRequest(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	holder := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
	req := request("b", lockcore.Exclusive("r"))
	req.Part, req.Order = "step", lockcore.Order{Schedule: 7, Attempt: 2}
	queue(t, l, req)
	require.NoError(t, holder.Leave(t.Context()))
	claims := statuses(t, l, lockcore.Filter{States: []lockcore.State{lockcore.StateClaimed}})
	require.Len(t, claims, 1)
	require.Equal(t, "step", claims[0].Part)
	require.Equal(t, req.Order, claims[0].Order)
	_, err := l.LeaveQueue(t.Context(), lockcore.Lease{Resource: "r", LockID: "b", Part: claims[0].Part, Order: claims[0].Order})
	require.NoError(t, err)
	require.Empty(t, list(t, l, lockcore.Filter{}))
}

// A step with a lock ID of its own that has several resources keeps them only while it waits. While it runs, they end with it, as the lock
// of a step with one resource does, and others get them after its TTL.
func TestStatus_StepWithSeveralResources_IsKeptOnlyWhileItWaits(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{HoldTTL: time.Hour})
	both := ofRun("one", "step", func(req *lockcore.StepRequest) {
		req.LockID, req.Within, req.TTL = req.LockID+"/step", req.LockID, 30*time.Second
		req.Resources = []lockcore.Resource{lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")}
	})
	seen := func() (kept []bool, holder string, endsIn time.Duration) {
		for _, s := range statuses(t, l, lockcore.Filter{LockID: both.LockID, States: []lockcore.State{lockcore.StateHolding}}) {
			kept, holder, endsIn = append(kept, s.Kept), s.Holder.String(), s.ExpiresIn
		}
		return kept, holder, endsIn
	}

	blocker := tryAcquire(t, l, request("other", lockcore.Exclusive("r/2")))
	_, err := l.Enter(t.Context(), both)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	kept, holder, endsIn := seen()
	require.Equal(t, []bool{true}, kept, "it has r/1 and waits for r/2")
	require.Contains(t, holder, "kept while its step waits for other resources")
	require.Equal(t, time.Hour, endsIn)

	require.NoError(t, blocker.Leave(t.Context()))
	enter(t, l, both)
	kept, holder, endsIn = seen()
	require.Equal(t, []bool{false, false}, kept, "it runs")
	require.Contains(t, holder, "for another 30s unless renewed")
	require.Equal(t, 30*time.Second, endsIn)
	_, err = l.TryEnter(t.Context(), request("next", lockcore.Exclusive("r/1")))
	var busy *lockcore.BusyError
	require.ErrorAs(t, err, &busy)
	require.NotContains(t, err.Error(), "kept")

	clock.Advance(30 * time.Second) // its worker has died
	enter(t, l, request("next", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")))
}

// A part that was cut off keeps others out until its lease ends. After that it is nothing, also while no write has removed it.
func TestStatus_DrainedPart_IsNotListed(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(clock.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l.Steps()) })
	leases := enter(t, l.Steps(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "a"}, Resources: []lockcore.Resource{lockcore.Exclusive("x")}, TTL: time.Minute})
	require.NoError(t, l.Steps().Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"x"}, FirstFence: leases[0].FirstFence, Force: true, Reason: "by hand"}))
	require.Equal(t, []string{"x a draining"}, list(t, l.Steps(), lockcore.Filter{}))
	clock.Advance(time.Minute)
	require.Empty(t, list(t, l.Steps(), lockcore.Filter{}))
}

// What is said of a whole hold is that of its first request, however many parts it has; the parts are listed in it.
func TestStatus_SeveralParts_AreListedInTheHold(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{Host: "host:1"})
	found := func() lockcore.Status {
		all := statuses(t, l, lockcore.Filter{})
		require.Len(t, all, 1)
		return all[0]
	}
	enter := func(step string) []lockcore.Lease {
		leases, err := l.Enter(t.Context(), ofRun("one", step, func(req *lockcore.StepRequest) {
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
	require.Equal(t, []lockcore.Running{
		{Part: first[0].Part, Silent: 20 * time.Second, ExpiresIn: 40 * time.Second}, {Part: second[0].Part, ExpiresIn: time.Minute},
	}, both.Running)
	require.Equal(t, []any{"parent", "host:1", began.Since}, []any{both.Owner, both.Host, both.Since})
	require.NoError(t, l.Leave(t.Context(), first...))
	require.NoError(t, l.Leave(t.Context(), second...))
	kept := found()
	require.Empty(t, kept.Running)
	require.Equal(t, []any{"parent", began.Since}, []any{kept.Owner, kept.Since})
}
