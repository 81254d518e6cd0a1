package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// IdentityID is the _id of the collection's identity. No resource has it, because names are strings.
const IdentityID = int32(0)

// Names of the indexes. The index on attn contains only documents with more than plain holds.
const (
	idleIndex = "lockstep_idle"
	attnIndex = "lockstep_attn"
)

// contended is the filter of the partial index on attn. The server uses the index only for queries that
// contain exactly this condition.
var contended = bson.D{{Key: "$gte", Value: ""}}

// What the indexes do, as in the answer to listIndexes.
var (
	idleKey, attnKey = bson.D{{Key: "idleAt", Value: 1}}, bson.D{{Key: "attn", Value: 1}}
	attnFilter       = bson.D{{Key: "attn", Value: contended}}
)

// idleSeconds is the time for which the TTL index keeps a document.
const idleSeconds = int32(rules.Retention / time.Second)

// Identify returns the identity of the collection. On an empty collection it creates it.
func (m *Mongo) Identify(ctx context.Context) (rules.Identity, error) {
	if err := m.check(ctx); err != nil {
		return rules.Identity{}, err
	}
	return m.identify(ctx)
}

// Prepare creates the TTL index on idleAt and the partial index on attn with one command. Its outcomes
// are: both indexes exist, or an error, for example because the TTL index exists with another time.
func (m *Mongo) Prepare(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	return send(ctx, "create the indexes on idleAt and attn of "+m.local.Name(), func(ctx context.Context) error {
		_, err := m.local.Indexes().CreateMany(ctx, []mongo.IndexModel{
			{Keys: idleKey, Options: options.Index().SetName(idleIndex).SetExpireAfterSeconds(idleSeconds)},
			{Keys: attnKey, Options: options.Index().SetName(attnIndex).SetPartialFilterExpression(attnFilter)},
		})
		return err
	})
}

// IndexedStore is a Store whose indexes can be missing.
type IndexedStore interface {
	// MissingIndexes returns the name of the collection, and the indexes that Prepare would create. The name of one
	// that exists with another definition is followed by the difference.
	MissingIndexes(ctx context.Context) (collection string, missing []string, err error)
}

var _ IndexedStore = (*Mongo)(nil)

// MissingIndexes sends one listIndexes, and compares what the indexes of Prepare do. The name of an index that is
// another one is followed by the difference.
func (m *Mongo) MissingIndexes(ctx context.Context) (collection string, missing []string, err error) {
	collection = m.local.Database().Name() + "." + m.local.Name()
	found := map[string]bson.Raw{} // by name
	err = send(ctx, "list the indexes of "+m.local.Name(), func(ctx context.Context) error {
		cursor, err := m.local.Indexes().List(ctx)
		if err != nil {
			return err
		}
		var all []bson.Raw
		err = cursor.All(ctx, &all) // it closes the cursor
		for _, index := range all {
			name, _ := index.Lookup("name").StringValueOK()
			found[name] = index
		}
		return err
	})
	if err != nil {
		return collection, nil, err
	}
	for _, want := range []struct {
		name string
		// fields are those of the answer to listIndexes.
		fields bson.D
	}{
		{idleIndex, bson.D{{Key: "key", Value: idleKey}, {Key: "expireAfterSeconds", Value: idleSeconds}}},
		{attnIndex, bson.D{{Key: "key", Value: attnKey}, {Key: "partialFilterExpression", Value: attnFilter}}},
	} {
		index, exists := found[want.name]
		difference := differenceIn(index, want.fields)
		switch {
		case !exists:
			missing = append(missing, want.name)
		case difference != "":
			missing = append(missing, want.name+" (there is one, but "+difference+")")
		}
	}
	return collection, missing, nil
}

// differenceIn describes the first field that a document has not, or has with another value. Numbers may differ in their
// types, as those of servers do.
func differenceIn(found bson.Raw, want bson.D) string {
	for _, field := range want {
		value, err := found.LookupErr(field.Key)
		has, wants := plain(value), plain(field.Value)
		switch {
		case err != nil:
			return fmt.Sprintf("it has no %s, which must be %s", field.Key, wants)
		case has != wants:
			return fmt.Sprintf("its %s is %s, not %s", field.Key, has, wants)
		}
	}
	return ""
}

// plain returns a value as JSON, in which numbers of all types are alike.
func plain(value any) string {
	raw, err := bson.MarshalExtJSON(bson.D{{Key: "", Value: value}}, false, false)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(raw), `{"":`), "}")
	return strings.ReplaceAll(strings.ReplaceAll(text, `":`, `": `), ".0", "")
}

// check verifies the collection's layout before the first operation. A success is remembered.
func (m *Mongo) check(ctx context.Context) error {
	if m.checked.Load() {
		return nil
	}
	if err := m.checkOptions(ctx); err != nil {
		return err
	}
	if _, err := m.identify(ctx); err != nil {
		return err
	}
	if err := m.askTopology(ctx); err != nil {
		return err
	}
	m.checked.Store(true)
	return nil
}

// askTopology sends hello to find out whether the server is a router of a sharded cluster.
func (m *Mongo) askTopology(ctx context.Context) error {
	return send(ctx, fmt.Sprintf("ask the server of %s what it is", m.local.Name()), func(ctx context.Context) error {
		var hello struct {
			Msg string `bson:"msg"`
		}
		err := m.local.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
		m.sharded.Store(hello.Msg == "isdbgrid")
		return err
	})
}

// checkOptions sends listCollections and refuses a collection that does not compare strings byte by byte,
// in which "A" and "a" could be one resource. DocumentDB ignores collations and does not report them.
func (m *Mongo) checkOptions(ctx context.Context) error {
	name := m.local.Name()
	var found []mongo.CollectionSpecification
	err := send(ctx, fmt.Sprintf("read the options of %s, for which the privilege listCollections is needed", name), func(ctx context.Context) (err error) {
		found, err = m.local.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: name}})
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range found {
		if err := checkCollation(name, c.Options); err != nil {
			return err
		}
	}
	return nil
}

func checkCollation(collection string, options bson.Raw) error {
	locale, _ := options.Lookup("collation", "locale").StringValueOK()
	if locale == "" || locale == "simple" {
		return nil
	}
	return &rules.LayoutError{
		Collection: collection, Found: fmt.Sprintf("its default collation has the locale %q", locale),
		Help: "Use a collection without a collation: names are compared byte by byte.",
	}
}

// identify reads the collection's identity. It has these outcomes:
//
//  1. The identity exists: it is returned, or refused if it has another version.
//  2. The identity is missing, and the collection is empty: identify inserts one, with a new ID, and reads again. If
//     another process was faster, the insert fails with a duplicate key, which is not an error.
//  3. The identity is missing, but a document exists: another process may have inserted both since the read, so
//     identify reads again. If there is still no identity, the collection is refused, and nothing was
//     written.
func (m *Mongo) identify(ctx context.Context) (rules.Identity, error) {
	var refusal *rules.LayoutError
	for range readAttempts {
		_, raw, err := m.read(ctx, m.local, nil)
		if err != nil {
			return rules.Identity{}, err
		}
		if raw != nil {
			return m.parse(ctx, raw, true)
		}
		if refusal != nil {
			return rules.Identity{}, refusal
		}
		if refusal, err = m.findForeign(ctx); err != nil {
			return rules.Identity{}, err
		}
		if refusal == nil {
			if err := m.insertIdentity(ctx); err != nil {
				return rules.Identity{}, err
			}
		}
	}
	return rules.Identity{}, fmt.Errorf("lockstep: the identity of %s is removed as often as it is created", m.local.Name())
}

// findForeign sends one find for any document. It has three outcomes: no document, which returns nil; a
// document, which it describes; or an error.
func (m *Mongo) findForeign(ctx context.Context) (*rules.LayoutError, error) {
	var raw bson.Raw
	err := send(ctx, "read "+m.local.Name(), func(ctx context.Context) (err error) {
		raw, err = m.local.FindOne(ctx, bson.D{}).Raw()
		return err
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil //nolint:nilnil // an empty collection is not refused
	}
	if err != nil {
		return nil, err
	}
	if _, err := decode(raw); err == nil && m.checked.Load() { // it was written while the collection was emptied
		return nil, nil //nolint:nilnil // this collection had an identity, and lost it
	}
	id := raw.Lookup("_id")
	found := fmt.Sprintf("it has no identity, and a document whose _id is of the type %s", id.Type)
	if id.Type == bson.TypeObjectID {
		found = "a document whose _id is an ObjectID"
	}
	if resource, err := raw.LookupErr("resource"); err == nil && resource.Type != bson.TypeNull {
		found += ", with a field resource, as clients of mongo-lock write it"
	}
	return &rules.LayoutError{Collection: m.local.Name(), Found: found, Help: "Use a collection of its own for these locks."}, nil
}

// insertIdentity sends one insert. It has three outcomes: inserted; a duplicate key, because another
// process was faster, which is not an error; or any other error.
func (m *Mongo) insertIdentity(ctx context.Context) error {
	return send(ctx, "create the identity of "+m.local.Name(), func(ctx context.Context) error {
		_, err := m.local.InsertOne(ctx, bson.D{
			{Key: "_id", Value: IdentityID},
			{Key: "version", Value: rules.LayoutVersion},
			{Key: "id", Value: rand.Text()},
			{Key: "epoch", Value: rand.Text()},
		})
		if mongo.IsDuplicateKeyError(err) {
			return nil
		}
		return err
	})
}

// parse returns the identity with its policies. It remembers what was read from the primary; a majority may not have the
// latest policies yet.
func (m *Mongo) parse(ctx context.Context, raw bson.Raw, primary bool) (rules.Identity, error) {
	identity, err := parseIdentity(m.local.Name(), raw)
	if err != nil {
		return identity, err
	}
	if !primary {
		identity.Policies = m.policies.Load()
		return identity, nil
	}
	of := identity.Generation()
	m.seen.Store(&of)
	identity.Policies, err = m.adopt(ctx, identity.PolicyVersion)
	return identity, err
}

// parseIdentity refuses an identity of another version of the layout, and a document of another
// program that happens to have its _id.
func parseIdentity(collection string, raw bson.Raw) (rules.Identity, error) {
	id, hasID := raw.Lookup("id").StringValueOK()
	version, hasVersion := raw.Lookup("version").AsInt64OK()
	var identity rules.Identity
	refusal := &rules.LayoutError{Collection: collection, Help: "Use a collection of its own for these locks."}
	switch {
	case !hasID || !hasVersion || id == "":
		refusal.Found = "its document with the _id 0 is not an identity of Lockstep"
		return rules.Identity{}, refusal
	case version != rules.LayoutVersion && version != rules.PolicyLayout:
		refusal.Found = fmt.Sprintf("it has version %d, and this is version %d, or %d with policies", version, rules.LayoutVersion, rules.PolicyLayout)
		refusal.Help = "Use a collection of its own for these locks, or the version of Lockstep that made it."
		return rules.Identity{}, refusal
	}
	if err := bson.Unmarshal(raw, &identity); err != nil || identity.Epoch == "" {
		refusal.Found = fmt.Sprintf("its identity is damaged: it has no epoch, or a field of another type: %v", err)
		return rules.Identity{}, refusal
	}
	identity.At = identity.At.UTC()
	return identity, nil
}
