package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func limit(name string, n int64) rules.PolicyChange {
	return rules.PolicyChange{PolicyID: rules.PolicyID{Name: name}, To: &rules.Policy{Limit: n}, By: "ann", Reason: "why"}
}

// Two processes set policies; a third one, which has read nothing yet, finds both.
func TestSetPolicy_SeveralStores_AllFind(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	for i, name := range []string{"a", "b", "a"} {
		require.NoError(t, store.New(coll).SetPolicy(t.Context(), limit(name, int64(i+1))))
	}
	loaded, err := store.New(coll).Load(t.Context(), "a")
	require.NoError(t, err)
	p := loaded.Identity.Policies
	require.Len(t, p.List, 2)
	require.Equal(t, int64(3), p.For("a", loaded.At).Limit)
	require.Equal(t, int64(2), p.For("b", loaded.At).Limit)
	require.Nil(t, p.For("c", loaded.At))
	require.Len(t, p.Changes, 3)
	require.WithinDuration(t, loaded.At, p.Changes[2].At, time.Minute)
	require.Equal(t, rules.PolicyLayout, loaded.Identity.Version)
}

// One read tells a process of a change, and no further read is sent until the next.
func TestSetPolicy_LaterLoads_ReadPoliciesOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.SetPolicy(t.Context(), limit("a", 1)))
	_, err := s.Load(t.Context(), "a")
	require.NoError(t, err)
	before := s.checker.Count("find")
	for range 3 {
		_, err := s.Load(t.Context(), "a")
		require.NoError(t, err)
	}
	require.Equal(t, before+3, s.checker.Count("find"))
}

// A policy of a later version is damaged for this one: it stays as it is when another one is changed.
func TestSetPolicy_UnreadablePolicy_Stays(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	s := store.New(coll)
	require.NoError(t, s.SetPolicy(t.Context(), limit("a", 1)))
	for _, later := range []bson.D{
		{{Key: "name", Value: "pool"}, {Key: "members", Value: bson.A{"m"}}},
		{{Key: "name", Value: "negative"}, {Key: "limit", Value: int64(-1)}},
	} {
		_, err := coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: store.IdentityID}}, bson.D{{Key: "$push", Value: bson.D{{Key: "policies", Value: later}}}})
		require.NoError(t, err)
	}
	require.NoError(t, s.SetPolicy(t.Context(), limit("b", 2)))
	loaded, err := store.New(coll).Load(t.Context())
	require.NoError(t, err)
	require.True(t, loaded.Identity.Policies.For("pool", loaded.At).Unreadable)
	require.True(t, loaded.Identity.Policies.For("negative", loaded.At).Unreadable)
	raw, err := coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: store.IdentityID}}).Raw()
	require.NoError(t, err)
	require.Equal(t, "m", raw.Lookup("policies", "1", "members", "0").StringValue())
	require.NoError(t, s.SetPolicy(t.Context(), rules.PolicyChange{PolicyID: rules.PolicyID{Name: "pool"}}))
	require.ErrorContains(t, s.SetPolicy(t.Context(), rules.PolicyChange{PolicyID: rules.PolicyID{Name: "pool"}}), `no policy for "pool"`)
}

// Another process changes the identity all the time.
func TestChangeIdentity_ChangedByOthers_Ends(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tried := 0
	err := store.New(coll).ChangeIdentity(ctx, func(bson.Raw, *rules.Identity) (bson.D, error) {
		tried++
		_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: 0}}, bson.D{{Key: "$set", Value: bson.D{{Key: "epoch", Value: fmt.Sprint(tried)}}}})
		return bson.D{{Key: "epoch", Value: "mine"}}, err
	})
	require.ErrorContains(t, err, "was changed by others 10 times")
	require.Equal(t, 10, tried)
}
