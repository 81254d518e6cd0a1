package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMeasureLoad_Queue_HasAllWaiters(t *testing.T) {
	t.Parallel()
	b := &scaleBench{uri: testenv.MongoURI(t), db: testenv.Mongo(t), each: 2 * time.Second}
	row, err := b.measureLoad(t.Context(), loadCase{what: "waiters", lockers: 2, goroutines: 10, resources: 2, collection: "waiters", queued: true})
	require.NoError(t, err)
	require.Positive(t, row.PerSecond)
	require.GreaterOrEqual(t, row.Writes, 0.9) // in one process a hand-over is one write
	require.Greater(t, row.DocumentKB, 1.0)    // nine waiters or so
}

func TestMeasureBackground_IdleDocuments_AreNotListed(t *testing.T) {
	t.Parallel()
	b := &scaleBench{uri: testenv.MongoURI(t), db: testenv.Mongo(t)}
	f, err := b.newFleet(t.Context(), 1, "documents")
	require.NoError(t, err)
	defer f.Close(t.Context())
	require.NoError(t, fillQueues(t.Context(), f.Lockers[0].Steps()))
	require.NoError(t, b.insertIdle(t.Context(), f.Lockers[0].Steps(), 0, 10))
	require.NoError(t, b.insertIdle(t.Context(), f.Lockers[0].Steps(), 10, 2_010))
	count, err := b.db.Collection("documents").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "scale/"}}}})
	require.NoError(t, err)
	require.EqualValues(t, 2_010, count)
	row, err := measureBackground(t.Context(), f.Lockers[0].Steps(), 2_010)
	require.NoError(t, err)
	require.Equal(t, 20*6, row.Listed)
	require.Positive(t, row.SearchMS)
}
