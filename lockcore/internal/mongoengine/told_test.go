package mongoengine_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// TestWhatIsNotKnownOfAHoldThatEndedIsAbsent reads what is stored, where null and absent are not the same.
func TestWhatIsNotKnownOfAHoldThatEndedIsAbsent(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	held := func(name string) []bson.M {
		var stored struct {
			Held []bson.M `bson:"held"`
		}
		require.NoError(t, h.coll.FindOne(t.Context(), bson.M{"_id": name}).Decode(&stored))
		return stored.Held
	}
	acquire := func(name, lockID string) {
		op := engine.Acquire{
			Policy: policy, Resource: name, LockID: lockID, Part: "p", Order: 1, Mode: engine.Exclusive, TTL: 30_000, HoldTTL: 30_000, Owner: lockID,
		}
		op.Queue, op.WaiterTTL, op.MaxWaiters = true, 30_000, 10
		_, err := h.Acquire(t.Context(), op)
		require.NoError(t, err)
	}
	queue := func(name string) {
		acquire(name, "a")
		acquire(name, "b")
	}

	queue("ended")
	_, err := h.Leave(t.Context(), engine.Leave{Policy: policy, Resource: "ended", LockID: "a", Part: "p", Order: 1})
	require.NoError(t, err)
	after := held("ended")[0]["after"].(bson.D)
	require.Len(t, after, 2, "neither owner nor trace: %v", after)

	// Where the document of the hold has gone another way, no hold ended in the write that makes the claim.
	queue("nothing")
	_, err = h.coll.UpdateOne(t.Context(), bson.M{"_id": "nothing"}, bson.M{"$set": bson.M{"held": bson.A{}}})
	require.NoError(t, err)
	_, err = h.Renew(t.Context(), engine.Renew{Policy: policy, Resource: "nothing", LockID: "a", Part: "p", Order: 1})
	require.NoError(t, err)
	claim := held("nothing")[0]
	require.Equal(t, engine.StateClaimed, claim["state"])
	require.NotContains(t, claim, "after")
	acquire("nothing", "b")
	part := held("nothing")[0]
	require.Equal(t, engine.StateRunning, part["state"])
	require.Contains(t, part, "claimedAt")
	require.NotContains(t, part, "after")
}
