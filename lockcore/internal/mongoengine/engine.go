package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Engine keeps the documents in a MongoDB collection.
type Engine struct {
	coll      *mongo.Collection
	retention time.Duration
	// shared tells that the collection is in the layout of mongo-lock, and checked that its layout was looked at.
	shared  bool
	checked atomic.Bool
}

// New clones coll with majority, journaled writes, majority reads and the primary. Documents of idle
// resources go after retention.
func New(coll *mongo.Collection, retention time.Duration) *Engine {
	journaled := true
	wc := writeconcern.Majority()
	wc.Journal = &journaled
	return &Engine{
		coll: coll.Clone(options.Collection().
			SetWriteConcern(wc).
			SetReadConcern(readconcern.Majority()).
			SetReadPreference(readpref.Primary())),
		retention: retention,
	}
}

// Prepare makes the TTL index on idleAt, or the indexes of mongo-lock. A collection in the other layout is refused
// with an *engine.LayoutError.
func (e *Engine) Prepare(ctx context.Context) error {
	if e.shared {
		return e.prepareShared(ctx)
	}
	if err := e.check(ctx); err != nil {
		return err
	}
	_, err := e.coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: "idleAt", Value: 1}},
		Options: options.Index().SetName(idleIndex).SetExpireAfterSeconds(int32(e.retention.Seconds())),
	})
	if err != nil {
		return fmt.Errorf("lockstep: create the index on idleAt of %s: %w", e.coll.Name(), err)
	}
	e.checked.Store(false)
	return e.check(ctx) // again, for somebody who prepared it as the other at the same time
}

// apply writes the resource's document through a pipeline, making it where there is none, and returns what
// the write left, without the queue. The text of a pipeline depends on its kind alone, and is made once.
func (e *Engine) apply(ctx context.Context, resource string, values bson.D, kind any, text func() []bson.D) (engine.Document, error) {
	if err := e.check(ctx); err != nil {
		return engine.Document{}, err
	}
	filter, answer := bson.D{{Key: "_id", Value: resource}}, answer
	if e.shared {
		filter, answer = named(resource), sharedAnswer
		values, kind, text = append(values, v("name", resource)), sharedKind{kind}, sharedText(text)
	}
	pipeline, err := pipelineOf(values, kind, text)
	if err != nil {
		return engine.Document{}, err
	}
	for attempt := 0; ; attempt++ {
		raw, err := e.coll.FindOneAndUpdate(ctx, filter, pipeline, answer).Raw()
		switch {
		case attempt < 5 && insertedByAnother(err):
			continue
		case errors.Is(err, mongo.ErrNoDocuments):
			return engine.Document{}, fmt.Errorf("lockstep: the database answered an upsert of %q with no document", resource)
		case err != nil:
			return engine.Document{}, err
		}
		d, err := decode(raw)
		d.ID = resource
		return d, err
	}
}

// decode reads an answer. The records are read only where the outcome is about them: they are most of the document.
func decode(raw bson.Raw) (engine.Document, error) {
	var lean struct {
		ID    string         `bson:"_id"`
		Seq   int64          `bson:"seq"`
		At    time.Time      `bson:"at"`
		Fence int64          `bson:"fence"`
		Held  []engine.Entry `bson:"held"`
		Last  engine.Last    `bson:"last"`
	}
	if err := bson.Unmarshal(raw, &lean); err != nil {
		return engine.Document{}, fmt.Errorf("lockstep: read a lock document: %w", err)
	}
	d := engine.Document{ID: lean.ID, Seq: lean.Seq, At: lean.At, Fence: lean.Fence, Held: lean.Held, Last: lean.Last}
	if o := d.Last.Outcome; o == engine.Lost || o == engine.Overtaken {
		if err := bson.Unmarshal(raw, &d); err != nil {
			return engine.Document{}, fmt.Errorf("lockstep: read a lock document: %w", err)
		}
	}
	return d, nil
}

var answer = mongoAnswer(bson.D{{Key: "waiters", Value: 0}})

func mongoAnswer(without bson.D) *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(without)
}

// insertedByAnother tells that two first requests of one resource tried to insert its document, and this one
// came second: nothing was written, and it finds the document when it asks again. MongoDB says so with a
// duplicate key. DocumentDB updates the other's document on a path of its own that knows no $$NOW, and refuses; that
// every pipeline uses $$NOW keeps it from writing there what was computed from no document.
func insertedByAnother(err error) bool {
	if mongo.IsDuplicateKeyError(err) {
		return true
	}
	var refused mongo.CommandError
	if !errors.As(err, &refused) {
		return false
	}
	// DocumentDB says the last two of a unique index that is not on _id.
	return (refused.Name == "FailedToParse" && strings.Contains(refused.Message, "$$NOW")) ||
		strings.Contains(refused.Message, "violates exclusion constraint") || strings.Contains(refused.Message, "deadlock detected")
}
