package store_test

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// FuzzDecode decodes arbitrary bytes.
func FuzzDecode(f *testing.F) {
	full := document("x", 1)
	full.Waiters = []rules.Waiter{{LockID: "w", Hold: &rules.WaitingHold{ID: "h"}}}
	full.Evidence = []rules.Evidence{{LockID: "e"}}
	full.Releases = []rules.ReleaseRecord{{LockID: "o"}}
	full.Bars = []rules.Bar{{LockID: "b"}}
	full.Reserved = &rules.Reservation{By: "p"}
	raw, err := store.Encode(full)
	require.NoError(f, err)
	f.Add([]byte(raw))
	f.Add([]byte(nil))
	for _, fields := range []bson.D{
		{{Key: "_id", Value: 1}},
		{{Key: "_id", Value: bson.A{1, bson.D{{Key: "a", Value: "b"}}}}},
		{{Key: "_id", Value: "x"}, {Key: "held", Value: bson.A{1}}},
		{{Key: "_id", Value: "x"}, {Key: "version", Value: bson.D{{Key: "n", Value: bson.MinKey{}}}}},
	} {
		raw, err := bson.Marshal(fields)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := store.Decode(raw)
		if err != nil {
			require.ErrorContains(t, err, "the document")
			return
		}
		require.Positive(t, d.Version.N)
	})
}

func TestEncode_OmitsAt(t *testing.T) {
	t.Parallel()
	d := document("x", 1)
	d.At = at(50)
	raw, err := store.Encode(d)
	require.NoError(t, err)
	_, err = raw.LookupErr("at")
	require.ErrorIs(t, err, bsoncore.ErrElementNotFound)
	require.Equal(t, at(50), d.At)
}

func FuzzSuccessor(f *testing.F) {
	for _, prefix := range []string{"", "a", "a\U0010FFFF", "\U0010FFFF", "a\uD7FF", "a\uFFFD", "\u0000"} {
		f.Add(prefix, "x")
		f.Add(prefix, "\U0010FFFF\U0010FFFF")
	}
	f.Fuzz(func(t *testing.T, prefix, rest string) {
		prefix, rest = string([]rune(prefix)), string([]rune(rest)) // valid UTF-8
		bound := store.Successor(prefix)
		if bound == "" {
			require.Empty(t, removeLastRunes(prefix))
			return
		}
		require.Less(t, prefix+rest, bound)
		require.Greater(t, bound, prefix)
	})
}

func TestSuccessor_SkipsSurrogates(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\uE000", store.Successor("a\uD7FF"))
	require.Equal(t, "b", store.Successor("a\U0010FFFF"))
}

func removeLastRunes(s string) string {
	var kept []rune
	for _, r := range s {
		if r != '\U0010FFFF' {
			kept = append(kept, r)
		}
	}
	return string(kept)
}

func TestMemory_Helpers(t *testing.T) {
	t.Parallel()
	now := at(5).Add(1500 * time.Microsecond)
	m := store.NewMemory(func() time.Time { return now })
	_, ok := m.Document("x")
	require.False(t, ok)
	require.NoError(t, m.Put(document("x", 1)))
	require.NoError(t, m.Put(document("x", 5)))
	require.NoError(t, m.Put(document("w", 1)))
	require.Error(t, m.Put(&rules.Document{ID: "unversioned"}))
	d, ok := m.Document("x")
	require.True(t, ok)
	require.Equal(t, document("x", 5), &d)
	require.Equal(t, []string{"w", "x"}, m.Names())
	loaded, err := m.Load(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, at(5).Add(time.Millisecond), loaded.At)
	m.Delete("x")
	require.Nil(t, stored(t, m, "x"))
}

// BenchmarkMemory_Swap measures a load and a swap of a document with two entries.
func BenchmarkMemory_Swap(b *testing.B) {
	m := store.NewMemory(time.Now)
	require.NoError(b, m.Put(document("x", 1)))
	for n := int64(1); b.Loop(); n++ {
		loaded, err := m.Load(b.Context(), "x")
		require.NoError(b, err)
		d := loaded.Docs["x"]
		d.Version = version(n + 1)
		done, err := m.Swap(b.Context(), store.Swap{Prev: version(n), Next: d})
		require.NoError(b, err)
		require.Equal(b, 1, done)
	}
}

// Tools of users read documents as the driver encodes them.
func TestEncode_AsTheDriver(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		d := document("x", 1)
		fill(random, reflect.ValueOf(d).Elem())
		d.ID, d.Version = cmp.Or(d.ID, "x"), rules.Version{N: 1, R: "r"}
		raw, err := store.Encode(d)
		require.NoError(t, err)
		d.At = time.Time{}
		var want bytes.Buffer
		encoder := bson.NewEncoder(bson.NewDocumentWriter(&want))
		encoder.NilSliceAsEmpty()
		require.NoError(t, encoder.Encode(d))
		require.Equal(t, bson.Raw(want.Bytes()).String(), raw.String())
		require.Equal(t, want.Bytes(), []byte(raw))
	}
}

// fill sets about half of the fields that are stored.
func fill(random *rand.Rand, v reflect.Value) {
	if random.IntN(2) == 0 && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("ä", random.IntN(3)))
	case reflect.Int64:
		v.SetInt(random.Int64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), random.IntN(12), 12))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMilli(random.Int64N(1 << 45)).Add(999_999)))
			return
		}
		for i := range v.NumField() {
			fill(random, v.Field(i))
		}
	default:
		panic(v.Kind())
	}
}
