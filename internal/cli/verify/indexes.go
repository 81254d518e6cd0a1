package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// idleDocuments is the number of documents of idle resources among which queries must find others. With fewer,
// a server may rightly read them all.
const idleDocuments = 20_000

// indexes is a check: it records the queries that the store sends, and asks the server to explain them.
func (r *run) indexes(ctx context.Context, _ uint64) (found outcome, err error) {
	missing, err := r.wrongTTL(ctx)
	if err != nil || missing != "" {
		return outcome{count: 1, seen: missing}, err
	}
	if err := r.insertIdle(ctx); err != nil {
		return found, err
	}
	defer func() { // the collection is removed anyway
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
		defer cancel()
		_, _ = r.coll.DeleteMany(ctx, idlePrefix)
	}()
	queries, err := r.recordQueries(ctx)
	if err != nil {
		return found, err
	}
	found.count = 1
	for _, q := range queries {
		plan, err := r.explain(ctx, q.command)
		if err != nil {
			found.reason = fmt.Sprintf("the server does not explain queries: %v", err)
			return found, nil
		}
		found.count++
		if !slices.ContainsFunc(q.indexes, func(index string) bool { return strings.Contains(plan, index) }) && found.seen == "" {
			found.seen = fmt.Sprintf("%s does not use an index (%s), among %d documents: %.400s", q.what, strings.Join(q.indexes, " or "), idleDocuments, plan)
		}
	}
	return found, nil
}

// wrongTTL describes what is wrong with the TTL index, or is empty.
func (r *run) wrongTTL(ctx context.Context) (string, error) {
	found, err := r.coll.Indexes().ListSpecifications(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range found {
		if s.ExpireAfterSeconds == nil {
			continue
		}
		if after := time.Duration(*s.ExpireAfterSeconds) * time.Second; after != rules.Retention || s.KeysDocument.Lookup("idleAt").Type == 0 {
			return fmt.Sprintf("the TTL index %s on %s removes after %s, not after %s", s.Name, s.KeysDocument, after, rules.Retention), nil
		}
		return "", nil
	}
	return "the TTL index was made, and the server does not list it", nil
}

var idlePrefix = bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "idle/"}, {Key: "$lt", Value: "idle0"}}}}

func (r *run) insertIdle(ctx context.Context) error {
	const batch = 2000
	for from := 0; from < idleDocuments; from += batch {
		docs := make([]any, batch)
		for i := range docs {
			docs[i] = bson.D{
				{Key: "_id", Value: fmt.Sprintf("idle/%06d", from+i)}, {Key: "version", Value: bson.D{{Key: "n", Value: int64(1)}, {Key: "r", Value: "idle"}}},
				{Key: "entries", Value: bson.A{}}, {Key: "waiters", Value: bson.A{}}, {Key: "attn", Value: bson.A{}}, {Key: "idleAt", Value: time.Now()},
			}
		}
		if _, err := r.coll.InsertMany(ctx, docs); err != nil {
			return fmt.Errorf("insert idle documents: %w", err)
		}
	}
	return nil
}

// removeDocument removes the document of a resource.
func (r *run) removeDocument(ctx context.Context, resource string) error {
	_, err := r.coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: resource}})
	return err
}

// query is a query that the store has sent.
type query struct {
	what    string
	indexes []string
	command bson.D
}

// recordQueries sends the store's queries and returns them.
func (r *run) recordQueries(ctx context.Context) ([]query, error) {
	var mu sync.Mutex
	var finds []bson.D
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			mu.Lock()
			defer mu.Unlock()
			finds = append(finds, explainable(e.Command))
		}
	}}
	mc, err := connect.Mongo(ctx, r.o.URI, "lockstep verify", func(o *options.ClientOptions) { o.SetMonitor(monitor) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // it was for these queries
	s := store.New(mc.Database(r.coll.Database().Name()).Collection(r.coll.Name()))
	const attn, id, pkey = "lockstep_attn", "_id_", "pkey" // the last is that of FerretDB's PostgreSQL
	list := func(q rules.Query) func() error {
		return func() error {
			for _, err := range s.List(ctx, q) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	var queries []query
	for _, q := range []struct {
		what    string
		indexes []string
		send    func() error
	}{
		{"", nil, func() error { _, err := s.Identify(ctx); return err }}, // checks the collection first
		{"the read of a document", []string{id, pkey}, func() error { _, err := s.Load(ctx, "idle/000007"); return err }},
		{"the read of versions", []string{id, pkey}, func() error { _, err := s.Versions(ctx, "idle/000007", "idle/000008"); return err }},
		{"the search for waiters and kept holds", []string{attn}, list(rules.Query{Contended: true})},
		{"the search for deadlocks", []string{attn}, list(rules.Query{Waiting: true})},
	} {
		if err := q.send(); err != nil {
			return nil, err
		}
		if q.what != "" && len(finds) > 0 {
			queries = append(queries, query{q.what, q.indexes, finds[len(finds)-1]})
		}
	}
	return queries, nil
}

// explainable returns a command without the fields that the driver adds.
func explainable(command bson.Raw) bson.D {
	var all, kept bson.D
	if err := bson.Unmarshal(command, &all); err != nil {
		return nil
	}
	for _, e := range all {
		if slices.Contains([]string{"find", "filter", "projection", "sort", "batchSize"}, e.Key) {
			kept = append(kept, e)
		}
	}
	return kept
}

func (r *run) explain(ctx context.Context, command bson.D) (string, error) {
	raw, err := r.coll.Database().RunCommand(ctx, bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
	if err != nil {
		return "", err
	}
	return chosenPlan(raw), nil
}

// chosenPlan returns the part of an explanation that describes what the server does: MongoDB also lists the plans that it has
// rejected. Other servers have no such parts, and the whole explanation counts.
func chosenPlan(raw bson.Raw) string {
	var chosen []string
	var search func(bson.Raw)
	search = func(raw bson.Raw) {
		elements, _ := raw.Elements() // the driver has checked it
		for _, e := range elements {
			value := e.Value()
			switch value.Type {
			case bson.TypeEmbeddedDocument:
				known := len(chosen)
				if search(value.Document()); e.Key() == "winningPlan" && len(chosen) == known { // that of shards contains theirs
					chosen = append(chosen, value.String())
				}
			case bson.TypeArray:
				search(bson.Raw(value.Array()))
			}
		}
	}
	if search(raw); len(chosen) == 0 {
		return raw.String()
	}
	return strings.Join(chosen, "\n")
}
