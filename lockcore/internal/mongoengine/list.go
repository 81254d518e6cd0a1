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
		if q.Live && !q.Contended {
			live, err := e.live(ctx)
			if err != nil {
				yield(engine.Document{}, err)
				return
			}
			filter = append(filter, live)
		}
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
	for _, value := range []string{q.LockID, q.Owner} {
		if value == "" {
			continue
		}
		var some bson.A
		// An owner that is its lock ID is not stored.
		for _, field := range []string{"held.lockId", "held.owner", "waiters.lockId", "waiters.owner"} {
			some = append(some, bson.D{{Key: field, Value: bson.D{{Key: "$eq", Value: value}}}})
		}
		all = append(all, bson.D{{Key: "$or", Value: some}})
	}
	if q.LockIDPrefix != "" {
		var some bson.A
		for _, field := range []string{"held.lockId", "waiters.lockId"} {
			some = append(some, bson.D{{Key: field, Value: bson.D{{Key: "$gte", Value: q.LockIDPrefix}, {Key: "$lt", Value: q.LockIDPrefix + lastRune}}}})
		}
		all = append(all, bson.D{{Key: "$or", Value: some}})
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

// live is what documents meet in which a promise may stand: the TTL index on idleAt finds them, so that those that are
// idle, and merely kept for their fence, cost nothing. idleAt is no earlier than the last write, and a place in a queue
// ends within an hour of it at most. The time is the server's, and the second hour for several servers.
func (e *Engine) live(ctx context.Context) (bson.E, error) {
	var server struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := e.coll.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&server); err != nil {
		return bson.E{}, err
	}
	from := server.LocalTime.Add(-2 * time.Hour)
	return bson.E{Key: "idleAt", Value: bson.D{{Key: "$gte", Value: from}}}, nil
}

// listing is the pipeline that lists documents.
func (e *Engine) listing(filter bson.D) mongo.Pipeline {
	pipeline := mongo.Pipeline{on("$match", filter), on("$sort", doc(v("_id", 1)))}
	pipeline = append(pipeline, on("$set", doc(v("at", "$$NOW"))))
	return pipeline
}

// find streams the documents that match, with the server's time in at.
func (e *Engine) find(ctx context.Context, filter bson.D) iter.Seq2[engine.Document, error] {
	return func(yield func(engine.Document, error) bool) {
		cursor, err := e.coll.Aggregate(ctx, e.listing(filter), options.Aggregate().SetBatchSize(batch))
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
