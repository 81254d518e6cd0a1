package store_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

var updateGolden = flag.Bool("update", false, "rewrite testdata/document.golden")

// Processes of different versions share a collection, so no stored name or type may change by accident.
func TestEncode_EveryField_MatchesGolden(t *testing.T) {
	t.Parallel()
	const golden = "testdata/document.golden"
	var d rules.Document
	setEveryField(reflect.ValueOf(&d).Elem())
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

// setEveryField sets each field to a value that is not empty, and each slice to one element.
func setEveryField(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setEveryField(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setEveryField(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at(1)))
			return
		}
		for i := range v.NumField() {
			setEveryField(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("no value for a field of kind %s", v.Kind()))
	}
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
