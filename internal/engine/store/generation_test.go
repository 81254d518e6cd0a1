package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// A command that may insert is one ordered update whose first statement is the guard. The others do not pay for it.
func TestMongo_Swap_GuardsInsertsOnly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1), document("y", 1))
	for _, test := range []struct {
		name       string
		swaps      []store.Swap
		statements int
		guarded    bool
	}{
		{"insert", []store.Swap{{Next: document("new", 1)}}, 2, true},
		{"replace", []store.Swap{{Prev: version(1), Next: document("x", 2)}}, 1, false},
		{"replace two", []store.Swap{{Prev: version(2), Next: document("x", 3)}, {Prev: version(1), Next: document("y", 2)}}, 2, false},
		{"insert and replace", []store.Swap{{Prev: version(2), Next: document("y", 3)}, {Next: document("other", 1)}}, 3, true},
	} {
		done, err := f.Swap(t.Context(), test.swaps...)
		require.NoError(t, err, test.name)
		require.Len(t, test.swaps, done, test.name)
		commands := f.checker.Commands()
		last := commands[len(commands)-1]
		require.Equal(t, "update", last.Name, test.name)
		require.True(t, last.Body.Lookup("ordered").Boolean(), test.name)
		statements, err := last.Body.Lookup("updates").Array().Values()
		require.NoError(t, err)
		require.Len(t, statements, test.statements, test.name)
		_, id := statements[0].Document().Lookup("q", "_id").Int32OK()
		require.Equal(t, test.guarded, id, test.name)
	}
	require.NoError(t, f.checker.Err())
}

// No command brings a document into a collection that is not the one in which it was missing.
func TestMongo_OtherGeneration_NothingAppears(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, coll *mongo.Collection){
		"Dropped":    func(t *testing.T, coll *mongo.Collection) { require.NoError(t, coll.Drop(t.Context())) },
		"DeleteMany": func(t *testing.T, coll *mongo.Collection) { deleteAll(t, coll) },
		"OtherEpoch": func(t *testing.T, coll *mongo.Collection) {
			_, err := coll.DeleteMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: ""}}}})
			require.NoError(t, err)
			_, err = coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: int32(0)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "epoch", Value: "other"}}}})
			require.NoError(t, err)
		},
		"OtherID": func(t *testing.T, coll *mongo.Collection) {
			deleteAll(t, coll)
			_, err := store.New(coll).Identify(t.Context())
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			insert(t, f, document("x", 1), document("y", 1))
			identity, err := f.Identify(t.Context())
			require.NoError(t, err)
			in := identity.Generation()
			change(t, f.raw)
			before := everything(t, f.raw)
			for operation, swaps := range map[string][]store.Swap{
				"one":      {{Next: document("z", 1), In: in}},
				"several":  {{Prev: version(1), Next: document("x", 2), In: in}, {Prev: version(1), Next: document("y", 2), In: in}},
				"mixed":    {{Prev: version(1), Next: document("x", 2), In: in}, {Next: document("z", 1), In: in}},
				"replaced": {{Prev: version(1), Next: document("x", 2), In: in}},
			} {
				done, err := f.Swap(t.Context(), swaps...)
				require.NoError(t, err, operation)
				require.Zero(t, done, operation)
			}
			require.NoError(t, f.Reserve(t.Context(), "x", rules.Reservation{By: "p", Until: at(1)}))
			require.Equal(t, before, everything(t, f.raw))
		})
	}
}

// A document that was written while the collection was emptied does not make its processes refuse it.
func TestMongo_IdentityRemoved_IsMadeAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1))
	first, err := f.Identify(t.Context())
	require.NoError(t, err)
	_, err = f.raw.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: int32(0)}})
	require.NoError(t, err)
	second, err := f.Identify(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)
	later, err := store.New(f.raw).Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, second.ID, later.ID)
}

func deleteAll(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	_, err := coll.DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
}
