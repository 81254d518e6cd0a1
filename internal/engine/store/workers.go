package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Worker names a process that takes its locks in the collection, and the task queue that it serves.
type Worker struct {
	Namespace string `bson:"namespace"`
	Queue     string `bson:"queue"`
	Identity  string `bson:"identity"`
}

// WorkerStore is a Store that can also list the workers that use it.
type WorkerStore interface {
	// RegisterWorker stores that the worker runs now. Repeat it while it runs.
	RegisterWorker(ctx context.Context, w Worker) error
	// Workers returns the workers that have registered lately, by the server's clock.
	Workers(ctx context.Context, lately time.Duration) ([]Worker, error)
}

var _ WorkerStore = (*Mongo)(nil)

// A registration is a document whose _id is the Worker itself. No resource has such an _id, because
// names are strings. Readers of locks select documents by names, by ranges of names or by attn, and so
// find no registration. The TTL index on idleAt removes it.
const (
	registrationField = "lockstep"
	registration      = "worker"
)

// RegisterWorker sends two commands. The first one reads the server's time, and makes sure that the
// collection has an identity: one with other documents and without an identity is refused.
func (m *Mongo) RegisterWorker(ctx context.Context, w Worker) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	identity, err := m.identify(ctx)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return ended(err, "register a worker in %s", m.local.Name())
	}
	ctx, cancel := command(ctx)
	defer cancel()
	_, err = m.local.UpdateOne(ctx, bson.D{{Key: "_id", Value: w}}, bson.D{{Key: "$set", Value: bson.D{
		{Key: registrationField, Value: registration}, {Key: "idleAt", Value: identity.At},
	}}}, options.UpdateOne().SetUpsert(true))
	if err != nil {
		return failed(err, "register a worker in %s", m.local.Name())
	}
	return nil
}

// Workers sends one command, and another one for each further batch of the server's.
func (m *Mongo) Workers(ctx context.Context, lately time.Duration) ([]Worker, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ended(err, "list the workers in %s", m.majority.Name())
	}
	ctx, cancel := command(ctx)
	defer cancel()
	// The range contains the documents whose _id is a document, so that the index on _id finds them.
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bson.D{}}}}, {Key: registrationField, Value: registration}}
	cursor, err := m.majority.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "idleAt", Value: 1}, {Key: "at", Value: "$$NOW"}}))
	if err != nil {
		return nil, failed(err, "list the workers in %s", m.majority.Name())
	}
	defer closeCursor(ctx, cursor)
	var found []Worker
	for cursor.Next(ctx) {
		var d struct {
			ID     Worker    `bson:"_id"`
			IdleAt time.Time `bson:"idleAt"`
			At     time.Time `bson:"at"`
		}
		if err := cursor.Decode(&d); err != nil {
			return nil, failed(err, "read a worker in %s", m.majority.Name())
		}
		if d.At.Sub(d.IdleAt) < lately {
			found = append(found, d.ID)
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, failed(err, "list the workers in %s", m.majority.Name())
	}
	return found, nil
}
