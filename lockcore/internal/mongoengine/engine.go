package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Prepare makes the TTL index on idleAt and the partial index on attn, or the indexes of
// mongo-lock. A collection in the other layout is refused with an *engine.LayoutError.
func (e *Engine) Prepare(ctx context.Context) error {
	if e.shared {
		return e.prepareShared(ctx)
	}
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
	e.checked.Store(false)
	return e.check(ctx) // again, for somebody who prepared it as the other at the same time
}

// apply writes the resource's document through a pipeline for a lock ID, making it where there is none, and returns
// what engine.Engine promises of what the write left. The text of a pipeline depends on its kind alone, and is made once.
func (e *Engine) apply(ctx context.Context, resource, lockID string, values bson.D, kind kind) (engine.Document, error) {
	if err := e.check(ctx); err != nil {
		return engine.Document{}, err
	}
	filter, answers := bson.D{{Key: "_id", Value: resource}}, ourAnswers
	if e.shared {
		filter, answers = named(resource), sharedAnswers
		values, kind = append(values, v("name", resource)), sharedKind{kind}
	}
	pipeline, err := pipelineOf(values, kind)
	if err != nil {
		return engine.Document{}, err
	}
	answer := answers.full
	if kind.lean() {
		answer = answers.lean
	}
	for attempt := 0; ; attempt++ {
		raw, err := e.coll.FindOneAndUpdate(ctx, filter, pipeline, answer).Raw()
		switch {
		case attempt < 5 && insertedByAnother(err):
			if deadlocked(err) {
				letOthersBy(ctx, attempt)
			}
			continue
		case errors.Is(err, mongo.ErrNoDocuments):
			return engine.Document{}, fmt.Errorf("lockstep: the database answered an upsert of %q with no document", resource)
		case err != nil:
			return engine.Document{}, err
		}
		d, err := decode(raw, lockID)
		d.ID = resource
		return d, err
	}
}

// answers are what a write asks for of the document: everything but the queue, or lean, without the records too.
type answers struct {
	full, lean *options.FindOneAndUpdateOptionsBuilder
}

var ourAnswers = answersWithout("waiters", "attn")

func answersWithout(fields ...string) answers {
	ask := func(fields ...string) *options.FindOneAndUpdateOptionsBuilder {
		without := bson.D{}
		for _, f := range fields {
			without = append(without, v(f, 0))
		}
		return options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(without)
	}
	return answers{full: ask(fields...), lean: ask(append(fields, "released", "evicted")...)}
}

// insertedByAnother tells that two first requests of one resource tried to insert its document, and this one
// came second: nothing was written, and it finds the document when it asks again. MongoDB says so with a
// duplicate key. DocumentDB updates the other's document on a path of its own that knows no $$NOW, and refuses; that
// every pipeline uses $$NOW keeps it from writing there what was computed from no document.
func insertedByAnother(err error) bool {
	if mongo.IsDuplicateKeyError(err) {
		return true
	}
	if deadlocked(err) {
		return true
	}
	var refused mongo.CommandError
	if !errors.As(err, &refused) {
		return false
	}
	// DocumentDB says the last of a unique index that is not on _id.
	return (refused.Name == "FailedToParse" && strings.Contains(refused.Message, "$$NOW")) ||
		strings.Contains(refused.Message, "violates exclusion constraint")
}

// deadlocked tells that several first requests of one resource waited for each other at DocumentDB's unique index, until
// it refused this one.
func deadlocked(err error) bool {
	var refused mongo.CommandError
	return errors.As(err, &refused) && strings.Contains(refused.Message, "deadlock detected")
}

// letOthersBy pauses after a deadlock, for longer each time, and not as long as others do. Whoever comes again at once
// gets in the way of those that were left, who are refused in their turn: with many of them nobody gets through.
func letOthersBy(ctx context.Context, attempt int) {
	longest := 100 * time.Millisecond << attempt
	pause := time.NewTimer(longest/4 + rand.N(longest)) //nolint:gosec // spreads them, hides nothing
	defer pause.Stop()
	select {
	case <-ctx.Done(): // the next attempt says so
	case <-pause.C:
	}
}
