package mongoengine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// TestWhatIsContendedIsFoundByItsIndex asks the server how it finds a few documents among many that are idle.
func TestWhatIsContendedIsFoundByItsIndex(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	require.NoError(t, h.Prepare(t.Context()))
	idle := make([]any, 20_000)
	for i := range idle {
		idle[i] = bson.D{
			{Key: "_id", Value: fmt.Sprint("idle/", i)}, {Key: "held", Value: bson.A{}}, {Key: "waiters", Value: bson.A{}},
			{Key: "attn", Value: bson.A{}}, {Key: "idleAt", Value: time.Now()},
		}
	}
	_, err := h.coll.InsertMany(t.Context(), idle)
	require.NoError(t, err)
	op := engine.Acquire{Policy: policy, Resource: "contended", Part: "p", Order: 1, Mode: engine.Exclusive, TTL: 30_000}
	op.Queue, op.WaiterTTL, op.MaxWaiters = true, 30_000, 10
	for _, op.LockID = range []string{"a", "b"} {
		_, err := h.Acquire(t.Context(), op)
		require.NoError(t, err)
	}
	for _, q := range []engine.Query{
		{Waiting: true}, {Contended: true}, {Contended: true, LockIDPrefix: "a"},
		{Contended: true, LockID: "b"}, {Contended: true, Prefix: "c"},
	} {
		var found []string
		for d, err := range h.List(t.Context(), q) {
			require.NoError(t, err)
			found = append(found, d.ID)
		}
		require.Equal(t, []string{"contended"}, found, "%+v", q)
		plan, err := h.Explain(t.Context(), q)
		require.NoError(t, err)
		require.Contains(t, plan.String(), `"lockstep_attn"`, "%+v", q)
	}
}
