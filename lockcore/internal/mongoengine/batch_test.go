package mongoengine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

func TestBatchThatFailsKeepsNoOtherFromBeingSent(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	const n = 502 // two batches
	name := func(i int) string { return fmt.Sprintf("r/%03d", i) }
	_, err := h.Acquire(t.Context(), engine.Acquire{Policy: policy, Resource: name(0), LockID: "a", Part: "p", Order: 1, Mode: engine.Exclusive, TTL: 30_000, HoldTTL: 30_000})
	require.NoError(t, err)
	var held bson.D
	require.NoError(t, h.coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: name(0)}}).Decode(&held))
	var copies []bson.D
	ops := []engine.Renew{{Policy: policy, Resource: name(0), LockID: "a", Part: "p", Order: 1}}
	for i := 1; i < n; i++ {
		d := bson.D{{Key: "_id", Value: name(i)}}
		for _, e := range held {
			if e.Key != "_id" {
				d = append(d, e)
			}
		}
		copies = append(copies, d)
		ops = append(ops, engine.Renew{Policy: policy, Resource: name(i), LockID: "a", Part: "p", Order: 1})
	}
	_, err = h.coll.InsertMany(t.Context(), copies)
	require.NoError(t, err)
	_, err = h.coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: name(7)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "held", Value: "broken"}}}})
	require.NoError(t, err)

	renewed, err := h.RenewAll(t.Context(), ops)
	require.Error(t, err)
	require.False(t, renewed[7])
	require.True(t, renewed[500] && renewed[501], "the second batch was sent")
	for _, i := range []int{0, 499} {
		d, err := h.Renew(t.Context(), ops[i])
		require.NoError(t, err)
		require.NotNil(t, d.Part("a", "p", 1), "each can be renewed alone")
	}
}
