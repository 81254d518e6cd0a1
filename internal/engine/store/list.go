package store

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// listBatch is the number of documents in one answer of the server.
const listBatch = 500

// List sends one find, and one getMore per listBatch further documents. Its outcomes are:
//
//  1. The selected documents. One that cannot be decoded is a *DamagedError, and is followed by the others.
//  2. An error of a command, which ends the list.
func (m *Mongo) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		if err := m.check(ctx); err != nil {
			yield(rules.Document{}, err)
			return
		}
		cursor, err := m.openList(ctx, q)
		if err != nil {
			yield(rules.Document{}, err)
			return
		}
		defer closeCursor(ctx, cursor)
		for next(ctx, cursor) {
			// The server returns more documents than the query selects: a filter that uses the index on
			// attn does not contain the prefix of the name, and a range of lock IDs also matches a document
			// in which one lock ID meets the lower bound and another one the upper bound.
			d, err := decode(cursor.Current)
			if err == nil {
				d.Policy = m.policies.Load().For(d.ID, d.At)
			}
			switch {
			case err != nil:
				if strings.HasPrefix(IDOf(cursor.Current), q.Prefix) && !yield(rules.Document{}, err) {
					return
				}
			case matches(d, q) && !yield(*d, nil):
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(rules.Document{}, commandError(err, "list %s", m.majority.Name()))
		}
	}
}

func (m *Mongo) openList(ctx context.Context, q rules.Query) (*mongo.Cursor, error) {
	if err := ctx.Err(); err != nil {
		return nil, contextEnded(err, "list %s", m.majority.Name())
	}
	ctx, cancel := command(ctx)
	defer cancel()
	cursor, err := m.majority.Find(ctx, listFilter(q),
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(withTime).SetBatchSize(listBatch))
	if err != nil {
		return nil, commandError(err, "list %s", m.majority.Name())
	}
	return cursor, nil
}

// next advances a cursor. If that needs a command, the command has a time limit.
func next(ctx context.Context, cursor *mongo.Cursor) bool {
	if cursor.RemainingBatchLength() > 0 {
		return cursor.Next(ctx)
	}
	ctx, cancel := command(ctx)
	defer cancel()
	return cursor.Next(ctx)
}

// listFilter returns a filter that matches at least the documents of a query.
func listFilter(q rules.Query) bson.D {
	filter := bson.D{}
	switch {
	case q.Resource != "":
		filter = append(filter, bson.E{Key: "_id", Value: q.Resource})
	case q.Waiting || q.Contended:
		// With a condition on _id the server would choose the index on _id, which contains all documents.
	default:
		filter = append(filter, bson.E{Key: "_id", Value: prefixRange(q.Prefix)}) // excludes the identity
	}
	if q.Waiting || q.Contended {
		filter = append(filter, bson.E{Key: "attn", Value: contended})
	}
	if q.Waiting {
		filter = append(filter, bson.E{Key: "waiters.since", Value: bson.D{{Key: "$gt", Value: time.Unix(0, 0)}}})
	}
	var parties bson.A
	if q.LockID != "" {
		parties = append(parties, anyOf(q.LockID, "entries.lockId", "waiters.lockId"))
	}
	if q.LockIDPrefix != "" {
		parties = append(parties, anyOf(prefixRange(q.LockIDPrefix), "entries.lockId", "waiters.lockId"))
	}
	if q.Owner != "" { // an owner that is the lock ID is not stored
		parties = append(parties, anyOf(q.Owner, "entries.owner", "entries.lockId", "waiters.owner", "waiters.lockId"))
	}
	if parties != nil {
		filter = append(filter, bson.E{Key: "$and", Value: parties})
	}
	return filter
}

func anyOf(condition any, fields ...string) bson.D {
	either := make(bson.A, len(fields))
	for i, field := range fields {
		either[i] = bson.D{{Key: field, Value: condition}}
	}
	return bson.D{{Key: "$or", Value: either}}
}

// prefixRange matches the strings that begin with a prefix. If the prefix is not valid UTF-8 it uses the
// part before the first invalid byte, because servers refuse invalid strings.
func prefixRange(prefix string) bson.D {
	valid := prefix
	for i, r := range prefix {
		if r == utf8.RuneError && !strings.HasPrefix(prefix[i:], string(utf8.RuneError)) {
			valid = prefix[:i]
			break
		}
	}
	condition := bson.D{{Key: "$gte", Value: valid}}
	if bound := successor(valid); bound != "" {
		condition = append(condition, bson.E{Key: "$lt", Value: bound})
	}
	return condition
}

// successor returns the smallest string that is greater than all strings with a prefix, or "" if there
// is none. Valid UTF-8 sorts by runes, so the successor ends with the rune after the prefix's last rune.
// If no such rune exists, it is the successor of the prefix without its last rune.
func successor(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch last {
		case utf8.MaxRune:
		case 0xD7FF: // UTF-8 does not contain the surrogates that follow
			return prefix + "\uE000"
		default:
			return prefix + string(last+1)
		}
	}
	return ""
}

// matches reports whether a query selects a document.
func matches(d *rules.Document, q rules.Query) bool {
	if (q.Resource != "" && d.ID != q.Resource) || !strings.HasPrefix(d.ID, q.Prefix) ||
		(q.Waiting && len(d.Waiters) == 0) || ((q.Waiting || q.Contended) && len(d.Attn) == 0) {
		return false
	}
	// concerns reports whether an entry or a waiter meets a condition on lock ID and owner.
	concerns := func(condition func(lockID, owner string) bool) bool {
		return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return condition(e.LockID, e.Owner) }) ||
			slices.ContainsFunc(d.Waiters, func(w rules.Waiter) bool { return condition(w.LockID, w.Owner) })
	}
	return (q.LockID == "" || concerns(func(lockID, _ string) bool { return lockID == q.LockID })) &&
		(q.LockIDPrefix == "" || concerns(func(lockID, _ string) bool { return strings.HasPrefix(lockID, q.LockIDPrefix) })) &&
		(q.Owner == "" || concerns(func(lockID, owner string) bool { return owner == q.Owner || lockID == q.Owner }))
}
