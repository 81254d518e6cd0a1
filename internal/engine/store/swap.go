package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Swap sends one command: an insert, a replacement, or an ordered update of several documents. It returns
// the number of swaps that were applied before the first conflict. A conflict is not an error. After an
// error that does not match ErrNotSent, the outcome is unknown.
func (m *Mongo) Swap(ctx context.Context, swaps ...Swap) (done int, err error) {
	encoded, err := encodeAll(swaps)
	if err != nil || len(swaps) == 0 {
		return 0, err
	}
	if err := m.check(ctx); err != nil {
		return 0, beforeWrite(err)
	}
	if err := ctx.Err(); err != nil {
		return 0, contextEnded(err, "write %q", swaps[0].Next.ID)
	}
	ctx, cancel := command(ctx)
	defer cancel()
	if len(swaps) > 1 || swaps[0].Prev == (rules.Version{}) {
		return m.swapAll(ctx, swaps, encoded)
	}
	return m.replace(ctx, swaps[0], encoded[0])
}

// replace has these outcomes:
//
//  1. The document matched and was replaced.
//  2. Nothing matched: it is missing or has another version. This is a conflict.
//  3. An error: the outcome is unknown, or the command was not sent.
func (m *Mongo) replace(ctx context.Context, s Swap, next bson.Raw) (int, error) {
	res, err := m.local.ReplaceOne(ctx, filterOf(s), next)
	if err != nil {
		return 0, commandError(err, "replace %q", s.Next.ID)
	}
	return int(res.MatchedCount), nil
}

// swapAll sends one ordered command. Its statements are a guard for each generation in which a document was
// missing, and one for each document. The command stops at the first of these that fails:
//
//  1. The guard: the collection has another identity, or none. Nothing was written. This is a conflict at index 0.
//  2. A document with another version, or one that is missing although it has a previous version. The documents
//     before it were written. This is a conflict.
//  3. A document that exists although it has no previous version. The same.
//
// If none fails, all documents were written. After any other error the outcome of all is unknown, or the command was
// not sent.
func (m *Mongo) swapAll(ctx context.Context, swaps []Swap, encoded []bson.Raw) (int, error) {
	guarded := map[rules.Generation]bool{}
	var models, documents []mongo.WriteModel
	for i, s := range swaps {
		if s.Prev != (rules.Version{}) {
			documents = append(documents, replacement(s, encoded[i]))
			continue
		}
		if s.In == (rules.Generation{}) {
			s.In = *m.seen.Load()
		}
		if !guarded[s.In] {
			guarded[s.In] = true
			models = append(models, guard(s.In))
		}
		documents = append(documents, mongo.NewReplaceOneModel().SetFilter(filterOf(s)).SetReplacement(encoded[i]).SetUpsert(true))
	}
	guards := len(models)
	models = append(models, documents...)
	res, err := m.local.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	if err == nil {
		if applied := res.MatchedCount + res.UpsertedCount; applied != int64(len(models)) {
			return 0, fmt.Errorf("lockstep: replace %d documents: the server reports %d and no error", len(models), applied)
		}
		return len(swaps), nil
	}
	if at, stopped := stoppedAt(err); stopped {
		return max(0, at-guards), nil
	}
	return 0, commandError(err, "replace %d documents, the first of them %q", len(swaps), swaps[0].Next.ID)
}

// neverInserts makes an upsert fail with ImmutableField if it matches nothing, so that it stops an ordered command. It
// has no effect if it matches. A statement without upsert would not stop the command.
var neverInserts = bson.E{Key: "$setOnInsert", Value: bson.D{{Key: "_id", Value: "never inserted"}}}

// guard returns a statement that fails unless the collection is of this generation. It changes nothing. Without it a
// document could appear in a collection that has no identity, and would make it look foreign; and a lost or delayed
// command could bring back what was removed.
func guard(in rules.Generation) *mongo.UpdateOneModel {
	return mongo.NewUpdateOneModel().SetUpsert(true).SetUpdate(bson.D{neverInserts}).
		SetFilter(bson.D{{Key: "_id", Value: IdentityID}, {Key: "id", Value: in.ID}, {Key: "epoch", Value: in.Epoch}})
}

// replacement returns a statement that replaces a document, and fails if nothing matches. It sets or removes each
// field, since an upsert with a replacement would insert.
func replacement(s Swap, next bson.Raw) *mongo.UpdateOneModel {
	var set, unset bson.D
	for _, f := range fieldsOf(reflect.TypeFor[rules.Document]()) {
		switch value, err := next.LookupErr(f.key); {
		case f.key == "_id":
		case err == nil:
			set = append(set, bson.E{Key: f.key, Value: value})
		default:
			unset = append(unset, bson.E{Key: f.key, Value: ""})
		}
	}
	update := bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}, neverInserts}
	return mongo.NewUpdateOneModel().SetFilter(filterOf(s)).SetUpdate(update).SetUpsert(true)
}

// stoppedAt returns the index of the statement that failed because of what is stored: it matched nothing, or the _id
// exists. The collection has no other unique index. It reports false for every other error.
func stoppedAt(err error) (index int, stopped bool) {
	const immutableField, duplicateKey = 66, 11000
	if ce, ok := errors.AsType[mongo.CommandError](err); ok { // as some servers report it, without the index
		return 0, ce.Code == immutableField || ce.Code == duplicateKey
	}
	we, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || len(we.WriteErrors) != 1 || we.WriteConcernError != nil {
		return 0, false
	}
	code := we.WriteErrors[0].Code
	return we.WriteErrors[0].Index, code == immutableField || code == duplicateKey
}

// filterOf matches the document with the version Prev. If there must be no document, it matches nothing,
// because no version has the number -1. An upsert then inserts, or fails with a duplicate _id.
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

// Reserve sends one update, which has these outcomes:
//
//  1. The document advises other processes to let one go first, and has a new version: swaps that are based
//     on the earlier one fail.
//  2. The document does not exist, or is reserved, and nothing was changed.
//  3. An error: the outcome is unknown, or the command was not sent. If the command is applied late, it only
//     delays writers for a moment.
func (m *Mongo) Reserve(ctx context.Context, name string, reservation rules.Reservation) error {
	if err := m.check(ctx); err != nil {
		return beforeWrite(err)
	}
	return send(ctx, fmt.Sprintf("reserve %q", name), func(ctx context.Context) error {
		_, err := m.local.UpdateOne(ctx, bson.D{{Key: "_id", Value: name}, notReserved(reservation.From)}, bson.D{
			{Key: "$inc", Value: bson.D{{Key: "version.n", Value: int64(1)}}},
			{Key: "$set", Value: bson.D{
				{Key: "version.r", Value: rand.Text()},
				{Key: "reserved", Value: bson.D{{Key: "by", Value: reservation.By}, {Key: "until", Value: reservation.Until}}},
			}},
		})
		return err
	})
}
