package store

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Time limits of single commands, in addition to the caller's.
const (
	commandTimeout = 10 * time.Second
	closeTimeout   = time.Second
)

// Mongo is a Store in a MongoDB collection.
type Mongo struct {
	// local reads from the primary, majority reads what a majority of the servers has. Both write with a
	// majority and the journal.
	local, majority *mongo.Collection
	// checked is set once the collection is known to have the layout of this version.
	checked atomic.Bool
	// sharded is set if the server is a router of a sharded cluster.
	sharded atomic.Bool
	// seen is the generation of the collection at the latest read of its identity from the primary.
	seen atomic.Pointer[rules.Generation]
	// policies are the ones of the latest read.
	policies atomic.Pointer[rules.Policies]
}

var _ Store = (*Mongo)(nil)

// New returns the store in coll. It uses coll's client with its own concerns: majority and journalled
// writes, and reads from the primary.
func New(coll *mongo.Collection) *Mongo {
	journal := true
	concern := writeconcern.Majority()
	concern.Journal = &journal
	clone := func(reads *readconcern.ReadConcern) *mongo.Collection {
		return coll.Clone(options.Collection().SetWriteConcern(concern).SetReadConcern(reads).
			SetReadPreference(readpref.Primary()))
	}
	return &Mongo{local: clone(readconcern.Local()), majority: clone(readconcern.Majority())}
}

// Load reads with local read concern.
func (m *Mongo) Load(ctx context.Context, names ...string) (Loaded, error) {
	return m.load(ctx, m.local, names)
}

// LoadMajority reads with majority read concern.
func (m *Mongo) LoadMajority(ctx context.Context, names ...string) (Loaded, error) {
	return m.load(ctx, m.majority, names)
}

// versionsBatch is the number of documents in one read of versions.
const versionsBatch = 1000

// Versions sends one command per versionsBatch documents.
func (m *Mongo) Versions(ctx context.Context, names ...string) (map[string]rules.Version, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	versions := make(map[string]rules.Version, len(names))
	for batch := range slices.Chunk(names, versionsBatch) {
		if err := m.readVersions(ctx, batch, versions); err != nil {
			return nil, err
		}
	}
	return versions, nil
}

// readVersions sends one find. Its outcomes are the versions of the documents that exist, or an error.
func (m *Mongo) readVersions(ctx context.Context, names []string, versions map[string]rules.Version) error {
	return send(ctx, "read versions of "+m.majority.Name(), func(ctx context.Context) error {
		cursor, err := m.majority.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}},
			options.Find().SetProjection(bson.D{{Key: "version", Value: 1}}).SetBatchSize(versionsBatch+1))
		if err != nil {
			return err
		}
		var docs []bson.Raw
		err = cursor.All(ctx, &docs) // it closes the cursor
		for _, raw := range docs {
			var d struct {
				Version rules.Version `bson:"version"`
			}
			if name, ok := nameOf(raw); ok && bson.Unmarshal(raw, &d) == nil && d.Version.N > 0 && d.Version.R != "" {
				versions[name] = d.Version
			}
		}
		return err
	})
}

const (
	// readAttempts bounds the reads of one call that do not find the identity.
	readAttempts = 4
	// readPause is the longest pause before the second one, and longestReadPause that before the last one.
	readPause        = 20 * time.Millisecond
	longestReadPause = 80 * time.Millisecond
)

// load repeats a read that does not find the identity. In that case either a majority does not have the
// identity yet, or the collection was dropped and is used like an empty one.
func (m *Mongo) load(ctx context.Context, coll *mongo.Collection, names []string) (Loaded, error) {
	if err := m.check(ctx); err != nil {
		return Loaded{}, err
	}
	for attempt := range readAttempts {
		if attempt > 0 {
			real := clock.Real{}
			if !clock.Sleep(ctx, real, pace.Jitter(pace.Backoff(readPause, longestReadPause, attempt), real.Jitter)) {
				return Loaded{}, contextEnded(ctx.Err(), "read %s", coll.Name())
			}
			if _, err := m.identify(ctx); err != nil {
				return Loaded{}, err
			}
		}
		loaded, identity, err := m.read(ctx, coll, names)
		if err != nil {
			return Loaded{}, err
		}
		if identity != nil {
			loaded.Identity, err = m.parse(ctx, identity, coll == m.local)
			loaded.complete()
			return loaded, err
		}
	}
	return Loaded{}, fmt.Errorf("lockstep: read %s: its identity was created, but is missing", coll.Name())
}

// read sends one find, which has these outcomes:
//
//  1. The documents that exist, and the identity with the server's time.
//  2. No identity: identity is nil, and the server's time is unknown.
//  3. A document that cannot be decoded: it is in Damaged, and the others are in Docs.
//  4. Any other error.
func (m *Mongo) read(ctx context.Context, coll *mongo.Collection, names []string) (loaded Loaded, identity bson.Raw, err error) {
	if err := ctx.Err(); err != nil {
		return Loaded{}, nil, contextEnded(err, "read %s", coll.Name())
	}
	ctx, cancel := command(ctx)
	defer cancel()
	ids := make(bson.A, 0, len(names)+1)
	ids = append(ids, IdentityID)
	for _, name := range names {
		ids = append(ids, name)
	}
	cursor, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(withTime).SetBatchSize(int32(min(len(ids)+1, 1<<30))))
	if err != nil {
		return Loaded{}, nil, commandError(err, "read %s", coll.Name())
	}
	defer closeCursor(ctx, cursor)
	loaded.Docs = make(map[string]*rules.Document, len(names))
	for cursor.Next(ctx) {
		raw := cursor.Current
		name, isName := nameOf(raw)
		if !isName {
			identity = append(bson.Raw{}, raw...) // the cursor reuses its buffer
			loaded.At, _ = raw.Lookup("at").TimeOK()
			loaded.At = loaded.At.UTC()
			continue
		}
		loaded.add(name, raw)
	}
	if err := cursor.Err(); err != nil {
		return Loaded{}, nil, commandError(err, "read %s", coll.Name())
	}
	return loaded, identity, nil
}

// withTime projects all fields of documents and of the identity, and adds the server's time. An
// aggregation with $set would need no list of fields, but takes a fifth longer.
var withTime = projectionWithTime()

func projectionWithTime() bson.D {
	var fields bson.D
	for _, t := range []reflect.Type{reflect.TypeFor[rules.Document](), reflect.TypeFor[rules.Identity]()} {
		for _, f := range fieldsOf(t) {
			if !slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == f.key }) && f.key != "at" {
				fields = append(fields, bson.E{Key: f.key, Value: 1})
			}
		}
	}
	return append(fields, bson.E{Key: "at", Value: "$$NOW"})
}

// command returns the context of one command. It has a time limit, and hides the session and the
// transaction of the caller's context, which the driver would otherwise use. The driver itself hides
// them with a nil session.
func command(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(mongo.NewSessionContext(ctx, nil), commandTimeout)
}

// send calls fn, which sends one command, with the context of a command. Its errors name the operation.
func send(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return contextEnded(err, "%s", operation)
	}
	ctx, cancel := command(ctx)
	defer cancel()
	if err := fn(ctx); err != nil {
		return commandError(err, "%s", operation)
	}
	return nil
}

// closeCursor closes a cursor, even if ctx has ended. If it fails, the server closes the cursor after a
// timeout of its own.
func closeCursor(ctx context.Context, cursor *mongo.Cursor) {
	ctx, cancel := context.WithTimeout(mongo.NewSessionContext(context.WithoutCancel(ctx), nil), closeTimeout)
	defer cancel()
	_ = cursor.Close(ctx)
}
