package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Ten requests with a limit of three wait in one process. Another raises the limit to five, and lowers it to two.
func TestSetPolicy_LimitChanges_EveryProcessFollows(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func() *lockcore.Locker {
		l, err := lockcore.New(coll, lockcore.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close(context.WithoutCancel(ctx)) })
		return l
	}
	worker, operator := open(), open()
	granted := make(chan *lockcore.Session, 10)
	for i := range 10 {
		go func() {
			s, err := worker.Acquire(ctx, lockcore.Request{LockID: fmt.Sprint(i), Resources: []lockcore.Resource{lockcore.SharedLimit("partner/acme", 3)}})
			if err == nil {
				granted <- s
			}
		}()
	}
	var held []*lockcore.Session
	take := func(n int) {
		for range n {
			select {
			case s := <-granted:
				held = append(held, s)
			case <-ctx.Done():
				t.Fatalf("nothing was granted: %d held, %d wanted", len(held), n)
			}
		}
	}
	take(3)
	require.NoError(t, operator.SetPolicy(ctx, lockcore.Policy{Name: "partner/", Prefix: true, Limit: 5, By: "ann", Reason: "a test"}))
	take(2)
	require.NoError(t, operator.SetPolicy(ctx, lockcore.Policy{Name: "partner/acme", Limit: 2}))
	_, err := worker.Policies(ctx) // which follows them from then on
	require.NoError(t, err)
	for _, s := range held[:4] {
		require.NoError(t, s.Leave(ctx))
	}
	take(1)
	require.Empty(t, granted)
	require.NoError(t, operator.RemovePolicy(ctx, lockcore.Policy{Name: "partner/acme"}))
	take(3)
	policies, err := worker.Policies(ctx)
	require.NoError(t, err)
	require.Len(t, policies, 1)
	require.Equal(t, "ann", policies[0].By)
}

// One process sets policies. Another waits, and a third locks and unlocks what only it uses, from its cache. Both follow within ten
// seconds, and neither is told.
func TestSetPolicy_ThreeProcesses_FollowWithinTenSeconds(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, operator *lockcore.Steps, db *faultStore) {
		waiting, cached := newLocker(t, db, lockcore.Config{}), newLocker(t, db, lockcore.Config{})
		queued, busy := lockcore.SharedLimit("queued", 1), lockcore.SharedLimit("busy", 2)
		tryAcquire(t, waiting, request("a", queued))
		waits := acquireLater(t.Context(), waiting, request("b", queued))
		requireWaiting(t, db, 1, "queued")
		tryAcquire(t, cached, request("a", busy))
		second := func() error {
			s, err := cached.TryAcquire(t.Context(), request("b", busy))
			if err == nil {
				err = s.Leave(t.Context())
			}
			return err
		}
		require.NoError(t, second())
		set := time.Now()
		require.NoError(t, operator.SetPolicy(t.Context(), lockcore.Policy{Name: "queued", Limit: 2}))
		require.NoError(t, operator.SetPolicy(t.Context(), lockcore.Policy{Name: "busy", Limit: 1}))
		for second() == nil {
			elapse(100 * time.Millisecond)
		}
		require.ErrorIs(t, second(), lockcore.ErrBusy)
		require.LessOrEqual(t, time.Since(set), 10*time.Second)
		requireGranted(t, waits)
		require.LessOrEqual(t, time.Since(set), 10*time.Second)
	})
}

// A Locker that only lists follows the policies, too. The policy is reported with the requests whose limit it replaces.
func TestStatus_Policy_IsThatOfTheResource(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	open := func() *lockcore.Locker {
		l, err := lockcore.New(coll, lockcore.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
		return l
	}
	operator, reader := open(), open()
	for _, r := range []lockcore.Resource{lockcore.SharedLimit("partner/acme", 3), lockcore.Shared("partner/all"), lockcore.SharedLimit("printer", 2)} {
		_, err := operator.Acquire(t.Context(), lockcore.Request{LockID: "a", Resources: []lockcore.Resource{r}})
		require.NoError(t, err)
	}
	policies := func() map[string]*lockcore.Policy {
		found := map[string]*lockcore.Policy{}
		for st, err := range reader.Status(t.Context(), lockcore.Filter{}) {
			require.NoError(t, err)
			found[st.Resource] = st.Policy
		}
		return found
	}
	require.Equal(t, map[string]*lockcore.Policy{"partner/acme": nil, "partner/all": nil, "printer": nil}, policies())
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	require.NoError(t, operator.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/", Prefix: true, Limit: 5, Until: until, By: "ann", Reason: "a test"}))
	require.Eventually(t, func() bool { return policies()["partner/acme"] != nil }, time.Minute, 100*time.Millisecond)
	found := policies()
	require.Nil(t, found["partner/all"])
	require.Nil(t, found["printer"])
	set := found["partner/acme"]
	require.False(t, set.At.IsZero())
	require.Equal(t, &lockcore.Policy{Name: "partner/", Prefix: true, Limit: 5, Until: until, By: "ann", Reason: "a test", At: set.At}, set)
}

// Programs tell the refusals of a change apart, and a refused change leaves the policies as they were.
func TestSetPolicy_Refused_ErrorsAreTyped(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{Name: "printer", Limit: 3}))

	requireInvalid := func(err error, field, value, bound string) {
		t.Helper()
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.ErrorIs(t, err, lockcore.ErrInvalid)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, value, invalid.Value)
		require.Contains(t, invalid.Bound, bound)
	}
	ended := time.Now().Add(-time.Hour)
	err = l.SetPolicy(t.Context(), lockcore.Policy{Name: "printer", Limit: 5, Until: ended})
	requireInvalid(err, "Policy.Until", ended.UTC().Format(time.RFC3339), "a time after that of the database, which is 2")
	require.ErrorIs(t, l.RemovePolicy(t.Context(), lockcore.Policy{Name: "printer", Prefix: true}), lockcore.ErrNoPolicy)

	stored := func(number, size int) {
		t.Helper()
		policies := bson.A{bson.D{{Key: "name", Value: "printer"}, {Key: "limit", Value: int64(3)}}}
		for i := range number - 1 {
			policies = append(policies, bson.D{{Key: "name", Value: fmt.Sprintf("%0*d", size, i)}, {Key: "limit", Value: int64(1)}})
		}
		_, err := coll.UpdateByID(t.Context(), store.IdentityID, bson.D{{Key: "$set", Value: bson.D{{Key: "policies", Value: policies}}}})
		require.NoError(t, err)
	}
	stored(1000, 3)
	requireInvalid(l.SetPolicy(t.Context(), lockcore.Policy{Name: "more", Limit: 5}), "number of policies", "1001", "at most 1000: ")
	require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{Name: "printer", Limit: 4, Until: time.Now().Add(time.Hour)}), "it replaces one")
	stored(513, 512) // which have 262,144 bytes, and 7 for the name printer
	requireInvalid(l.SetPolicy(t.Context(), lockcore.Policy{Name: "more", Limit: 5}), "size of all policies", "262155 bytes", "at most 262144 bytes of names and reasons: ")

	identity, err := coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: store.IdentityID}}).Raw()
	require.NoError(t, err)
	list, err := identity.Lookup("policies").Array().Values()
	require.NoError(t, err)
	require.Len(t, list, 513)
}
