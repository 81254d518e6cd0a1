package mongoengine

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// check looks at the collection's layout once, before the first operation. The ID of a lock document
// is a string, so a document with an ObjectID was written by something else: a client of mongo-lock,
// usually, whose locks are not seen here. The look-up is one range of the index on _id.
func (e *Engine) check(ctx context.Context) error {
	if e.checked.Load() {
		return nil
	}
	var foreign struct {
		Resource any `bson:"resource"`
	}
	err := e.coll.FindOne(ctx,
		bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bson.ObjectID{}}}}},
		options.FindOne().SetProjection(bson.D{{Key: "resource", Value: 1}})).Decode(&foreign)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		e.checked.Store(true)
		return nil
	case err != nil:
		return fmt.Errorf("lockstep: look at the layout of %s: %w", e.coll.Name(), err)
	}
	found := "a document whose _id is an ObjectID"
	if foreign.Resource != nil {
		found += ", with a field resource, as clients of mongo-lock write it"
	}
	return &engine.LayoutError{Collection: e.coll.Name(), Found: found, Help: "Use a collection of its own for these locks."}
}
