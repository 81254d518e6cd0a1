package lockcore

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Layout says how locks are stored in a collection. A collection has one or the other, which it says by its indexes.
type Layout string

const (
	// LayoutOwn is one document per resource, with the resource as its _id. It is the zero value.
	LayoutOwn Layout = ""
	// LayoutMongoLock is that of the Go package mongo-lock, so that its clients and this library can use one
	// collection at the same time. Package mongolock says what is not promised while such clients are around. It
	// needs the unique index on resource, which CreateIndexes makes, and nothing removes idle documents but the GC
	// of package mongolock.
	LayoutMongoLock Layout = "mongo-lock"
)

// LayoutError says that a collection is not in the layout that it was opened with. CreateIndexes answers with it, and
// so does the first operation of a Locker. Nothing was written.
type LayoutError = engine.LayoutError

// newEngine is the engine for the layout.
func newEngine(coll *mongo.Collection, cfg *Config) engine.Engine {
	if cfg.Layout == LayoutMongoLock {
		return mongoengine.NewShared(coll)
	}
	return mongoengine.New(coll, cfg.Retention)
}

func checkLayout(l Layout) error {
	if l == LayoutOwn || l == LayoutMongoLock {
		return nil
	}
	return &InvalidError{Field: "Config.Layout", Value: quote(string(l)), Bound: `"" (lockstep's own) or "mongo-lock"`}
}
