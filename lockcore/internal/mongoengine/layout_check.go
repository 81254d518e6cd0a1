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

// idleIndex is the name of the index that only a collection in our own layout has.
const idleIndex = "lockstep_idle"

// attnIndex has only the documents in which more stands than plain holds.
const attnIndex = "lockstep_attn"

// A collection says by its indexes which layout it is in: one of ours has idleIndex, and one of mongo-lock's a unique
// index on resource, without which their documents are not safe. So no operation has to look.

// indexes asks which of the two there are.
func (e *Engine) indexes(ctx context.Context) (idle, unique bool, err error) {
	cursor, err := e.coll.Indexes().List(ctx)
	if err != nil {
		var refused mongo.CommandError
		if errors.As(err, &refused) && refused.Name == "NamespaceNotFound" {
			return false, false, nil
		}
		return false, false, fmt.Errorf("lockstep: list the indexes of %s: %w", e.coll.Name(), err)
	}
	var all []struct {
		Name   string `bson:"name"`
		Key    bson.D `bson:"key"`
		Unique bool   `bson:"unique"`
	}
	if err := cursor.All(ctx, &all); err != nil {
		return false, false, fmt.Errorf("lockstep: list the indexes of %s: %w", e.coll.Name(), err)
	}
	for _, index := range all {
		idle = idle || index.Name == idleIndex
		unique = unique || (index.Unique && len(index.Key) == 1 && index.Key[0].Key == "resource")
	}
	return idle, unique, nil
}

// check looks at the indexes once, before the first operation. A collection of our own goes on where it cannot: nothing
// depends on its index. Where the server refuses to tell, it is not asked again.
func (e *Engine) check(ctx context.Context) error {
	if e.checked.Load() {
		return nil
	}
	idle, unique, err := e.indexes(ctx)
	if err != nil && e.shared {
		return err
	}
	if err == nil {
		if err := e.judge(idle, unique); err != nil {
			return err
		}
	}
	var refused mongo.CommandError
	if err == nil || (errors.As(err, &refused) && !refused.HasErrorLabel("NetworkError")) {
		e.checked.Store(true)
	}
	return nil
}

func (e *Engine) judge(idle, unique bool) error {
	refuse := func(reason string) error {
		return &engine.LayoutError{Collection: e.coll.Name(), Shared: e.shared, Reason: reason}
	}
	switch {
	case e.shared && idle:
		return refuse("it has the index " + idleIndex + " of lockstep's own")
	case e.shared && !unique:
		return refuse("it has no unique index on resource; call CreateIndexes once")
	case !e.shared && unique:
		return refuse("it has a unique index on resource, as collections of mongo-lock have")
	}
	return nil
}

// prepareShared makes the indexes that mongo-lock makes too: the unique one, and those by which locks are found by
// their lock IDs.
func (e *Engine) prepareShared(ctx context.Context) error {
	idle, unique, err := e.indexes(ctx)
	if err != nil {
		return err
	}
	if err := e.judge(idle, true); err != nil {
		return err
	}
	models := []mongo.IndexModel{
		{Keys: bson.D{{Key: "exclusive.lockId", Value: 1}}},
		{Keys: bson.D{{Key: "shared.locks.lockId", Value: 1}}},
	}
	if !unique { // one that is there may have other options
		models = append(models, mongo.IndexModel{
			Keys: bson.D{{Key: "resource", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true),
		})
	}
	for _, model := range models {
		if _, err := e.coll.Indexes().CreateOne(ctx, model); err != nil {
			return fmt.Errorf("lockstep: create the index on %s of %s: %w", model.Keys.(bson.D)[0].Key, e.coll.Name(), err)
		}
	}
	e.checked.Store(false)
	return e.check(ctx) // again, for somebody who prepared it as the other at the same time
}
