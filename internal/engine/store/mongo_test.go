package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// TestMongo_Commands exercises the entire store. Each fixture checks its commands with package storetest;
// this test also verifies that the commands were seen.
func TestMongo_Commands(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.Prepare(t.Context()))
	insert(t, f, document("x", 1), document("z", 1))
	for name, err := range everyOperation(t.Context(), f) {
		require.NoError(t, err, name)
	}
	for _, q := range []rules.Query{
		{Resource: "x"}, {Prefix: "x"}, {LockID: "a", LockIDPrefix: "b", Owner: "c"},
		{Waiting: true}, {Contended: true, Prefix: "x"}, {Contended: true, LockID: "a"},
	} {
		listed(t, f, q)
	}
	for _, name := range []string{"find", "insert", "update", "createIndexes", "listCollections"} {
		require.Positive(t, f.checker.Count(name), name)
	}
	require.NoError(t, f.checker.Err())
}

func TestMongo_Concerns(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1))
	level := func(read func()) string {
		read()
		commands := f.checker.Commands()
		last := commands[len(commands)-1]
		require.Equal(t, "find", last.Name)
		return last.Body.Lookup("readConcern", "level").StringValue()
	}
	require.Equal(t, "local", level(func() { stored(t, f, "x") }))
	require.Equal(t, "majority", level(func() { listed(t, f, rules.Query{}) }))
	require.Equal(t, "majority", level(func() {
		_, err := f.LoadMajority(t.Context(), "x")
		require.NoError(t, err)
	}))
	for name, err := range everyOperation(t.Context(), f) {
		require.NoError(t, err, name)
	}
	writes := 0
	for _, c := range f.checker.Commands() {
		if c.Name == "insert" || c.Name == "update" {
			writes++
			require.Equal(t, "majority", c.Body.Lookup("writeConcern", "w").StringValue())
			require.True(t, c.Body.Lookup("writeConcern", "j").Boolean())
		}
	}
	require.GreaterOrEqual(t, writes, 6)
}

// No operation may write to a collection of another program.
func TestMongo_ForeignCollection(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-1000 * time.Hour)
	for name, test := range map[string]struct {
		doc   bson.D
		found string
	}{
		"StringID":    {bson.D{{Key: "_id", Value: "x"}, {Key: "idleAt", Value: past}}, "no identity, and a document whose _id is of the type string"},
		"NumberID":    {bson.D{{Key: "_id", Value: 7}, {Key: "idleAt", Value: past}}, "no identity, and a document whose _id is of the type 32-bit integer"},
		"DocumentID":  {bson.D{{Key: "_id", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "idleAt", Value: past}}, "embedded document"},
		"ObjectID":    {bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "resource", Value: "r"}}, "a field resource, as clients of mongo-lock write it"},
		"ZeroID":      {bson.D{{Key: "_id", Value: 0}, {Key: "idleAt", Value: past}}, "not an identity"},
		"RubbishID":   {bson.D{{Key: "_id", Value: 0}, {Key: "id", Value: 5}, {Key: "version", Value: bson.A{}}}, "not an identity"},
		"OldVersion":  {bson.D{{Key: "_id", Value: int32(0)}, {Key: "version", Value: 2}, {Key: "id", Value: "old"}}, "version 2, and this is version 5"},
		"LikeOneOfUs": {bson.D{{Key: "_id", Value: "x"}, {Key: "version", Value: bson.D{{Key: "n", Value: int64(1)}, {Key: "r", Value: "r1"}}}}, "no identity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			_, err := f.raw.InsertOne(t.Context(), test.doc)
			require.NoError(t, err)
			before := everything(t, f.raw)
			for operation, err := range everyOperation(t.Context(), f) {
				var refused *rules.LayoutError
				require.ErrorAs(t, err, &refused, operation)
				require.Equal(t, "locks", refused.Collection)
				require.Contains(t, refused.Found, test.found, operation)
				if operation == "Insert" || operation == "Replace" || operation == "ReplaceAll" || operation == "Extend" || operation == "Reserve" {
					require.ErrorIs(t, err, store.ErrNotSent, operation)
				}
			}
			require.Equal(t, before, everything(t, f.raw))
			indexes, err := f.raw.Indexes().ListSpecifications(t.Context())
			require.NoError(t, err)
			require.Len(t, indexes, 1, "only the one on _id")
			require.Zero(t, f.checker.Count("insert")+f.checker.Count("update")+f.checker.Count("createIndexes"))
		})
	}
}

func everything(t *testing.T, coll *mongo.Collection) []bson.M {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	all := []bson.M{}
	require.NoError(t, cursor.All(t.Context(), &all))
	return all
}

// TestMongo_CollationOfCollection uses a collection in which "A" equals "a". MongoDB reports the collation,
// and the collection is refused because its index on _id takes the two for duplicates. DocumentDB ignores
// the collation.
func TestMongo_CollationOfCollection(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.raw.Database().CreateCollection(t.Context(), f.raw.Name(),
		options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 1})))
	_, err := f.Identify(t.Context())
	if err != nil {
		var refused *rules.LayoutError
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Found, `the locale "en"`)
		require.Empty(t, everything(t, f.raw))
		return
	}
	insert(t, f, document("A", 1), document("a", 1))
	require.Equal(t, []string{"A"}, listed(t, f, rules.Query{Resource: "A"}))
}

func TestCheckCollation(t *testing.T) {
	t.Parallel()
	for options, refused := range map[string]bool{
		`{}`: false, `{"capped": false}`: false, `{"collation": {"locale": "simple"}}`: false, `{"collation": 5}`: false,
		`{"collation": {"locale": "en", "strength": 3}}`: true,
	} {
		var raw bson.Raw
		require.NoError(t, bson.UnmarshalExtJSON([]byte(options), false, &raw))
		require.Equal(t, refused, store.CheckCollation("locks", raw) != nil, options)
	}
	require.NoError(t, store.CheckCollation("locks", nil))
}

func TestMongo_Indexes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.Prepare(t.Context()))
	indexes, err := f.raw.Indexes().List(t.Context())
	require.NoError(t, err)
	var all []struct {
		Name    string   `bson:"name"`
		Key     bson.Raw `bson:"key"`
		Partial bson.Raw `bson:"partialFilterExpression"`
		Expires int64    `bson:"expireAfterSeconds"`
	}
	require.NoError(t, indexes.All(t.Context(), &all))
	found := 0
	for _, index := range all {
		switch index.Name {
		case "lockstep_idle":
			require.Equal(t, int64(rules.Retention/time.Second), index.Expires)
			require.JSONEq(t, `{"idleAt": {"$numberInt": "1"}}`, index.Key.String())
			found++
		case "lockstep_attn":
			require.JSONEq(t, `{"attn": {"$gte": ""}}`, index.Partial.String())
			found++
		}
	}
	require.Equal(t, 2, found)
}

// With many idle documents, the server must plan to use the index on attn.
func TestMongo_ContendedQueries_UseTheirIndex(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.Prepare(t.Context()))
	idle := make([]any, 20_000)
	for i := range idle {
		raw, err := store.Encode(document(fmt.Sprint("idle/", i), 1))
		require.NoError(t, err)
		idle[i] = raw
	}
	_, err := f.raw.InsertMany(t.Context(), idle)
	require.NoError(t, err)
	contended := document("contended", 1)
	contended.Attn = []string{"exclusive"}
	contended.Waiters = []rules.Waiter{{Caller: rules.Caller{LockID: "lock-w"}, Since: at(1), ExpiresAt: at(2), OverdueAt: at(2)}}
	insert(t, f, contended)
	for _, q := range []rules.Query{
		{Waiting: true}, {Contended: true}, {Contended: true, LockIDPrefix: "lock-a"},
		{Contended: true, Owner: "owner-b"}, {Contended: true, Prefix: "c"}, {Waiting: true, LockID: "lock-w"},
	} {
		require.Equal(t, []string{"contended"}, listed(t, f, q), "%+v", q)
		plan, err := f.raw.Database().RunCommand(t.Context(), bson.D{{Key: "explain", Value: bson.D{
			{Key: "find", Value: f.raw.Name()}, {Key: "filter", Value: store.ListFilter(q)}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		}}}).Raw()
		require.NoError(t, err)
		require.Contains(t, plan.String(), `"lockstep_attn"`, "%+v", q)
	}
}

// Several processes start on an empty collection, and some of them write documents at once.
func TestMongo_Identify_Concurrently(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := setup(t)
		var wg sync.WaitGroup
		var ids, errs sync.Map
		for i := range 10 {
			wg.Go(func() {
				s := store.New(f.client.Database(f.raw.Database().Name()).Collection(f.raw.Name()))
				if i%2 == 0 {
					if _, err := s.Swap(t.Context(), store.Swap{Next: document(fmt.Sprint("x", i), 1)}); err != nil {
						errs.Store(i, err)
					}
				}
				identity, err := s.Identify(t.Context())
				if err != nil {
					errs.Store(-i, err)
				}
				ids.Store(identity.ID, true)
			})
		}
		wg.Wait()
		errs.Range(func(_, err any) bool {
			require.NoError(t, err.(error))
			return true
		})
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		require.Equal(t, 1, n)
		require.Len(t, everything(t, f.raw), 6)
	}
}

// Another process creates the identity and a document between the read of the identity and the search
// for other documents, or before the insert.
func TestMongo_Identify_OtherProcessInBetween(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"find", "insert"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			var other *fixture
			var once sync.Once
			f := setupAt(t, testenv.MongoURI(t), alsoMonitor(func(e *event.CommandStartedEvent) {
				if e.CommandName == command {
					once.Do(func() { insert(t, other.Mongo, document("x", 1)) })
				}
			}))
			other = setup(t)
			other.Mongo = store.New(f.raw)
			identity, err := f.Identify(t.Context())
			require.NoError(t, err)
			same, err := other.Identify(t.Context())
			require.NoError(t, err)
			require.Equal(t, same.ID, identity.ID)
			require.Len(t, everything(t, f.raw), 2)
		})
	}
}

func TestMongo_DroppedCollection_IsUsedAsEmpty(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1))
	first, err := f.Identify(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.raw.Drop(t.Context()))
	require.Nil(t, stored(t, f, "x"))
	second, err := f.Identify(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)
}

func TestMongo_CallersSession_IsNotUsed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1))
	before := len(f.checker.Commands())
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "kept")
	require.NoError(t, f.client.UseSession(ctx, func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		require.NoError(t, session.StartTransaction())
		for name, err := range everyOperation(ctx, f) {
			require.NoError(t, err, name)
		}
		commands := f.checker.Commands()[before:]
		require.GreaterOrEqual(t, len(commands), 10)
		for _, c := range commands {
			requireNoTransaction(t, c)
			id, err := c.Body.LookupErr("lsid")
			if err == nil { // an implicit session of the driver
				require.NotEqual(t, bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: session.ID()}.Document().String(), id.Document().String())
			}
		}
		require.Equal(t, "kept", ctx.Value(key{}))
		return nil
	}))
}

func requireNoTransaction(t *testing.T, c storetest.Command) {
	t.Helper()
	for _, field := range []string{"autocommit", "startTransaction"} {
		_, err := c.Body.LookupErr(field)
		require.Error(t, err, "%s has %s", c.Name, field)
	}
}

// Reads and lists name documents that cannot be decoded, and still return the others.
func TestMongo_RubbishDocuments(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("a", 1), document("z", 1))
	good := bson.D{{Key: "n", Value: int64(1)}, {Key: "r", Value: "r1"}}
	for i, fields := range []bson.D{
		{{Key: "version", Value: good}, {Key: "entries", Value: "rubbish"}},
		{{Key: "version", Value: good}, {Key: "entries", Value: bson.A{1, 2}}},
		{{Key: "version", Value: good}, {Key: "entries", Value: bson.A{bson.D{{Key: "expiresAt", Value: "soon"}}}}},
		{{Key: "version", Value: good}, {Key: "fence", Value: 1.5}},
		{{Key: "version", Value: good}, {Key: "idleAt", Value: bson.D{}}},
		{{Key: "version", Value: good}, {Key: "attn", Value: bson.A{1}}},
		{{Key: "version", Value: good}, {Key: "at", Value: 1}, {Key: "waiters", Value: true}},
		{{Key: "version", Value: 5}},
		{},
	} {
		name := fmt.Sprint("rubbish", i)
		_, err := f.raw.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: name}}, fields...))
		require.NoError(t, err)
		for _, read := range []func(context.Context, ...string) (store.Loaded, error){f.Load, f.LoadMajority} {
			loaded, err := read(t.Context(), "a", name)
			require.NoError(t, err)
			require.NotNil(t, loaded.Docs["a"])
			require.ErrorContains(t, loaded.Damaged[name], fmt.Sprintf("%q", name))
		}
		names := map[string]bool{}
		for d, err := range f.List(t.Context(), rules.Query{}) {
			if bad := new(store.DamagedError); errors.As(err, &bad) {
				d.ID = bad.Resource
			}
			names[d.ID] = true
			require.Equal(t, strings.HasPrefix(d.ID, "rubbish"), err != nil, d.ID)
		}
		require.Len(t, names, 3+i)
		require.Equal(t, []string{"z"}, listed(t, f, rules.Query{Prefix: "z"}))
	}
	// A list finds a document whose _id is not a string only through the index on attn.
	_, err := f.raw.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 5}, {Key: "attn", Value: bson.A{"x"}}})
	require.NoError(t, err)
	var failures []error
	for _, err := range f.List(t.Context(), rules.Query{Contended: true}) {
		failures = append(failures, err)
	}
	require.Len(t, failures, 1)
	require.ErrorContains(t, failures[0], "numberInt")
}
