package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Swap sends one command: an insert, a replacement, or an ordered update of several documents.
func (m *Mongo) Swap(ctx context.Context, swaps ...Swap) (done int, err error) {
	encoded, err := encodeAll(swaps)
	if err != nil || len(swaps) == 0 {
		return 0, err
	}
	if err := m.check(ctx); err != nil {
		return 0, refused(err)
	}
	if err := ctx.Err(); err != nil {
		return 0, ended(err, "write %q", swaps[0].Next.ID)
	}
	ctx, cancel := command(ctx)
	defer cancel()
	switch {
	case len(swaps) > 1:
		return m.replaceAll(ctx, swaps, encoded)
	case swaps[0].Prev == (rules.Version{}):
		return m.insert(ctx, swaps[0].Next.ID, encoded[0])
	default:
		return m.replace(ctx, swaps[0], encoded[0])
	}
}

// insert has two outcomes without an error:
//
//  1. inserted,
//  2. duplicate key: a document exists. That is a conflict.
func (m *Mongo) insert(ctx context.Context, name string, next bson.Raw) (int, error) {
	_, err := m.local.InsertOne(ctx, next)
	if err == nil {
		return 1, nil
	}
	if we, ok := errors.AsType[mongo.WriteException](err); ok && len(we.WriteErrors) > 0 &&
		duplicate(len(we.WriteErrors), we.WriteErrors[0].Code, we.WriteConcernError) {
		return 0, nil
	}
	return 0, failed(err, "insert %q", name)
}

// replace has two outcomes without an error:
//
//  1. a document matched, and was replaced,
//  2. none matched: it is missing, or has another version. That is a conflict.
func (m *Mongo) replace(ctx context.Context, s Swap, next bson.Raw) (int, error) {
	res, err := m.local.ReplaceOne(ctx, filterOf(s), next)
	if err != nil {
		return 0, failed(err, "replace %q", s.Next.ID)
	}
	return int(res.MatchedCount), nil
}

// replaceAll sends one ordered command in which each replacement is an upsert. The outcomes of each
// replacement are:
//
//  1. the document with the previous version matched, and was replaced,
//  2. there was no document, and the new one was inserted,
//  3. there is a document with another version: the upsert tries to insert, and the _id is a
//     duplicate. The server stops, and does not apply the replacements that follow.
//
// A replacement without upsert that matches nothing would not stop the server.
func (m *Mongo) replaceAll(ctx context.Context, swaps []Swap, encoded []bson.Raw) (int, error) {
	models := make([]mongo.WriteModel, len(swaps))
	for i, s := range swaps {
		models[i] = mongo.NewReplaceOneModel().SetFilter(filterOf(s)).SetReplacement(encoded[i]).SetUpsert(true)
	}
	res, err := m.local.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	if err == nil {
		if applied := res.MatchedCount + res.UpsertedCount; applied != int64(len(swaps)) {
			return 0, fmt.Errorf("lockstep: replace %d documents: the server reports %d and no error", len(swaps), applied)
		}
		return len(swaps), nil
	}
	if we, ok := errors.AsType[mongo.BulkWriteException](err); ok && len(we.WriteErrors) > 0 &&
		duplicate(len(we.WriteErrors), we.WriteErrors[0].Code, we.WriteConcernError) {
		return we.WriteErrors[0].Index, nil
	}
	return 0, failed(err, "replace %d documents, the first of them %q", len(swaps), swaps[0].Next.ID)
}

// filterOf matches the document in the state Prev. If there must be none, it matches nothing: no
// version has the number -1.
func filterOf(s Swap) bson.D {
	prev := s.Prev
	if prev == (rules.Version{}) {
		prev.N = -1
	}
	return bson.D{
		{Key: "_id", Value: s.Next.ID},
		{Key: "version", Value: bson.D{{Key: "n", Value: prev.N}, {Key: "r", Value: prev.R}}}, // in the order in which they are stored
	}
}

// Reserve sends one update without a condition. A late copy of it delays writers for a moment, and
// makes swaps fail that were based on the version before.
func (m *Mongo) Reserve(ctx context.Context, name string, reservation rules.Reservation) error {
	if err := m.check(ctx); err != nil {
		return refused(err)
	}
	if err := ctx.Err(); err != nil {
		return ended(err, "reserve %q", name)
	}
	ctx, cancel := command(ctx)
	defer cancel()
	_, err := m.local.UpdateOne(ctx, bson.D{{Key: "_id", Value: name}}, bson.D{
		{Key: "$inc", Value: bson.D{{Key: "version.n", Value: int64(1)}}},
		{Key: "$set", Value: bson.D{
			{Key: "version.r", Value: rand.Text()},
			{Key: "reserved", Value: bson.D{{Key: "by", Value: reservation.By}, {Key: "until", Value: reservation.Until}}},
		}},
	})
	if err != nil {
		return failed(err, "reserve %q", name)
	}
	return nil
}
