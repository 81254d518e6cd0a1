package lockcore_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stepTypes are the types that only Steps uses.
var stepTypes = []string{"Steps", "StepRequest", "Caller", "Verify", "Use", "Raise", "Release", "Wakeup", "Loss", "OtherRunError"}

// A reader of the lock library meets no word about the layers above it, except what belongs to Steps.
func TestDocumentation_MentionsNoWorkflows(t *testing.T) {
	t.Parallel()
	foreign := regexp.MustCompile(`\brun\b|(?i)\b(runs|compensat\w*|steps?|temporal|sagas?|workflows?|park\w*|histor\w*|resets?)\b`)
	known := regexp.MustCompile(`github\.com/temporal-lockstep/\S*|\[?Steps\.\w+\]?|json:"\S*"`) // import paths, links to Steps, and tags
	for name, text := range documentation(t) {
		require.Empty(t, foreign.FindAllString(known.ReplaceAllString(text, ""), -1), "%s: %s", name, text)
	}
}

// go doc ./lockcore fits on three screens.
func TestDocumentation_Overview_IsShort(t *testing.T) {
	t.Parallel()
	p, _ := parsePackage(t)
	lines := strings.Count(string(p.Text(p.Doc)), "\n") + len(p.Consts) + len(p.Vars) + len(p.Funcs)
	for _, of := range p.Types {
		lines += 1 + len(of.Consts) + len(of.Vars) + len(of.Funcs)
	}
	require.LessOrEqual(t, lines, 146, "go doc prints four more lines")
}

// documentation returns the declarations of the package with their comments, those of fields included.
func documentation(t *testing.T) map[string]string {
	t.Helper()
	p, fset := parsePackage(t)
	out := map[string]string{"package": p.Doc}
	add := func(name, text string, decl ast.Node) {
		var b strings.Builder
		require.NoError(t, printer.Fprint(&b, fset, decl))
		out[name] = text + b.String()
	}
	for _, v := range slices.Concat(p.Consts, p.Vars) {
		if v.Names[0] != "ErrOtherRun" {
			add(strings.Join(v.Names, " "), v.Doc, v.Decl)
		}
	}
	functions := func(of string, all []*doc.Func) {
		for _, f := range all {
			if f.Name != "Steps" {
				add(of+f.Name, f.Doc, f.Decl)
			}
		}
	}
	functions("", p.Funcs)
	for _, one := range p.Types {
		if slices.Contains(stepTypes, one.Name) {
			continue
		}
		add(one.Name, one.Doc, one.Decl)
		functions(one.Name+".", slices.Concat(one.Funcs, one.Methods))
	}
	return out
}

func parsePackage(t *testing.T) (*doc.Package, *token.FileSet) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "lockcore")
	require.NoError(t, err)
	return p, fset
}
