package wire_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A person writes the page up to the heading generated.
const (
	activitiesPage = "../../docs/activities.md"
	generated      = "\n## Reference\n"
)

// TestPage_Reference_MatchesTheCode compares the reference in docs/activities.md with the types of the payloads and with their comments:
//
//	UPDATE_GOLDEN=1 go test ./internal/wire -run TestPage
func TestPage_Reference_MatchesTheCode(t *testing.T) {
	t.Parallel()
	r := reference{docs: map[string]string{}, names: map[string]string{"Forever": "forever"}, shown: map[string]bool{}}
	for _, pattern := range []string{"*.go", "../../activities/*.go", "../../lockcore/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			ast.Inspect(file, r.read)
		}
	}
	page, err := os.ReadFile(activitiesPage)
	require.NoError(t, err)
	head, _, _ := strings.Cut(string(page), generated)
	example, err := json.Marshal(wire.AcquireParams{
		Resources: []wire.Resource{{Resource: lockcore.Resource{Name: "account/42"}}, {Resource: lockcore.SharedLimit("seats", 3)}}, Schedule: 1,
		HoldTTL: wire.Duration(10 * time.Minute), HoldOnly: true,
	})
	require.NoError(t, err)
	require.Contains(t, head, string(example))
	want := head + generated + r.text()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(activitiesPage, []byte(want), 0o600))
	}
	require.Equal(t, want, string(page), "UPDATE_GOLDEN=1 go test ./internal/wire -run TestPage writes it")
}

// reference makes the reference.
type reference struct {
	// docs has the comments of types, fields and methods, such as "Lease.Fence", and of constants.
	docs map[string]string
	// names has the values of constants of text, and the JSON names of fields.
	names map[string]string
	// shown has the rows so far, so that none is repeated.
	shown map[string]bool
	b     strings.Builder
}

// read records the comments below a node.
func (r *reference) read(n ast.Node) bool {
	note := func(name string, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if text := doc.Text(); text != "" && r.docs[name] == "" {
				r.docs[name] = strings.Join(strings.Fields(text[:strings.Index(text+"\n\n", "\n\n")]), " ")
			}
		}
	}
	switch n := n.(type) {
	case *ast.TypeSpec:
		if s, ok := n.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					note(n.Name.Name+"."+name.Name, f.Doc)
					if f.Tag != nil && strings.ContainsAny(name.Name[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
						r.names[name.Name] = jsonName(reflect.StructTag(strings.Trim(f.Tag.Value, "`")))
					}
				}
			}
		}
	case *ast.FuncDecl:
		if n.Recv != nil && types.ExprString(n.Recv.List[0].Type) == "*lockActivities" {
			note("Activities."+n.Name.Name, n.Doc)
		}
		return false
	case *ast.ValueSpec:
		if len(n.Values) == 1 {
			if value, ok := n.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				note(n.Names[0].Name, n.Doc)
				r.names[n.Names[0].Name], _ = strconv.Unquote(value.Value)
			}
		}
	}
	return true
}

func (r *reference) text() string {
	r.b.WriteString("\nMade from the Go types and comments of `internal/wire`: `UPDATE_GOLDEN=1 go test ./internal/wire -run TestPage`. A `?` marks fields that\n" +
		"may be absent. Fields without a type are texts.\n")
	for _, a := range []struct {
		name          string
		input, result any
	}{
		{"Acquire", wire.AcquireParams{}, wire.AcquireResult{}}, {"Wait", wire.WaitParams{}, nil}, {"Renew", wire.RenewParams{}, wire.RenewResult{}},
		{"Leave", wire.LeaveParams{}, nil}, {"Release", wire.ReleaseParams{}, nil}, {"Verify", wire.VerifyParams{}, nil}, {"Bar", wire.BarParams{}, nil},
	} {
		fmt.Fprintf(&r.b, "\n### %s%s\n\n%s\n\n", wire.ActivityPrefix, a.name, r.sentence(reflect.TypeOf(a.input), "Activities."+a.name, ""))
		r.list(reflect.TypeOf(a.input))
		if a.result != nil {
			r.b.WriteString("\nResult:\n\n")
			r.list(reflect.TypeOf(a.result))
		}
	}
	for _, v := range []any{wire.Resource{}, wire.Lease{}, lockcore.Order{}, wire.Use{}} {
		r.section(reflect.TypeOf(v))
	}
	r.b.WriteString("\n## Failures\n")
	for _, f := range []struct {
		name    string
		details any
	}{
		{"Busy", wire.BusyDetails{}}, {"Parked", wire.ParkedDetails{}}, {"Lost", wire.LostDetails{}}, {"Superseded", wire.SupersededDetails{}},
		{"Deadlock", wire.DeadlockDetails{}}, {"Invalid", wire.InvalidDetails{}}, {"OtherRun", wire.OtherRunDetails{}}, {"OtherCollection", nil},
		{"Unavailable", nil},
	} {
		text := r.sentence(reflect.TypeFor[wire.AcquireParams](), "Failure"+f.name, "")
		fmt.Fprintf(&r.b, "\n### %s%s\n\n%s\n", wire.ActivityPrefix, f.name, strings.ToUpper(text[:1])+text[1:])
		if f.details != nil {
			r.b.WriteString("\n")
			r.list(reflect.TypeOf(f.details))
		}
	}
	r.section(reflect.TypeFor[wire.Holder]())
	return r.b.String()
}

func (r *reference) section(of reflect.Type) {
	fmt.Fprintf(&r.b, "\n### %s\n\n", of.Name())
	r.list(of)
}

// list writes the fields of a struct. A field that an earlier list has, with the same comment, is only named.
func (r *reference) list(of reflect.Type) {
	var again []string
	for _, f := range reflect.VisibleFields(of) {
		name := jsonName(f.Tag)
		if outer, _ := of.FieldByName(f.Name); f.Anonymous || name == "" || len(outer.Index) < len(f.Index) {
			continue // embedded, not exported, or hidden by a field of the outer struct
		}
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			name += "?"
		}
		declaring := of
		if n := len(f.Index) - 1; n > 0 {
			declaring = of.FieldByIndex(f.Index[:n]).Type
		}
		text := r.sentence(of, declaring.Name()+"."+f.Name, f.Name)
		if kind := jsonType(f.Type); kind != "text" {
			name += "` (" + kind + ")"
		} else {
			name += "`"
		}
		line := strings.TrimSuffix("- `"+name+": "+text, ": ") + "\n"
		if r.shown[line] {
			again = append(again, "`"+strings.Split(name, " ")[0])
			continue
		}
		r.shown[line] = true
		r.b.WriteString(line)
	}
	if len(again) > 0 {
		r.b.WriteString("- as above: " + strings.Join(again, ", ") + "\n")
	}
}

func jsonName(tag reflect.StructTag) string {
	name, _, _ := strings.Cut(tag.Get("json"), ",")
	return name
}

func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[wire.Owner]():
		return "text or object"
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[wire.Duration]():
		return "duration"
	case t.Kind() == reflect.Slice:
		return jsonType(t.Elem()) + "[]"
	case t.Kind() == reflect.Struct:
		return "[" + t.Name() + "](#" + strings.ToLower(t.Name()) + ")"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "bool"
	default:
		return "number"
	}
}

var (
	asIn       = regexp.MustCompile(`^\w+(?: and \w+)? (?:is|are) as in \[(\w+)\]\.$`)
	subject    = regexp.MustCompile("^`[\\w.]+`[:,]? (?:(?:is|are|lists|has|describes|counts) )?")
	identifier = regexp.MustCompile(`(?:lockstep\.|\*?\[?\b)[A-Z]\w+\b\]?`)
)

// sentence returns a comment for the page: Go's names of fields, errors and constants become those of the JSON, and the name of the field is
// left out. The details of a failure have the comments of lockcore's error.
func (r *reference) sentence(of reflect.Type, name, field string) string {
	text := r.docs[name]
	if text == "" {
		text = r.docs[strings.Replace(name, "Details.", "Error.", 1)]
	}
	if m := asIn.FindStringSubmatch(text); m != nil {
		return r.sentence(of, m[1]+"."+field, field)
	}
	text = identifier.ReplaceAllStringFunc(text, func(word string) string {
		bare := strings.Trim(word, "*[]")
		f, ok := of.FieldByName(bare)
		failure, isError := strings.CutSuffix(bare, "Error")
		switch {
		case strings.HasPrefix(bare, wire.ActivityPrefix):
			return "`" + bare + "`"
		case ok && jsonName(f.Tag) != "":
			return "`" + jsonName(f.Tag) + "`"
		case r.names[bare] != "":
			return "`" + r.names[bare] + "`"
		case isError && r.names["Failure"+failure] != "":
			return "`" + r.names["Failure"+failure] + "`"
		}
		return bare
	})
	return subject.ReplaceAllString(text, "")
}
