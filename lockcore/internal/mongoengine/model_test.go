package mongoengine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// TestPipelinesFollowTheSpecification runs random operations of a few parties on one resource. After each,
// the stored document must be the one that the specification makes of the document before, at the time
// that the database used.
func TestPipelinesFollowTheSpecification(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	eng := mongoengine.New(coll, 24*time.Hour)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &model{coll: coll, eng: eng, name: fmt.Sprintf("$resource/%d", run)}
		n := rapid.IntRange(1, 25).Draw(rt, "operations")
		for range n {
			m.step(rt)
		}
	})
}

type model struct {
	coll *mongo.Collection
	eng  *mongoengine.Engine
	name string
	doc  engine.Document
	// fresh is the last request with a new part, of which there were as many as parts says.
	fresh engine.Acquire
	parts int
}

func (m *model) step(t *rapid.T) {
	ctx := context.Background()
	lockID := rapid.SampledFrom([]string{"$owner", "a.b", "c", "$$NOW"}).Draw(t, "lockID")
	part := rapid.SampledFrom([]string{"", "$p", m.fresh.Part}).Draw(t, "part")
	order := rapid.Int64Range(1, 6).Draw(t, "order")
	var expect func(engine.Document, time.Time) engine.Document
	var got engine.Document
	var err error
	switch kind := rapid.SampledFrom([]string{"acquire", "acquire", "acquire", "acquire", "renew", "leave", "release", "release", "withdraw", "purge", "wait"}).Draw(t, "kind"); kind {
	case "acquire":
		op := m.acquire(t, lockID, part, order)
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Acquire(d, op, now) }
		got, err = m.eng.Acquire(ctx, op)
	case "renew":
		op := engine.Renew{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Downgrade: rapid.Bool().Draw(t, "downgrade")}
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Renew(d, op, now) }
		got, err = m.eng.Renew(ctx, op)
	case "leave":
		op := engine.Leave{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Undo: rapid.Bool().Draw(t, "undo")}
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Leave(d, op, now) }
		got, err = m.eng.Leave(ctx, op)
	case "release":
		op := engine.Release{Policy: policy, Resource: m.name, LockID: lockID, Order: order}
		if rapid.Bool().Draw(t, "leaving") {
			op.Leaving = &part
		}
		if rapid.IntRange(0, 3).Draw(t, "force") == 0 {
			op.Force, op.Reason = true, "$because"
		}
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Release(d, op, now) }
		got, err = m.eng.Release(ctx, op)
	case "withdraw":
		op := engine.Withdraw{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Reason: "$because"}
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Withdraw(d, op, now) }
		got, err = m.eng.Withdraw(ctx, op)
	case "purge":
		op := engine.Purge{Policy: policy, Resource: m.name, Reason: "$because"}
		expect = func(d engine.Document, now time.Time) engine.Document { return lockcoretest.Purge(d, op, now) }
		got, err = m.eng.Purge(ctx, op)
	case "wait":
		m.travel(t, time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds"))*time.Second)
		return
	}
	require.NoError(t, err)
	want := expect(m.doc, got.At)
	var stored engine.Document
	require.NoError(t, m.coll.FindOne(ctx, bson.D{{Key: "_id", Value: m.name}}).Decode(&stored))
	require.Equal(t, render(t, want), render(t, stored))
	m.doc = stored
}

func (m *model) acquire(t *rapid.T, lockID, part string, order int64) engine.Acquire {
	ttl := rapid.SampledFrom([]int64{0, 10_000, 30_000}).Draw(t, "ttl")
	hold := ttl
	if ttl > 0 && rapid.Bool().Draw(t, "long") {
		hold = 60_000
	}
	seldom := func(name string) bool { return rapid.IntRange(0, 5).Draw(t, name) == 0 }
	op := engine.Acquire{
		Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, TTL: ttl, HoldTTL: hold,
		Mode:  rapid.SampledFrom([]string{engine.Exclusive, engine.SharedBy, engine.SharedBy}).Draw(t, "mode"),
		Keep:  rapid.Bool().Draw(t, "keep"),
		Queue: rapid.Bool().Draw(t, "queue"), WaiterTTL: 40_000, MaxWaiters: 3,
		Held: seldom("held"), Reacquire: seldom("reacquire"),
		NewFence: seldom("newFence"), Refresh: seldom("refresh"),
		Owner: rapid.SampledFrom([]string{lockID, "$saga"}).Draw(t, "owner"), Host: "$host", Comment: "$$ROOT", Trace: "$trace",
	}
	if op.Mode == engine.SharedBy {
		op.Limit = rapid.SampledFrom([]int64{0, 0, 1, 2}).Draw(t, "limit")
	}
	if seldom("fresh") {
		if m.fresh.LockID != "" && seldom("again") {
			return m.fresh
		}
		m.parts++
		op.Fresh, op.Keep, op.Queue, op.Refresh, op.Part = true, false, false, false, fmt.Sprint("fresh/", m.parts)
		m.fresh = op
	}
	return op
}

// travel moves every time in the stored document back, which is what the passing of time looks like.
func (m *model) travel(t *rapid.T, by time.Duration) {
	if m.doc.ID == "" {
		return
	}
	var d bson.D
	require.NoError(t, m.coll.FindOne(context.Background(), bson.D{{Key: "_id", Value: m.name}}).Decode(&d))
	shifted := shift(d, by)
	_, err := m.coll.ReplaceOne(context.Background(), bson.D{{Key: "_id", Value: m.name}}, shifted)
	require.NoError(t, err)
	m.doc = engine.Document{}
	require.NoError(t, m.coll.FindOne(context.Background(), bson.D{{Key: "_id", Value: m.name}}).Decode(&m.doc))
}

func render(t *rapid.T, d engine.Document) string {
	raw, err := bson.MarshalExtJSONIndent(d, false, false, "", "  ")
	require.NoError(t, err)
	return string(raw)
}
