package mongoengine_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestEngineOnTheirLayoutConforms(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	lockcoretest.Conformance(t, func(*testing.T) lockcoretest.Harness { return onTheirs{eng, coll} })
}

type onTheirs struct {
	*mongoengine.Shared
	coll *mongo.Collection
}

// Read adds what a scenario asks for and this layout never has: nothing removes its documents by idleAt.
func (h onTheirs) Read(ctx context.Context, resources ...string) ([]engine.Document, error) {
	docs, err := h.Shared.Read(ctx, resources...)
	for i := range docs {
		docs[i].IdleAt = engine.Never
	}
	return docs, err
}

// Travel moves back every time in the document: ours and theirs.
func (h onTheirs) Travel(ctx context.Context, resource string, d time.Duration) error {
	var doc bson.D
	if err := h.coll.FindOne(ctx, bson.M{"resource": resource}).Decode(&doc); err != nil {
		return err
	}
	_, err := h.coll.ReplaceOne(ctx, bson.M{"resource": resource}, shift(doc, d))
	return err
}
