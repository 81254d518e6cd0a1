package mongoengine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// check looks at the collection's layout once, before the first operation. The ID of a lock
// document is a string, so a document with an ObjectID was written by something else: a client of
// mongo-lock, usually, whose locks are not seen here. The look-up is one range of the index on _id.
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
		if _, err = e.identify(ctx); err == nil {
			e.checked.Store(true)
		}
		return err
	case err != nil:
		return fmt.Errorf("lockstep: look at the layout of %s: %w", e.coll.Name(), err)
	}
	found := "a document whose _id is an ObjectID"
	if foreign.Resource != nil {
		found += ", with a field resource, as clients of mongo-lock write it"
	}
	return &engine.LayoutError{Collection: e.coll.Name(), Found: found, Help: "Use a collection of its own for these locks."}
}

// identityID is the _id of the collection's own document. No resource has it: it is no string.
const identityID = int32(0)

// Identify reads the collection's own document, and makes it if there is none.
func (e *Engine) Identify(ctx context.Context) (engine.Identity, error) {
	if err := e.check(ctx); err != nil {
		return engine.Identity{}, err
	}
	return e.identify(ctx)
}

func (e *Engine) identify(ctx context.Context) (found engine.Identity, err error) {
	own := bson.D{{Key: "_id", Value: identityID}}
	for attempt := 0; err == nil && found.ID == "" && attempt < 3; attempt++ {
		if found, err = e.readIdentity(ctx, own); err == nil && found.ID == "" {
			_, err = e.coll.InsertOne(ctx, append(own[:1:1], v("version", engine.LayoutVersion), v("id", rand.Text())))
		}
		if mongo.IsDuplicateKeyError(err) {
			err = nil
		}
	}
	switch {
	case err != nil:
		return found, fmt.Errorf("lockstep: read or write the identity of %s: %w", e.coll.Name(), err)
	case found.ID == "" || found.Version != engine.LayoutVersion:
		return found, &engine.LayoutError{
			Collection: e.coll.Name(), Found: fmt.Sprintf("it says version %d, and this is version %d", found.Version, engine.LayoutVersion),
			Help: "Use a collection of its own for these locks, or the version of Lockstep that made it.",
		}
	}
	return found, nil
}

// readIdentity is empty if the collection says nothing of itself yet.
func (e *Engine) readIdentity(ctx context.Context, own bson.D) (engine.Identity, error) {
	cursor, err := e.coll.Aggregate(ctx, mongo.Pipeline{on("$match", own), on("$set", doc(v("at", "$$NOW")))})
	if err != nil {
		return engine.Identity{}, err
	}
	found := []engine.Identity{}
	err = cursor.All(ctx, &found)
	return append(found, engine.Identity{})[0], err
}
