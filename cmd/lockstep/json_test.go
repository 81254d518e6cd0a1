package main

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fields lists the fields of a type as it is printed in JSON, a line for each. Within are the types around it: a type in
// itself is not followed.
func fields(of reflect.Type, path string, within []reflect.Type) (lines []string) {
	switch {
	case of.Kind() == reflect.Pointer:
		return fields(of.Elem(), path, within)
	case of.Kind() == reflect.Slice:
		return fields(of.Elem(), path+"[]", within)
	case of == reflect.TypeFor[time.Duration]():
		return []string{path + " nanoseconds"}
	case of == reflect.TypeFor[time.Time]():
		return []string{path + " time"}
	case of.Kind() != reflect.Struct:
		return []string{path + " " + of.Kind().String()}
	}
	for _, outer := range within {
		if outer == of {
			return []string{path + " as above"}
		}
	}
	within = append(within[:len(within):len(within)], of)
	for i := range of.NumField() {
		f := of.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || tag == "-":
		case f.Anonymous && tag == "":
			lines = append(lines, fields(f.Type, path, within)...)
		case tag == "":
			lines = append(lines, path+"."+f.Name+": no name in JSON")
		default:
			for _, line := range fields(f.Type, path+"."+tag, within) {
				if options != "" && !strings.Contains(line, ", perhaps") {
					line += ", perhaps"
				}
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestTheJSONOfTheCommandsIsAContract compares the fields that each command prints with testdata/*.fields. A field that is new
// is added there by -update; one that goes breaks users' programs.
func TestTheJSONOfTheCommandsIsAContract(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]reflect.Type{
		"ps": reflect.TypeFor[[]inspect.Resource](), "show": reflect.TypeFor[inspect.Resource](), "why": reflect.TypeFor[inspect.Why](),
		"deadlocks": reflect.TypeFor[[]party.Deadlock](), "orphans": reflect.TypeFor[[]inspect.Orphan](), "doctor": reflect.TypeFor[[]inspect.Finding](),
		"janitor": reflect.TypeFor[janitor.Result](),
	} {
		text := strings.Join(fields(of, "", nil), "\n") + "\n"
		require.NotContains(t, text, "no name", name)
		path := filepath.Join("testdata", name+".fields")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o750))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), text, "%s: go test ./cmd/lockstep -run JSON -update writes it anew", name)
	}
}
