package mongoengine

import (
	"context"
	"iter"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// List sends one command, and more of them if the answer is long.
func (e *Engine) List(ctx context.Context, q engine.Query) iter.Seq2[engine.Document, error] {
	filter := e.filterOf(q)
	if len(filter) == 0 { // all resources, and not what the collection says of itself
		filter = append(filter, v("_id", doc(v("$gte", ""))))
	}
	return func(yield func(engine.Document, error) bool) {
		for d, err := range e.find(ctx, filter) {
			// They come sorted.
			if err == nil && d.ID < q.Prefix {
				continue
			}
			if (err == nil && !strings.HasPrefix(d.ID, q.Prefix)) || !yield(d, err) {
				return
			}
		}
	}
}

// filterOf is what the documents meet that a query selects, but for their time.
func (e *Engine) filterOf(q engine.Query) bson.D {
	filter := bson.D{}
	where := func(name string, value any) { filter = append(filter, bson.E{Key: name, Value: value}) }
	if q.Resource != "" {
		where("_id", bson.D{{Key: "$eq", Value: q.Resource}})
	} else if q.Prefix != "" && !q.Contended { // or the index on _id is chosen, which has all documents
		where("_id", bson.D{{Key: "$gte", Value: q.Prefix}})
	}
	var all bson.A
	some := func(condition bson.D, fields ...string) {
		var either bson.A
		for _, field := range fields {
			either = append(either, bson.D{{Key: field, Value: condition}})
		}
		all = append(all, bson.D{{Key: "$or", Value: either}})
	}
	for _, value := range []string{q.LockID, q.Owner} { // an owner that is its lock ID is not stored
		if value != "" {
			some(bson.D{{Key: "$eq", Value: value}}, "held.lockId", "held.owner", "waiters.lockId", "waiters.owner")
		}
	}
	if q.LockIDPrefix != "" {
		some(bson.D{{Key: "$gte", Value: q.LockIDPrefix}, {Key: "$lt", Value: q.LockIDPrefix + lastRune}}, "held.lockId", "waiters.lockId")
	}
	if q.Waiting || q.Contended {
		all = append(all, bson.D{{Key: "attn", Value: contended}})
	}
	if q.Waiting {
		all = append(all, bson.D{{Key: "waiters.since", Value: bson.D{{Key: "$gt", Value: time.Unix(0, 0)}}}})
	}
	if all != nil {
		where("$and", all)
	}
	return filter
}

// contended is the filter of the index on attn, and word for word what a query has to ask for so
// that the index is used.
var contended = bson.D{{Key: "$gte", Value: ""}}

// lastRune is greater than any that follows a prefix.
const lastRune = "\U0010FFFF"

func listing(filter bson.D) mongo.Pipeline {
	return mongo.Pipeline{on("$match", filter), on("$sort", doc(v("_id", 1))), on("$set", doc(v("at", "$$NOW")))}
}

// find streams the documents that match, with the server's time in at.
func (e *Engine) find(ctx context.Context, filter bson.D) iter.Seq2[engine.Document, error] {
	return func(yield func(engine.Document, error) bool) {
		cursor, err := e.coll.Aggregate(ctx, listing(filter), options.Aggregate().SetBatchSize(batch))
		if err != nil {
			yield(engine.Document{}, err)
			return
		}
		// The server forgets a cursor that was not read to its end in its own time, too.
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
		for cursor.Next(ctx) {
			var d engine.Document
			err := cursor.Decode(&d)
			if !yield(d, err) || err != nil {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(engine.Document{}, err)
		}
	}
}
