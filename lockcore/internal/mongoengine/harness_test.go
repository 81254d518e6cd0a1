package mongoengine_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var policy = engine.Policy{ClaimTTL: 20_000}

// harness lets time pass for documents of a collection. The server's clock cannot be moved: instead every time in a
// document is, the other way.
type harness struct {
	*mongoengine.Engine
	coll *mongo.Collection
	// forgets makes each operation one of a process that knows nothing of the resource, so that it tries its short form.
	forgets bool
}

var _ lockcoretest.Harness = harness{}

func onMongo(t *testing.T) harness {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	return harness{Engine: mongoengine.New(coll, 24*time.Hour), coll: coll}
}

func (h harness) engine() *mongoengine.Engine {
	if h.forgets {
		h.Forget()
	}
	return h.Engine
}

func (h harness) Acquire(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	return h.engine().Acquire(ctx, op)
}

// AcquireAll is that of a process that knows nothing: two resources whose names have one hash share what is known, so that
// the command may end before a resource that is free.
func (h harness) AcquireAll(ctx context.Context, ops []engine.Acquire) ([]engine.Document, error) {
	return mongoengine.New(h.coll, 24*time.Hour).AcquireAll(ctx, ops)
}

func (h harness) Leave(ctx context.Context, op engine.Leave) (engine.Document, error) {
	return h.engine().Leave(ctx, op)
}

func (h harness) Release(ctx context.Context, op engine.Release) (engine.Document, error) {
	return h.engine().Release(ctx, op)
}

// Travel moves every time in the stored document back.
func (h harness) Travel(ctx context.Context, resource string, d time.Duration) error {
	byName := bson.D{{Key: "_id", Value: resource}}
	var stored bson.D
	if err := h.coll.FindOne(ctx, byName).Decode(&stored); err != nil {
		return err
	}
	_, err := h.coll.ReplaceOne(ctx, byName, shift(stored, d))
	return err
}

// stored is the document as it stands, queue included; empty where there is none.
func (h harness) stored(ctx context.Context, resource string) (engine.Document, error) {
	var d engine.Document
	err := h.coll.FindOne(ctx, bson.D{{Key: "_id", Value: resource}}).Decode(&d)
	if err == mongo.ErrNoDocuments { //nolint:errorlint // the driver returns it as it is
		err = nil
	}
	return d, err
}

func shift(v any, by time.Duration) any {
	switch v := v.(type) {
	case bson.DateTime:
		if !v.Time().Before(engine.Never) {
			return v
		}
		return v - bson.DateTime(by.Milliseconds())
	case bson.D:
		for i := range v {
			v[i].Value = shift(v[i].Value, by)
		}
	case bson.A:
		for i := range v {
			v[i] = shift(v[i], by)
		}
	}
	return v
}
