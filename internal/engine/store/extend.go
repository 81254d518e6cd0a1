package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// ExtendChunk is the number of documents that one command of Extend changes.
const ExtendChunk = 512

// Extend sends one unordered command per ExtendChunk documents, and a read after each that did not change
// all of its documents. After a command that fails it sends the next ones, unless the caller's context has ended.
//
// Documents in which one entry is extended to the same end share a statement. On a sharded cluster each
// document has a statement of its own, because an updateMany is broadcast there without shard versions,
// and counts orphaned copies.
func (m *Mongo) Extend(ctx context.Context, parts []Extension) (rest map[string]bool, r string, err error) {
	r = rand.Text()
	rest = map[string]bool{}
	documents := groupExtensions(parts)
	for _, d := range documents {
		rest[d.name] = false
	}
	if len(documents) == 0 {
		return rest, r, nil
	}
	if err := m.check(ctx); err != nil {
		return rest, r, beforeWrite(err)
	}
	var causes []error
	sent := false
	for chunk := range slices.Chunk(documents, ExtendChunk) {
		if err := ctx.Err(); err != nil {
			causes = append(causes, err)
			break
		}
		found, err := m.extend(ctx, chunk, r)
		sent = sent || err == nil || !notSent(err)
		switch {
		case err == nil && found == len(chunk):
			for _, d := range chunk {
				delete(rest, d.name)
			}
		case err == nil || !notSent(err):
			err = errors.Join(err, m.findExtended(ctx, chunk, r, rest))
		}
		if err != nil {
			causes = append(causes, err)
		}
	}
	err = errors.Join(causes...)
	switch {
	case err == nil:
		return rest, r, nil
	case sent:
		return rest, r, fmt.Errorf("lockstep: extend entries of %d documents: %w", len(documents), err)
	default:
		return rest, r, contextEnded(err, "extend entries of %d documents", len(documents))
	}
}

// extend sends one command. Each document has two outcomes:
//
//  1. it contains all named entries, and no reservation prevents it: they are extended, and it gets a new version,
//  2. otherwise, or if it is missing, it is not changed and not counted.
//
// After an error the outcome is unknown for the documents that were not counted.
func (m *Mongo) extend(ctx context.Context, documents []documentExtension, r string) (found int, err error) {
	ctx, cancel := command(ctx)
	defer cancel()
	models := statements(documents, r, m.sharded.Load())
	res, err := m.local.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if res != nil {
		found = int(res.MatchedCount)
	}
	return found, err
}

// findExtended sends one find. Each document has these outcomes:
//
//  1. its version has the value r: a majority has the extension, and it is removed from rest,
//  2. it contains the named entries: it is marked, because it was reserved, or extended and then written again,
//  3. missing, damaged, or without one of the entries: it stays.
//
// After an error all stay that were not read.
func (m *Mongo) findExtended(ctx context.Context, documents []documentExtension, r string, rest map[string]bool) error {
	ctx, cancel := command(ctx)
	defer cancel()
	names, byName := make(bson.A, len(documents)), map[string]*documentExtension{}
	for i := range documents {
		names[i], byName[documents[i].name] = documents[i].name, &documents[i]
	}
	cursor, err := m.majority.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}},
		options.Find().SetProjection(bson.D{{Key: "version", Value: 1}, {Key: "entries.id", Value: 1}}).SetBatchSize(ExtendChunk+1))
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cursor)
	for cursor.Next(ctx) {
		switch d, err := decodeFields(cursor.Current); {
		case err != nil: // its own renewal reports it
		case d.Version.R == r:
			delete(rest, d.ID)
		default:
			rest[d.ID] = byName[d.ID].names(d)
		}
	}
	return cursor.Err()
}

// documentExtension contains the changes of one document.
type documentExtension struct {
	name   string
	parts  []Extension
	idleAt time.Time
	// yields is set if all parts yield.
	yields bool
}

// names reports whether a document contains all named entries.
func (d *documentExtension) names(doc *rules.Document) bool {
	for _, p := range d.parts {
		if p.ID == "" || !slices.ContainsFunc(doc.Entries, func(e rules.Entry) bool { return e.ID == p.ID }) {
			return false
		}
	}
	return true
}

// filter matches the document if no reservation prevents the extension. names is the document's name, or a
// condition for the names of several documents with the same extension.
func (d *documentExtension) filter(names, ids any) bson.D {
	filter := bson.D{{Key: "_id", Value: names}, {Key: "entries.id", Value: ids}}
	if !d.yields {
		return filter
	}
	return append(filter, notReserved(d.parts[0].At))
}

// notReserved is the condition that no reservation is in force at a time. See rules.Document.ReservedByOther.
func notReserved(at time.Time) bson.E {
	const until = "reserved.until"
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: until, Value: nil}},
		bson.D{{Key: until, Value: bson.D{{Key: "$lte", Value: at}}}},
		bson.D{{Key: until, Value: bson.D{{Key: "$gt", Value: at.Add(rules.LongestReservation)}}}},
	}}
}

// groupExtensions returns the extensions by document, in the order of the names, so that commands
// that run at the same time change documents in the same order. Extensions of the same entry are
// merged: a server refuses a statement that changes a field twice.
func groupExtensions(parts []Extension) []documentExtension {
	sorted := slices.SortedStableFunc(slices.Values(parts), func(a, b Extension) int {
		return strings.Compare(a.Resource, b.Resource)
	})
	var documents []documentExtension
	for _, p := range sorted {
		if n := len(documents); n == 0 || documents[n-1].name != p.Resource {
			documents = append(documents, documentExtension{name: p.Resource, yields: true})
		}
		d := &documents[len(documents)-1]
		d.yields = d.yields && p.Yields
		d.idleAt = rules.Later(d.idleAt, p.IdleAt)
		at := slices.IndexFunc(d.parts, func(other Extension) bool { return other.ID == p.ID })
		if at < 0 {
			d.parts = append(d.parts, p)
			continue
		}
		d.parts[at].End = rules.Later(d.parts[at].End, p.End)
		d.parts[at].At = rules.Later(d.parts[at].At, p.At)
	}
	return documents
}

// statements returns the statements for documents, most of which share one.
func statements(documents []documentExtension, r string, sharded bool) []mongo.WriteModel {
	type ends struct {
		end, at, idleAt time.Time
		yields          bool
	}
	var models []mongo.WriteModel
	var order []ends
	alike := map[ends][]documentExtension{}
	for _, d := range documents {
		if sharded || len(d.parts) > 1 {
			models = append(models, d.update(r, sharded))
			continue
		}
		of := ends{d.parts[0].End, d.parts[0].At, d.idleAt, d.yields}
		if alike[of] == nil {
			order = append(order, of)
		}
		alike[of] = append(alike[of], d)
	}
	for _, of := range order {
		models = append(models, updateOfMany(alike[of], r))
	}
	return models
}

// updateOfMany returns the statement for documents in each of which one entry is extended to the same end.
func updateOfMany(documents []documentExtension, r string) mongo.WriteModel {
	names, ids := make(bson.A, len(documents)), make(bson.A, len(documents))
	for i, d := range documents {
		names[i], ids[i] = d.name, d.parts[0].ID
	}
	first := documents[0]
	in := bson.D{{Key: "$in", Value: ids}}
	return mongo.NewUpdateManyModel().
		SetFilter(first.filter(bson.D{{Key: "$in", Value: names}}, in)).
		SetUpdate(raising(r, bson.D{
			{Key: "idleAt", Value: first.idleAt},
			{Key: "entries.$[p].expiresAt", Value: first.parts[0].End},
			{Key: "entries.$[p].renewedAt", Value: first.parts[0].At},
		})).
		SetArrayFilters([]any{bson.D{{Key: "p.id", Value: in}}})
}

// raising returns an update that raises fields and gives the document a new version.
func raising(r string, fields bson.D) bson.D {
	return bson.D{
		{Key: "$max", Value: fields},
		{Key: "$inc", Value: bson.D{{Key: "version.n", Value: int64(1)}}},
		{Key: "$set", Value: bson.D{{Key: "version.r", Value: r}}},
	}
}

// update returns the statement for one document. It matches only if the document contains all named
// entries: otherwise the owners of missing entries would believe that they were renewed. Except on a
// sharded cluster it is an updateMany, which the driver puts into the same command as the others.
func (d *documentExtension) update(r string, sharded bool) mongo.WriteModel {
	ids := make(bson.A, len(d.parts))
	filters := make([]any, len(d.parts))
	raise := bson.D{{Key: "idleAt", Value: d.idleAt}}
	for i, p := range d.parts {
		ids[i] = p.ID
		filters[i] = bson.D{{Key: fmt.Sprintf("p%d.id", i), Value: p.ID}}
		raise = append(raise,
			bson.E{Key: fmt.Sprintf("entries.$[p%d].expiresAt", i), Value: p.End},
			bson.E{Key: fmt.Sprintf("entries.$[p%d].renewedAt", i), Value: p.At})
	}
	filter := d.filter(d.name, bson.D{{Key: "$all", Value: ids}})
	if sharded {
		return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(raising(r, raise)).SetArrayFilters(filters)
	}
	return mongo.NewUpdateManyModel().SetFilter(filter).SetUpdate(raising(r, raise)).SetArrayFilters(filters)
}
