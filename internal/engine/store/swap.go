package store

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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
	switch {
	case len(swaps) > 1:
		return m.replaceAll(ctx, swaps, encoded)
	case swaps[0].Prev == (rules.Version{}):
		return m.insert(ctx, swaps[0].Next.ID, encoded[0])
	default:
		return m.replace(ctx, swaps[0], encoded[0])
	}
}

// insert has these outcomes:
//
//  1. The document was inserted.
//  2. Duplicate key, of the document or of the command: a document exists. This is a conflict.
//  3. Any other error: the outcome is unknown, or the command was not sent.
func (m *Mongo) insert(ctx context.Context, name string, next bson.Raw) (int, error) {
	_, err := m.local.InsertOne(ctx, next)
	if err == nil {
		return 1, nil
	}
	if _, duplicate := duplicateAt(err); duplicate {
		return 0, nil
	}
	return 0, commandError(err, "insert %q", name)
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

// replaceAll sends one ordered command in which each replacement is an upsert. Each replacement has
// these outcomes:
//
//  1. The document with the previous version matched and was replaced.
//  2. There was no document, and the new one was inserted, even if a previous version was expected. That is
//     safe: the server removes a document only when nothing in it has been alive for rules.Retention, and
//     fences grow with the server's time. A single replacement reports a conflict instead.
//  3. There is a document with another version: the upsert tries to insert, and the _id is a
//     duplicate. The server stops and does not apply the replacements that follow. This is a conflict. If
//     the duplicate is an error of the whole command, firstConflict finds its index.
//  4. Any other error: the outcome of all is unknown, or the command was not sent.
//
// Without upsert, a replacement that matches nothing would not stop the server.
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
	index, duplicate := duplicateAt(err)
	if duplicate && index < 0 {
		index, duplicate = m.firstConflict(ctx, swaps)
	}
	if duplicate {
		return index, nil
	}
	return 0, commandError(err, "replace %d documents, the first of them %q", len(swaps), swaps[0].Next.ID)
}

// firstConflict sends one read, after a duplicate without an index. The outcomes:
//
//  1. Up to some index the documents have their new versions, and the next one has a version that no
//     later write than this one can have made: that is the conflict.
//  2. The next document is missing or was written more than once since: whether it was replaced is unknown.
//  3. An error: the same.
func (m *Mongo) firstConflict(ctx context.Context, swaps []Swap) (index int, known bool) {
	names := make([]string, len(swaps))
	for i, s := range swaps {
		names[i] = s.Next.ID
	}
	loaded, err := m.Load(ctx, names...)
	if err != nil {
		return 0, false
	}
	for i, s := range swaps {
		if d := loaded.Docs[s.Next.ID]; d == nil || d.Version != s.Next.Version {
			return i, d != nil && d.Version.N <= s.Next.Version.N
		}
	}
	return 0, false
}

// filterOf matches the document with the version Prev. If there must be no document, it matches nothing,
// because no version has the number -1. The upsert then inserts, or fails with a duplicate _id.
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

// Reserve sends one unconditional update, which has these outcomes:
//
//  1. The document advises other processes to let one go first, and has a new version: swaps that are based
//     on the earlier one fail.
//  2. There is no document, and nothing was changed.
//  3. An error: the outcome is unknown, or the command was not sent. If the command is applied late, it only
//     delays writers for a moment.
func (m *Mongo) Reserve(ctx context.Context, name string, reservation rules.Reservation) error {
	if err := m.check(ctx); err != nil {
		return beforeWrite(err)
	}
	return send(ctx, fmt.Sprintf("reserve %q", name), func(ctx context.Context) error {
		_, err := m.local.UpdateOne(ctx, bson.D{{Key: "_id", Value: name}}, bson.D{
			{Key: "$inc", Value: bson.D{{Key: "version.n", Value: int64(1)}}},
			{Key: "$set", Value: bson.D{
				{Key: "version.r", Value: rand.Text()},
				{Key: "reserved", Value: bson.D{{Key: "by", Value: reservation.By}, {Key: "until", Value: reservation.Until}}},
			}},
		})
		return err
	})
}
