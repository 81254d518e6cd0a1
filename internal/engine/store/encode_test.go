package store_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// FuzzDecode decodes arbitrary bytes.
func FuzzDecode(f *testing.F) {
	full := document("x", 1)
	full.Waiters = []rules.Waiter{{Caller: rules.Caller{LockID: "w"}, Hold: &rules.WaitingHold{ID: "h"}}}
	full.Evidence = []rules.Evidence{{LockID: "e"}}
	full.Releases = []rules.ReleaseRecord{{LockID: "o"}}
	full.Forced = full.Evidence
	full.Missed = []rules.Missed{{LockID: "m"}}
	full.Bars = []rules.Bar{{LockID: "b"}}
	full.Reserved = &rules.Reservation{By: "p"}
	raw, err := store.Encode(full)
	require.NoError(f, err)
	f.Add([]byte(raw))
	f.Add([]byte(nil))
	for _, fields := range []bson.D{
		{{Key: "_id", Value: 1}},
		{{Key: "_id", Value: bson.A{1, bson.D{{Key: "a", Value: "b"}}}}},
		{{Key: "_id", Value: "x"}, {Key: "entries", Value: bson.A{1}}},
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

// fill sets about half of the fields that are stored. If random is nil it sets each field, and each slice to one element.
func fill(random *rand.Rand, v reflect.Value) {
	below := func(n int) int {
		if random == nil {
			return 1
		}
		return random.IntN(n)
	}
	if below(2) == 0 && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("ä", below(3)))
	case reflect.Int64:
		v.SetInt(int64(below(math.MaxInt64)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), below(12), 12))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMilli(int64(below(1 << 45))).Add(999_999)))
			return
		}
		for i := range v.NumField() {
			fill(random, v.Field(i))
		}
	default:
		panic(v.Kind())
	}
}

var updateGolden = flag.Bool("update", false, "rewrite testdata/document.golden")

// Processes of different versions share a collection, so no stored name or type may change by accident.
func TestEncode_EveryField_MatchesGolden(t *testing.T) {
	t.Parallel()
	const golden = "testdata/document.golden"
	var d rules.Document
	fill(nil, reflect.ValueOf(&d).Elem())
	raw, err := store.Encode(&d)
	require.NoError(t, err)
	var got strings.Builder
	describeFields(t, &got, "", raw)
	if *updateGolden {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// A reader of the database must find the fields that the Go documentation describes.
func TestEncode_StoredNames_AreThoseOfTheFields(t *testing.T) {
	t.Parallel()
	acronyms := strings.NewReplacer("ID", "Id", "TTL", "Ttl")
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		for i := 0; typ.Kind() == reflect.Struct && typ != reflect.TypeFor[time.Time]() && i < typ.NumField(); i++ {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("bson"), ",")
			word := acronyms.Replace(f.Name)
			if name == "-" {
				continue
			}
			if name != "_id" && !f.Anonymous {
				require.Equal(t, strings.ToLower(word[:1])+word[1:], name, "%s.%s", typ, f.Name)
			}
			check(f.Type)
		}
	}
	check(reflect.TypeFor[rules.Document]())
	check(reflect.TypeFor[rules.Identity]())
	check(reflect.TypeFor[rules.PolicyChange]())
}

// describeFields writes a line with the path and the type of each field.
func describeFields(t *testing.T, out *strings.Builder, prefix string, raw bson.Raw) {
	t.Helper()
	elements, err := raw.Elements()
	require.NoError(t, err)
	for _, e := range elements {
		path := prefix + e.Key()
		fmt.Fprintf(out, "%s: %s\n", path, e.Value().Type)
		switch e.Value().Type {
		case bson.TypeEmbeddedDocument:
			describeFields(t, out, path+".", e.Value().Document())
		case bson.TypeArray:
			describeFields(t, out, path+".", bson.Raw(e.Value().Array()))
		default:
		}
	}
}

// Through a router, $$NOW is each shard's own clock: two documents of one answer differed by up to 59 ms on MongoDB 5.0.7.
func TestLoaded_DocumentsOfSeveralShards_HaveTheTimeOfTheIdentity(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	loaded := store.Loaded{At: now, Docs: map[string]*rules.Document{
		"ahead": {ID: "ahead", At: now.Add(59 * time.Millisecond)}, "behind": {ID: "behind", At: now.Add(-59 * time.Millisecond)},
	}}
	loaded.SetTime()
	require.Equal(t, now, loaded.Docs["ahead"].At)
	require.Equal(t, now, loaded.Docs["behind"].At)
}
