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
	// checked says that the collection's layout was looked at.
	checked atomic.Bool
	// taken says that the resource was held, and awaited that a request waited, had a claim or
	// drained.
	taken, awaited hints
}

// New clones coll with majority, journaled writes, majority reads and the primary. Documents of
// idle resources go after retention.
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

// idleIndex is the name of the index on idleAt. That on attn has only the documents in which more
// stands than plain holds.
const (
	idleIndex = "lockstep_idle"
	attnIndex = "lockstep_attn"
)

// Prepare makes the TTL index on idleAt and the partial index on attn. A collection in another
// layout is refused with an *engine.LayoutError.
func (e *Engine) Prepare(ctx context.Context) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	_, err := e.coll.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{
			Keys:    bson.D{{Key: "idleAt", Value: 1}},
			Options: options.Index().SetName(idleIndex).SetExpireAfterSeconds(int32(e.retention.Seconds())),
		},
		{
			Keys:    bson.D{{Key: "attn", Value: 1}},
			Options: options.Index().SetName(attnIndex).SetPartialFilterExpression(bson.D{{Key: "attn", Value: contended}}),
		},
	})
	if err != nil {
		return fmt.Errorf("lockstep: create the indexes on idleAt and attn of %s: %w", e.coll.Name(), err)
	}
	return nil
}

// apply writes the resource's document for a lock ID, and makes it if there is none.
func (e *Engine) apply(ctx context.Context, resource, lockID string, values bson.D, kind kind) (engine.Document, error) {
	answer := leanAnswer
	if k, ok := kind.(acquireKind); ok && k.refreshOnly { // a commit, or a look after a hold
		answer = fullAnswer
	}
	for attempt := 0; ; attempt++ {
		d, err := e.send(ctx, resource, lockID, values, kind, answer().SetUpsert(true))
		if attempt < 5 && insertedByAnother(err) {
			continue
		}
		return d, err
	}
}

// send updates the resource's document with a pipeline of a kind.
func (e *Engine) send(
	ctx context.Context, resource, lockID string, values bson.D, kind kind, answer *options.FindOneAndUpdateOptionsBuilder,
) (engine.Document, error) {
	if err := e.check(ctx); err != nil {
		return engine.Document{}, err
	}
	pipeline, err := pipelineOf(values, kind)
	if err != nil {
		return engine.Document{}, err
	}
	raw, err := e.coll.FindOneAndUpdate(ctx, doc(v("_id", resource)), pipeline, answer).Raw()
	if err != nil {
		return engine.Document{}, err
	}
	d, seen, err := decode(raw, lockID)
	if err == nil {
		e.taken.of(d.ID).Store(seen.taken)
		e.awaited.of(d.ID).Store(seen.awaited)
	}
	return d, err
}

// An answer is the document with the head of its queue, and without its records unless they are asked
// for.
var (
	fullAnswer = answerWithout()
	leanAnswer = answerWithout("released", "evicted", "undone", "commits")
)

// queueHead is how many waiters an answer names.
const queueHead = 8

func answerWithout(fields ...string) func() *options.FindOneAndUpdateOptionsBuilder {
	without := doc(v("waiters", doc(v("$slice", queueHead))))
	for _, f := range fields {
		without = append(without, v(f, 0))
	}
	return func() *options.FindOneAndUpdateOptionsBuilder {
		return options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(without)
	}
}

// insertedByAnother reports whether there was a document already when one was to be inserted:
// nothing was written. MongoDB says so with a duplicate key. So does DocumentDB, as an internal
// error, if the document is not what the condition says; else it updates the document on a path of
// its own that knows no $$NOW, and refuses.
func insertedByAnother(err error) bool {
	if mongo.IsDuplicateKeyError(err) {
		return true
	}
	var refused mongo.CommandError
	return errors.As(err, &refused) && ((refused.Name == "FailedToParse" && strings.Contains(refused.Message, "$$NOW")) ||
		(refused.Name == "InternalError" && strings.Contains(refused.Message, "duplicate key")))
}
