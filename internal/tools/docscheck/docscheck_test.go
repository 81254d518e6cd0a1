package docscheck_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/docscheck"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// checkout is this repository.
func checkout(t *testing.T) docscheck.Tree {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	tree, err := docscheck.Checkout(t.Context(), root)
	require.NoError(t, err)
	require.True(t, slices.Contains(tree.Files, "README.md"), "%s is no checkout of Lockstep", root)
	return tree
}

// clean fails the test with every problem that was found.
func clean(t *testing.T, problems []docscheck.Problem, err error) {
	t.Helper()
	require.NoError(t, err)
	for _, p := range problems {
		t.Error(p)
	}
}

func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	tree := checkout(t)
	problems, err := docscheck.Snippets(t.Context(), tree, tree.Root)
	clean(t, problems, err)
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Links(checkout(t))
	clean(t, problems, err)
}

func TestTestsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Tests(checkout(t))
	clean(t, problems, err)
}

func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Exported(checkout(t))
	clean(t, problems, err)
}

func TestMakeTargetsAndVariablesExist(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Targets(checkout(t))
	clean(t, problems, err)
}

func TestCommandsAndFlagsExist(t *testing.T) {
	t.Parallel()
	tree := checkout(t)
	binary := filepath.Join(t.TempDir(), "lockstep")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/lockstep")
	build.Dir = tree.Root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	problems, err := docscheck.Commands(t.Context(), tree, docscheck.Binary(binary))
	clean(t, problems, err)
}

func TestSettingsAreTheDefaultsOfTheCode(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Defaults(checkout(t), "docs/production.md", "lockcore/party/config.go")
	clean(t, problems, err)
}

// payloads are what the activities take, give and fail with.
var payloads = map[string]reflect.Type{
	"AcquireParams": reflect.TypeFor[wire.AcquireParams](), "AcquireResult": reflect.TypeFor[wire.AcquireResult](),
	"RenewParams": reflect.TypeFor[wire.RenewParams](), "RenewResult": reflect.TypeFor[wire.RenewResult](),
	"LeaveParams": reflect.TypeFor[wire.LeaveParams](), "ReleaseParams": reflect.TypeFor[wire.ReleaseParams](),
	"WaitParams": reflect.TypeFor[wire.WaitParams](), "KeepParams": reflect.TypeFor[wire.KeepParams](),
	"BarParams": reflect.TypeFor[wire.BarParams](),
	"Resource":  reflect.TypeFor[lockcore.Resource](), "Lease": reflect.TypeFor[wire.Lease](), "Holder": reflect.TypeFor[wire.Holder](),
	"BusyDetails": reflect.TypeFor[wire.BusyDetails](), "LostDetails": reflect.TypeFor[wire.LostDetails](),
	"SupersededDetails": reflect.TypeFor[wire.SupersededDetails](), "InvalidDetails": reflect.TypeFor[wire.InvalidDetails](),
	"DeadlockDetails": reflect.TypeFor[wire.DeadlockDetails](),
}

func TestTheJSONOfTheActivitiesIsWhatTheyRead(t *testing.T) {
	t.Parallel()
	problems, err := docscheck.Payloads(checkout(t), payloads)
	clean(t, problems, err)
}

func TestPayloadsFindsWhatNoStructHas(t *testing.T) {
	t.Parallel()
	type thing struct {
		A int `json:"a"`
		B int `json:"b,omitempty"`
		C int `json:"c"`
	}
	tree := write(t, map[string]string{
		"a.md": "<!-- json Thing -->\n```json\n{\"a\": 1, \"d\": 2}\n```\n`b`\n\n<!-- json Other -->\n```json\n{}\n```\n```json\n{\"x\": 1}\n```\n",
		"b.md": "<!-- json Thing -->\n```json\n{\"a\": 1, \"b\": 2, \"c\": \"x\"}\n```\n",
	})
	problems, err := docscheck.Payloads(tree, map[string]reflect.Type{"Thing": reflect.TypeFor[thing](), "Unseen": reflect.TypeFor[thing]()})
	found(t, problems, err,
		`a.md:3: this is no Thing: json: unknown field "d"`,
		"a.md:9: there is no payload Other",
		"a.md:3: the field c of Thing is not named",
		"b.md:3: this is no Thing: json: cannot unmarshal string into Go struct field thing.c of type int",
		"docs: no page shows a Unseen",
	)
}

func TestNoPlaceOfOneMachineIsNamed(t *testing.T) {
	t.Parallel()
	tree := checkout(t)
	words := docscheck.Words(t.Context(), tree.Root)
	require.Contains(t, words, tree.Root)
	problems, err := docscheck.Places(tree, words)
	clean(t, problems, err)
}

// write makes a small tree.
func write(t *testing.T, files map[string]string) docscheck.Tree {
	t.Helper()
	tree := docscheck.Tree{Root: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(tree.Root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		tree.Files = append(tree.Files, name)
	}
	slices.Sort(tree.Files)
	return tree
}

// found are the problems as text, and must be what was wanted.
func found(t *testing.T, problems []docscheck.Problem, err error, want ...string) {
	t.Helper()
	require.NoError(t, err)
	texts := make([]string, 0, len(problems))
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	require.Equal(t, want, texts)
}

func TestSnippetsFindsWhatDoesNotCompile(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{"a.md": `
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
` + "```go\nf()\n```\n\n```go\npackage q\n\nvar Z = undefined\n```\n"})
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	problems, err := docscheck.Snippets(t.Context(), tree, root)
	found(t, problems, err,
		"a.md:29: the snippet is a fragment, and no <!-- snippet … --> before it says what it stands in",
		"a.md:33: the snippet is not formatted; gofmt makes it\nx := 1",
		"a.md:46: the snippet imports github.com/temporal-lockstep/lockstep/internal/wire, which its readers cannot",
		"a.md:25: declared and not used: y",
		`a.md:25: cannot use "text" (untyped string constant) as int value in variable declaration`,
		"a.md:52: undefined: undefined",
	)
}

func TestSnippetsFindsWhatDoesNotStandWhereItComesFrom(t *testing.T) {
	t.Parallel()
	const from = "<!-- snippet from a_test.go -->\n```go\n"
	tree := write(t, map[string]string{
		"a_test.go": "package a\n\nfunc f() {\n\tg()\n}\n",
		"a.md": from + "func f() {\n\tg()\n}\n```\n\n" + from + "func f() {\n}\n```\n\n" + from + "\tg(\n```\n\n" +
			"<!-- snippet from b_test.go -->\n```go\nf()\n```\n\n<!-- snippet from a.md -->\n```go\nf()\n```\n\n" +
			"<!-- snippet from a.ts -->\n```ts\nh()\n```\n\n<!-- snippet from a.ts -->\n```ts\nf()\n```\n",
		"a.ts": "f()\n",
	})
	problems, err := docscheck.Snippets(t.Context(), tree, tree.Root)
	found(t, problems, err,
		"a.md:10: the snippet does not stand in a_test.go as it is here",
		"a.md:16: the snippet does not stand in a_test.go as it is here",
		"a.md:21: b_test.go is missing",
		"a.md:26: a.md is no go file",
		"a.md:31: the snippet does not stand in a.ts as it is here",
	)
}

func TestTestsFindsWhatNobodyWrote(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"a_test.go": "package a\n\nfunc TestAll(t *testing.T) {\n\tt.Run(\"some case\", f)\n\tt.Run(\"I1/it is, as told\", f)\n}\n",
		"a.go":      "package a\n\nfunc TestNone() {}\n",
		"a.md":      "`TestAll` `TestAll/some_case` `TestAll/other`\n`TestNone` `Test` `Testing` `I1/it is, as told` `I1/it is not`, `a/b.go` `go vet ./a/b c`\n```\nTestBlock\n```\n",
	})
	problems, err := docscheck.Tests(tree)
	found(t, problems, err, "a.md:1: TestAll has no subtest other", "a.md:2: there is no test TestNone", "a.md:2: there is no scenario I1/it is not")
}

func TestLinksFindsWhatLeadsNowhere(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"docs/a.md": "# One thing\n[ok](../b.md#two-things), [folder](..), [self](#one-thing), [web](https://example.com/x)\n" +
			"[gone](c.md) `[code](no.md)`\n[no heading](../b.md#three)\n[out](../../x.md)\n\n[ref]: d.md\n" +
			"```\n[block](no.md)\n```\n<!-- [comment](no.md) -->\n",
		"b.md": "## Two `things`\n## Two things\n",
	})
	problems, err := docscheck.Links(tree)
	found(t, problems, err,
		"docs/a.md:3: the link c.md leads nowhere: there is no docs/c.md",
		"docs/a.md:4: the link ../b.md#three leads nowhere: b.md has no such heading",
		"docs/a.md:5: the link ../../x.md leads out of the repository",
		"docs/a.md:7: the link d.md leads nowhere: there is no docs/d.md",
	)
}

func TestExportedFindsWhatIsNotDocumented(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"p/p.go": "package p\n\nfunc F() {}\nfunc f() {}\n\n// T is.\ntype T[K any] struct{}\n\nfunc (t *T[K]) M() {}\nfunc (t T[K]) Error() string { return \"\" }\n\n" +
			"type u int\n\nfunc (u) M() {}\n\n// Both.\nconst (\n\tA = 1\n\tB = 2\n)\n\nvar (\n\tC = 1\n\tD = 2 // is\n)\n",
		"p/p_test.go":           "package p\n\nfunc G() {}\n",
		"p/internal/q/q.go":     "package q\n\nfunc F() {}\n",
		"p/testdata/broken.go":  "pack",
		"documented/package.go": "// Package documented is.\npackage documented\n",
	})
	problems, err := docscheck.Exported(tree)
	found(t, problems, err,
		"p/p.go:3: F has no comment",
		"p/p.go:9: M has no comment",
		"p/p.go:23: C has no comment",
		"p: the package has no comment",
	)
}

func TestTargetsFindsWhatNobodyMade(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"Makefile": "TEST_FLAGS ?= ./...\n\n.PHONY: test\ntest: stack-up ## x\n\tgo test\nstack-up:\n",
		"a.go":     "package a\n\nconst v = \"LOCKSTEP_ADDRESS\"\n",
		"a.md": "make sure. `make test`, `make dance` `LOCKSTEP_ADDRESS`\n```sh\nmake -s stack-up TEST_FLAGS=-v test fly\n" +
			"LOCKSTEP_NOTHING=1 make\n```\n",
	})
	problems, err := docscheck.Targets(tree)
	found(t, problems, err,
		`a.md:1: there is no target "dance" in the Makefile`,
		`a.md:3: there is no target "fly" in the Makefile`,
		"a.md:4: nothing reads the variable LOCKSTEP_NOTHING",
	)
}

func TestCommandsFindsWhatLockstepDoesNotHave(t *testing.T) {
	t.Parallel()
	help := func(_ context.Context, args ...string) (string, error) {
		if len(args) == 0 {
			return "Usage:\n  lockstep [command]\n\nCommands:\n  demo        Move\n\nFlags:\n  -h, --help   help\n", nil
		}
		return "Flags:\n      --guards string   on\n  -h, --help   help\n", nil
	}
	tree := write(t, map[string]string{"a.md": "`lockstep demo --guards=off` `--guards` `lockstep --help` `lockstep dance` `--fly`\n" +
		"```sh\n./bin/lockstep demo --fly  # lockstep ok\ngo run ./cmd/lockstep demo\nmake demo DEMO_FLAGS=\"--guards off --swim\"\n```\n" +
		"`lockstep.Busy` `docker compose up --wait`\n",
		"b.md": "`--privileged` is another program's.\n"})
	problems, err := docscheck.Commands(t.Context(), tree, help)
	found(t, problems, err,
		`a.md:1: lockstep has no command "dance"`,
		"a.md:3: lockstep demo has no flag --fly",
		"a.md:5: lockstep demo has no flag --swim",
		"a.md:1: lockstep has no flag --fly",
	)
}

func TestDefaultsFindsWhatTheCodeDoesOtherwise(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"c.go": "package c\n\nfunc f() {\n\tsetDefault(&c.TTL, 30*time.Second)\n\tsetDefault(&c.Hold, max(10*time.Minute, c.TTL))\n" +
			"\tsetDefault(&c.Most, 2000)\n\tsetDefault(&c.Other, 100*time.Millisecond)\n}\n",
		"a.md": "| `TTL` | 30 s | text |\n| `Hold` | 5 min | text |\n| `Most` | 2,000 | text |\n",
	})
	problems, err := docscheck.Defaults(tree, "a.md", "c.go")
	found(t, problems, err, "a.md:2: Hold defaults to 10 min, not 5 min", "a.md: the table of settings has no row for Other")
	_, err = docscheck.Defaults(write(t, map[string]string{"c.go": "package c\n", "a.md": ""}), "a.md", "c.go")
	require.ErrorContains(t, err, "sets no defaults")
}

func TestPlacesFindsTheNamesOfThisMachine(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"a.txt": "see /secret/place.txt\nsee my/secret and /secretary\nuse https://packages.example/x\n",
		"b.bin": "\x00/secret/",
	})
	problems, err := docscheck.Places(tree, []string{"/secret", "packages.example"})
	found(t, problems, err,
		"a.txt:1: /secret is a place of one machine",
		"a.txt:3: packages.example is a place of one machine",
	)
}
