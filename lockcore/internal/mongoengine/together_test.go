package mongoengine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Between the command that grants several resources and the read of what it granted, an operator releases the first. The
// answer must not be that none were granted: the caller would leave the others held.
func TestSeveralOfWhichOneIsReleasedBeforeTheReadAreNotSaidToBeNone(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	var ops []engine.Acquire
	for _, name := range []string{"1", "2", "3"} {
		ops = append(ops, engine.Acquire{Policy: policy, Resource: name, LockID: "a", Part: "p", Order: 1, Mode: engine.Exclusive, TTL: 60_000, HoldTTL: 60_000})
	}
	ended := false
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			if e.CommandName != "aggregate" || ended {
				return
			}
			docs, err := h.Read(ctx, "1")
			if err != nil || len(docs) == 0 || docs[0].HoldFence("a") == 0 {
				return // the look at the collection's layout
			}
			_, err = h.Release(ctx, engine.Release{Policy: policy, Resource: "1", LockID: "a", FirstFence: docs[0].HoldFence("a"), Force: true, Now: true, Reason: "by hand"})
			ended = err == nil
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	docs, err := mongoengine.New(c.Database(h.coll.Database().Name()).Collection(h.coll.Name()), 24*time.Hour).AcquireAll(t.Context(), ops)
	require.True(t, ended)
	require.Error(t, err, "%v", docs)
}
