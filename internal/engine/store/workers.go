package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Worker identifies a process that keeps its locks in the collection, and the task queue that it serves.
type Worker struct {
	Namespace string `bson:"namespace"`
	Queue     string `bson:"queue"`
	Identity  string `bson:"identity"`
}

// WorkerStore is a Store that can also list the workers that use it, and the indexes that it lacks.
type WorkerStore interface {
	// RegisterWorker records that the worker is running. The worker must repeat it.
	RegisterWorker(ctx context.Context, w Worker) error
	// Workers returns the workers whose last registration is less than maxAge old, by the server's clock.
	Workers(ctx context.Context, maxAge time.Duration) ([]Worker, error)
	// MissingIndexes returns the name of the collection, and the indexes that Prepare would create. The name of one
	// that exists with another definition is followed by the difference.
	MissingIndexes(ctx context.Context) (collection string, missing []string, err error)
}

var _ WorkerStore = (*Mongo)(nil)

// A registration is a document whose _id is the Worker itself. No resource has such an _id, because
// names are strings. Readers of locks select documents by names, by ranges of names or by attn, and so
// find no registration. The TTL index on idleAt removes it.
const (
	registrationField = "lockstep"
	registration      = "worker"
)

// RegisterWorker sends two commands. The first one reads the server's time and ensures that the collection
// has an identity, since a collection of documents without an identity is refused. The second one is an
// upsert after a guard, which has two outcomes: the registration is stored, or an error, for example because the
// collection was emptied in between.
func (m *Mongo) RegisterWorker(ctx context.Context, w Worker) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	identity, err := m.identify(ctx)
	if err != nil {
		return err
	}
	update := bson.D{{Key: "$set", Value: bson.D{{Key: registrationField, Value: registration}, {Key: "idleAt", Value: identity.At}}}}
	return send(ctx, "register a worker in "+m.local.Name(), func(ctx context.Context) error {
		_, err := m.local.BulkWrite(ctx, []mongo.WriteModel{
			guard(GenerationOf(&identity)), mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: w}}).SetUpdate(update).SetUpsert(true),
		}, options.BulkWrite().SetOrdered(true))
		return err
	})
}

// Workers sends one find, and a getMore per further batch. Its outcomes are the registered workers, or an
// error.
func (m *Mongo) Workers(ctx context.Context, maxAge time.Duration) ([]Worker, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	// The range contains all documents whose _id is a document, and uses the index on _id.
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bson.D{}}}}, {Key: registrationField, Value: registration}}
	var all []bson.Raw
	err := send(ctx, "list the workers in "+m.majority.Name(), func(ctx context.Context) error {
		cursor, err := m.majority.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "idleAt", Value: 1}, {Key: "at", Value: "$$NOW"}}))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all) // it closes the cursor
	})
	var found []Worker
	for _, raw := range all {
		var d struct {
			ID     Worker    `bson:"_id"`
			IdleAt time.Time `bson:"idleAt"`
			At     time.Time `bson:"at"`
		}
		if bson.Unmarshal(raw, &d) == nil && d.At.Sub(d.IdleAt) < maxAge { // another program's document is no registration
			found = append(found, d.ID)
		}
	}
	return found, err
}
