package lockcore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func list(t *testing.T, l *lockcore.Locker, f lockcore.Filter) []string {
	t.Helper()
	out := []string{}
	for s, err := range l.Status(t.Context(), f) {
		require.NoError(t, err)
		out = append(out, s.Resource+" "+s.LockID+" "+string(s.State))
	}
	return out
}

func TestStatusIsFilteredByEachField(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{Host: "host:1"})
	enter := func(queue bool, req lockcore.Request) {
		req.Order, req.Part = lockcore.Order{Schedule: 1}, "p"
		_, err := l.Enter(t.Context(), req, queue)
		if queue {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		} else {
			require.NoError(t, err)
		}
	}
	enter(false, lockcore.Request{LockID: "a", Resources: []lockcore.Resource{lockcore.Exclusive("x/1")}, Owner: "saga", TTL: time.Minute})
	enter(false, lockcore.Request{LockID: "b", Resources: []lockcore.Resource{lockcore.Shared("x/2")}, TTL: lockcore.Forever, Comment: "$$ROOT"})
	enter(false, lockcore.Request{LockID: "c", Resources: []lockcore.Resource{lockcore.Shared("x/2")}, TTL: 3 * time.Hour})
	enter(true, lockcore.Request{LockID: "d", Resources: []lockcore.Resource{lockcore.Exclusive("x/1")}, Owner: "saga"})
	enter(true, lockcore.Request{LockID: "$owner", Resources: []lockcore.Resource{lockcore.Exclusive("x/2")}})

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
		require.Equal(t, c.want, list(t, l.Locker, c.filter), name)
	}
	for s, err := range l.Status(t.Context(), lockcore.Filter{LockID: "d"}) {
		require.NoError(t, err)
		require.Equal(t, 1, s.Position)
		require.Equal(t, "p", s.Part)
	}
	for _, f := range []lockcore.Filter{{States: []lockcore.State{"sleeping"}}, {LockID: "\xff"}} {
		for _, err := range l.Status(t.Context(), f) {
			require.ErrorIs(t, err, lockcore.ErrInvalid)
		}
	}
}

func TestForceReleaseNeedsAReason(t *testing.T) {
	t.Parallel()
	l := on(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	_, err := l.ReleaseHeld(t.Context(), lockcore.Release{Force: true, LockID: "a", Resources: []string{"r"}, FirstFence: 1})
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Release.Reason", invalid.Field)
	err = l.Release(t.Context(), lockcore.Release{Force: true, LockID: "a", Resources: []string{"r"}, FirstFence: 1, Reason: "why"})
	require.NoError(t, err, "it may have been released before")
}

func TestWriteWithALowerFenceIsRefusedAndToldByWhich(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("accounts")
	byID := bson.D{{Key: "_id", Value: "$42"}}
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "$42"}, {Key: "balance", Value: 1}})
	require.NoError(t, err)
	set := func(n int) bson.D { return bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: n}}}} }
	older, newer := lockcore.Lease{Resource: "r", Fence: 7}, lockcore.Lease{Resource: "r", Fence: 9}
	require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, older, byID, set(2)))
	require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, older, byID, set(3)), "the same fence may write again")
	max := bson.D{{Key: "$max", Value: bson.D{{Key: "balance", Value: 4}}}}
	require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, newer, byID, max))

	err = lockcore.UpdateFenced(t.Context(), coll, older, byID, set(5))
	var fenced *lockcore.FencedError
	require.ErrorAs(t, err, &fenced)
	require.ErrorIs(t, err, lockcore.ErrFenced)
	require.Equal(t, &lockcore.FencedError{Resource: "r", Fence: 7, By: 9}, fenced)
	var doc struct{ Balance int64 }
	require.NoError(t, coll.FindOne(t.Context(), byID).Decode(&doc))
	require.EqualValues(t, 4, doc.Balance)

	nobody := bson.D{{Key: "_id", Value: "nobody"}}
	require.ErrorIs(t, lockcore.UpdateFenced(t.Context(), coll, newer, nobody, set(1)), mongo.ErrNoDocuments)
	for _, update := range []any{
		bson.D{{Key: "balance", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: lockcore.FenceField, Value: 1}}}}, 7, nil,
		bson.D{{Key: "$max", Value: bson.D{{Key: lockcore.FenceField + ".least", Value: 1}}}},
	} {
		require.ErrorIs(t, lockcore.UpdateFenced(t.Context(), coll, newer, byID, update), lockcore.ErrInvalid)
	}
	require.ErrorIs(t, lockcore.UpdateFenced(t.Context(), coll, lockcore.Lease{}, byID, set(1)), lockcore.ErrInvalid)
}

func TestSilenceIsCountedFromTheLastSignOfLife(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := on(t, lockcoretest.NewStore(clock.Now), lockcore.Config{})
	silent := func() map[string]time.Duration {
		got := map[string]time.Duration{}
		for s, err := range l.Status(t.Context(), lockcore.Filter{}) {
			require.NoError(t, err)
			got[s.LockID] = s.Silent
		}
		return got
	}
	hold := one("a", lockcore.Exclusive("r"))
	hold.Persist, hold.HoldTTL = true, time.Hour
	leases, err := l.Enter(t.Context(), hold, false)
	require.NoError(t, err)
	wait := one("b", lockcore.Exclusive("r"))
	wait.Part, wait.Order = "p", lockcore.Order{Schedule: 1}
	_, err = l.Enter(t.Context(), wait, true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	clock.Advance(20 * time.Second)
	require.Equal(t, map[string]time.Duration{"a": 20 * time.Second, "b": 20 * time.Second}, silent())
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err)
	clock.Advance(5 * time.Second)
	require.Equal(t, map[string]time.Duration{"a": 5 * time.Second, "b": 25 * time.Second}, silent())
	require.NoError(t, l.Leave(t.Context(), leases...))
	clock.Advance(time.Minute)
	require.GreaterOrEqual(t, silent()["a"], time.Minute)
}

// TestStatusSaysWhichHoldsAreKept and by which TTL.
func TestStatusSaysWhichHoldsAreKept(t *testing.T) {
	t.Parallel()
	l := on(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	for name, c := range map[string]struct {
		change func(*lockcore.Request)
		want   time.Duration
	}{
		"a part alone": {func(req *lockcore.Request) { req.Persist = false }, 0},
		"kept":         {func(req *lockcore.Request) { req.HoldTTL = 3 * time.Minute }, 3 * time.Minute},
		"without end":  {func(req *lockcore.Request) { req.HoldTTL = lockcore.Forever }, lockcore.Forever},
	} {
		req := run("one", "step", c.change)
		req.Resources = []lockcore.Resource{lockcore.Exclusive(name)}
		leases, err := l.Enter(t.Context(), req, false)
		require.NoError(t, err)
		for range 2 { // with its part, and without
			for s, err := range l.Status(t.Context(), lockcore.Filter{Resource: name}) {
				require.NoError(t, err)
				require.Equal(t, c.want, s.HoldTTL, name)
			}
			require.NoError(t, l.Leave(t.Context(), leases...))
		}
	}
}

// TestStatusNamesTheRequestOfAClaim: by that it can be left, and a janitor knows whose it is.
func TestStatusNamesTheRequestOfAClaim(t *testing.T) {
	t.Parallel()
	l := on(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	holder, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	req := one("b", lockcore.Exclusive("r"))
	req.Part, req.Order = "step", lockcore.Order{Schedule: 7, Attempt: 2}
	_, err = l.Enter(t.Context(), req, true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.NoError(t, holder.Leave(t.Context()))
	var claims []lockcore.Status
	for s, err := range l.Status(t.Context(), lockcore.Filter{States: []lockcore.State{lockcore.StateClaimed}}) {
		require.NoError(t, err)
		claims = append(claims, s)
	}
	require.Len(t, claims, 1)
	require.Equal(t, "step", claims[0].Part)
	require.Equal(t, req.Order, claims[0].Order)
	require.NoError(t, l.LeaveQueue(t.Context(), lockcore.Lease{Resource: "r", LockID: "b", Part: claims[0].Part, Order: claims[0].Order}))
	require.Empty(t, list(t, l, lockcore.Filter{}))
}

// A part that was cut off keeps others out until its lease ends. After that it is nothing, also while no write has removed it.
func TestStatusDoesNotListAPartThatHasDrained(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(clock.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l) })
	leases, err := l.Enter(t.Context(), lockcore.Request{LockID: "a", Resources: []lockcore.Resource{lockcore.Exclusive("x")}, TTL: time.Minute}, false)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"x"}, FirstFence: leases[0].FirstFence, Force: true, Reason: "by hand"}))
	require.Equal(t, []string{"x a draining"}, list(t, l, lockcore.Filter{}))
	clock.Advance(time.Minute)
	require.Empty(t, list(t, l, lockcore.Filter{}))
}

// What is said of a whole hold is that of its first request, however many parts it has; the parts are listed in it.
func TestStatusOfAHoldThatSeveralStepsWorkIn(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	l := on(t, lockcoretest.NewStore(clock.Now), lockcore.Config{Host: "host:1"})
	found := func() lockcore.Status {
		var all []lockcore.Status
		for s, err := range l.Status(t.Context(), lockcore.Filter{}) {
			require.NoError(t, err)
			all = append(all, s)
		}
		require.Len(t, all, 1)
		return all[0]
	}
	enter := func(step string) []lockcore.Lease {
		leases, err := l.Enter(t.Context(), run("one", step, func(req *lockcore.Request) {
			req.Owner, req.Comment, req.HoldTTL, req.TTL = "parent", "of "+step, time.Hour, time.Minute
		}), false)
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
