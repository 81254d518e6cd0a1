package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// batch is how many documents one command renews. Each looks itself up in a list of that length.
const batch = 500

// RenewAll sends one command per batch of documents, and one read for a batch in which something
// was lost. A batch that fails keeps no other from being sent.
func (e *Engine) RenewAll(ctx context.Context, ops []engine.Renew) ([]bool, error) {
	renewed := make([]bool, len(ops))
	if err := e.check(ctx); err != nil {
		return renewed, err
	}
	// What is read after an update has to be no older than it.
	session, err := e.coll.Database().Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return renewed, fmt.Errorf("lockstep: renew a batch: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	parts := map[string][]int{} // indexes of ops, by resource
	var names []string
	for i, op := range ops {
		if parts[op.Resource] == nil {
			names = append(names, op.Resource)
		}
		parts[op.Resource] = append(parts[op.Resource], i)
	}
	slices.Sort(names) // batches that run at once lock documents in the same order
	var failed []error
	for names := range slices.Chunk(names, batch) {
		keys := make(bson.A, len(names))
		for i, name := range names {
			keys[i] = keysOf(ops, parts[name])
		}
		res, err := e.coll.UpdateMany(ctx, oneOf(names), renewAllStages(names, keys))
		if err != nil {
			failed = append(failed, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		lost := map[string]bool{}
		if res.ModifiedCount < int64(len(names)) {
			lost = e.lost(ctx, names, ops, parts)
		}
		for _, name := range names {
			for _, i := range parts[name] {
				renewed[i] = !lost[name]
			}
		}
	}
	return renewed, errors.Join(failed...)
}

// renewAllStages extends the parts of each document that keys names, or none if one of them is not
// there: then the document stays as it was, and is not counted.
func renewAllStages(names []string, keys bson.A) []bson.D {
	var s stages
	s.set(v("k", op("$arrayElemAt", lit(keys), op("$indexOfArray", lit(names), "$_id"))))
	s.set(v("n", filter("$held", and(running, in(list("$$this.lockId", "$$this.part", "$$this.order"), "$t.k")))))
	s.set(v("g", eq(size("$t.n"), size("$t.k"))))
	extended := merge("$$this", doc(v("renewedAt", "$$NOW"), v("expiresAt", largest("$$this.expiresAt", add("$$NOW", "$$this.ttl")))))
	named := or(in("$$this", "$t.n"), and(isKept, in("$$this.lockId", "$t.n.lockId")))
	s.put(
		v("held", cond("$t.g", each("$held", cond(named, extended, "$$this")), "$held")),
		v("seq", cond("$t.g", add("$seq", int64(1)), "$seq")),
		v("at", cond("$t.g", "$$NOW", "$at")),
	)
	s.put(v("idleAt", cond("$t.g", idleAt, "$idleAt")))
	return append(s, on("$unset", "t"))
}

// lost says of which of the documents a part is not there: those were not renewed. If the read
// fails it says so of all, so that each is asked for.
func (e *Engine) lost(ctx context.Context, names []string, ops []engine.Renew, parts map[string][]int) map[string]bool {
	docs, _ := e.Read(ctx, names...) // none if it failed
	lost := map[string]bool{}
	for _, name := range names {
		lost[name] = true
	}
	for _, d := range docs {
		lost[d.ID] = slices.ContainsFunc(parts[d.ID], func(i int) bool { return d.Part(ops[i].LockID, ops[i].Part, ops[i].Order) == nil })
	}
	return lost
}

func keysOf(ops []engine.Renew, indexes []int) bson.A {
	keys := bson.A{}
	seen := map[engine.Renew]bool{} // who asks twice for one part names one entry
	for _, at := range indexes {
		if op := ops[at]; !seen[op] {
			seen[op] = true
			keys = append(keys, bson.A{op.LockID, op.Part, op.Order})
		}
	}
	return keys
}

func oneOf(names []string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}
}

// Read sends one command.
func (e *Engine) Read(ctx context.Context, resources ...string) ([]engine.Document, error) {
	var docs []engine.Document
	for d, err := range e.find(ctx, oneOf(resources)) {
		if err != nil {
			return nil, fmt.Errorf("lockstep: read lock documents: %w", err)
		}
		docs = append(docs, d)
	}
	return docs, nil
}
