package docscheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/docscheck"
)

// checkout returns this repository.
func checkout(t *testing.T) docscheck.Tree {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	tree, err := docscheck.Checkout(t.Context(), root)
	require.NoError(t, err)
	require.Contains(t, tree.Files, "README.md", "%s is not a checkout of Lockstep", root)
	return tree
}

func TestRepository_Documentation_HasNoProblems(t *testing.T) {
	t.Parallel()
	tree := checkout(t)
	words := docscheck.Words(t.Context(), tree.Root)
	require.Contains(t, words, tree.Root)
	for name, check := range map[string]func(t *testing.T) ([]docscheck.Problem, error){
		"Snippets": func(t *testing.T) ([]docscheck.Problem, error) {
			return docscheck.Snippets(t.Context(), tree, tree.Root)
		},
		"Commands": func(t *testing.T) ([]docscheck.Problem, error) { return docscheck.Commands(tree, buildHelp(t, tree)) },
		"Links":    func(*testing.T) ([]docscheck.Problem, error) { return docscheck.Links(tree), nil },
		"Tests":    func(*testing.T) ([]docscheck.Problem, error) { return docscheck.Tests(tree), nil },
		"Targets":  func(*testing.T) ([]docscheck.Problem, error) { return docscheck.Targets(tree), nil },
		"Places":   func(*testing.T) ([]docscheck.Problem, error) { return docscheck.Places(tree, words), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems, err := check(t)
			require.NoError(t, err)
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

// A release promises every exported type. Each must be used by a guide, an example, another SDK, or a layer above.
func TestRepository_PublicPackages_ExportFewTypes(t *testing.T) {
	t.Parallel()
	public := []string{"activities", "interceptors", "lockcore", "lockcore/lockcoretest", "lockcore/mongolock", "worker", "workflows"}
	var types []string
	for name, text := range checkout(t).Files {
		if !slices.Contains(public, path.Dir(name)) || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			for i := 0; ok && group.Tok == token.TYPE && i < len(group.Specs); i++ {
				if spec := group.Specs[i].(*ast.TypeSpec); spec.Name.IsExported() {
					types = append(types, path.Dir(name)+"."+spec.Name.Name)
				}
			}
		}
	}
	require.Contains(t, types, "lockcore.Locker")
	require.LessOrEqual(t, len(types), 60, types)
}

// buildHelp builds lockstep, and returns a function that returns its help.
func buildHelp(t *testing.T, tree docscheck.Tree) func(args ...string) (string, error) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "lockstep")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/lockstep")
	build.Dir = tree.Root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--help")...).CombinedOutput()
		return string(out), err
	}
}

// requireProblems compares problems as text.
func requireProblems(t *testing.T, problems []docscheck.Problem, want ...string) {
	t.Helper()
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	require.Equal(t, want, texts)
}

func TestChecks_Mistakes_AreFound(t *testing.T) {
	t.Parallel()
	help := func(args ...string) (string, error) {
		if len(args) == 0 {
			return "Usage:\n  lockstep [command]\n\nCommands:\n  demo        Move\n\nFlags:\n  -h, --help   help\n", nil
		}
		return "Flags:\n      --guards string   on\n  -h, --help   help\n", nil
	}
	for name, tt := range map[string]struct {
		check func(docscheck.Tree) []docscheck.Problem
		files map[string]string
		want  []string
	}{
		"Tests": {docscheck.Tests, map[string]string{
			"a_test.go": "package a\n\nfunc TestAll(t *testing.T) {\n\tt.Run(\"some case\", f)\n\tt.Run(\"I1/it is, as said\", f)\n}\n",
			"a.go":      "package a\n\nfunc TestNone() {}\n",
			"a.md": "`TestAll` `TestAll/some_case` `TestAll/other`\n`TestNone` `Test` `Testing` `I1/it is, as said` `I2/it is too` `I1/it is not`, `a/b.go` " +
				"`go vet ./a/b c`\n```\nTestBlock\n```\n`go test ./p -run 'TestPart/x y'` `go test ./p -run TestAll`\n",
			"p/p_test.go":    "package p\n\nfunc TestPart(t *testing.T) {}\n",
			"testdata/a.txt": "scenario I2/it is too\nacquire a p exclusive\n",
		}, []string{
			"a.md:1: TestAll has no subtest other", "a.md:2: there is no test TestNone", "a.md:2: there is no scenario I1/it is not",
			"a.md:6: package p has no test TestAll",
		}},
		"Links": {docscheck.Links, map[string]string{
			"docs/a.md": "# One thing\n[ok](../b.md#two-things), [folder](..), [self](#one-thing), [web](https://example.com/x)\n" +
				"[gone](c.md) `[code](no.md)`\n[no heading](../b.md#three)\n[out](../../x.md)\n\n[ref]: d.md\n" +
				"```\n[block](no.md)\n```\n<!-- [comment](no.md) -->\n",
			"b.md": "## Two `things`\n## Two things\n",
		}, []string{
			"docs/a.md:3: the link c.md is broken: there is no docs/c.md",
			"docs/a.md:4: the link ../b.md#three is broken: b.md has no such heading",
			"docs/a.md:5: the link ../../x.md leads out of the repository",
			"docs/a.md:7: the link d.md is broken: there is no docs/d.md",
		}},
		"Targets": {docscheck.Targets, map[string]string{
			"Makefile": "TEST_FLAGS ?= ./...\n\n.PHONY: test\ntest: stack-up ## x\n\tgo test\nstack-up:\n",
			"a.go":     "package a\n\nconst v = \"LOCKSTEP_ADDRESS\"\n",
			"a.md": "make sure. `make test`, `make dance` `LOCKSTEP_ADDRESS`\n```sh\nmake -s stack-up TEST_FLAGS=-v test fly\n" +
				"LOCKSTEP_NOTHING=1 make\n```\n",
		}, []string{
			`a.md:1: there is no target "dance" in the Makefile`,
			`a.md:3: there is no target "fly" in the Makefile`,
			"a.md:4: nothing reads the variable LOCKSTEP_NOTHING",
		}},
		"Commands": {func(tree docscheck.Tree) []docscheck.Problem {
			problems, err := docscheck.Commands(tree, help)
			require.NoError(t, err)
			return problems
		}, map[string]string{
			"a.md": "`lockstep demo --guards=off` `--guards` `lockstep --help` `lockstep dance` `--fly`\n" +
				"```sh\n./bin/lockstep demo --fly  # lockstep ok\ngo run ./cmd/lockstep demo\nmake demo DEMO_FLAGS=\"--guards off --swim\"\n```\n" +
				"`lockstep.Busy` `docker compose up --wait`\n",
			"b.md": "`--privileged` is another program's.\n",
		}, []string{
			`a.md:1: lockstep has no command "dance"`,
			"a.md:3: lockstep demo has no flag --fly",
			"a.md:5: lockstep demo has no flag --swim",
			"a.md:1: lockstep has no flag --fly",
		}},
		"Places": {func(tree docscheck.Tree) []docscheck.Problem {
			return docscheck.Places(tree, []string{"/secret", "packages.example"})
		}, map[string]string{
			"a.txt": "see /secret/place.txt\nsee my/secret and /secretary\nuse https://packages.example/x\n",
			"b.bin": "\x00/secret/",
		}, []string{"a.txt:1: /secret is a place of one machine", "a.txt:3: packages.example is a place of one machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblems(t, tt.check(docscheck.Tree{Files: tt.files}), tt.want...)
		})
	}
}

func TestSnippets_CompilerErrors_AreFound(t *testing.T) {
	t.Parallel()
	tree := docscheck.Tree{Files: map[string]string{"a.md": `
<!-- snippet
package p

import "time"

func f() {
	...
}
-->

` + "```go\nx := time.Second\n_ = x\n```" + `

<!-- snippet
package p

func f() {
	...
}
-->
` + "```go\nvar y int = \"text\"\n```\n\n```go\nf()\n```\n\n```go\nx:=1\n```\n" + `
<!-- snippet
package p

import _ "github.com/temporal-lockstep/lockstep/internal/wire"

func f() {
	...
}
-->
` + "```go\nf()\n```\n\n```go\npackage q\n\nvar Z = undefined\n```\n"}}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	problems, err := docscheck.Snippets(t.Context(), tree, root)
	require.NoError(t, err)
	requireProblems(t, problems,
		"a.md:29: the snippet is a fragment without a comment <!-- snippet … --> that completes it",
		"a.md:33: the snippet is not formatted; gofmt returns\nx := 1",
		"a.md:46: the snippet imports github.com/temporal-lockstep/lockstep/internal/wire, which its readers cannot import",
		"a.md:25: declared and not used: y",
		`a.md:25: cannot use "text" (untyped string constant) as int value in variable declaration`,
		"a.md:52: undefined: undefined",
	)
}

func TestSnippets_MissingInFile_AreFound(t *testing.T) {
	t.Parallel()
	const from = "<!-- snippet from a_test.go -->\n```go\n"
	tree := docscheck.Tree{Files: map[string]string{
		"a_test.go": "package a\n\nfunc f() {\n\tg()\n}\n",
		"a.md": from + "func f() {\n\tg()\n}\n```\n\n" + from + "func f() {\n}\n```\n\n" + from + "\tg(\n```\n\n" +
			"<!-- snippet from b_test.go -->\n```go\nf()\n```\n\n<!-- snippet from a.md -->\n```go\nf()\n```\n\n" +
			"<!-- snippet from a.ts -->\n```ts\nh()\n```\n\n<!-- snippet from a.ts -->\n```ts\nf()\n```\n",
		"a.ts": "f()\n",
	}}
	problems, err := docscheck.Snippets(t.Context(), tree, tree.Root)
	require.NoError(t, err)
	requireProblems(t, problems,
		"a.md:10: a_test.go does not contain the snippet",
		"a.md:16: a_test.go does not contain the snippet",
		"a.md:21: b_test.go is missing",
		"a.md:26: a.md is not a go file",
		"a.md:31: a.ts does not contain the snippet",
	)
}
