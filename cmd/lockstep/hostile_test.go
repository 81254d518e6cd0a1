package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// evil is a name that a caller may choose. It would clear the screen, make a link, forge a line, and change the order of text.
const evil = "x\x1b[2J\x1b]8;;http://evil/\x07click\x1b]8;;\x07\r\nlockstep: all is well\n\u0085\u009b31m\x7f\u202e\u2066\u2028\u2029\u200b\t'\"$(touch pwned)`touch pwned`"

// requirePlain fails if a text could change a terminal, or if a name began a line of its own.
func requirePlain(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	require.NotRegexp(t, `(?m)^lockstep: all is well`, text)
	for _, r := range text {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q in %q", r, text)
	}
}

// hostileLocks makes locks in which each text of a caller is evil: a hold, a waiter, a semaphore with two limits, a forced
// release, a deadlock, and maintenance.
func hostileLocks(t *testing.T) *locks {
	t.Helper()
	l := newLocks(t)
	enter := func(lockID string, of lockcore.Resource) {
		l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: evil}, Owner: "owner " + lockID, Comment: evil}, of)
	}
	limited := func(n int) lockcore.Resource {
		return lockcore.Resource{Name: evil + "semaphore", Mode: lockcore.ModeShared, Limit: n}
	}
	enter(evil, lockcore.Exclusive(evil))
	enter(evil+"waiter", lockcore.Exclusive(evil))
	enter(evil+"1", limited(7))
	enter(evil+"2", limited(8))
	enter(evil+"circle 1", lockcore.Exclusive(evil+"left"))
	enter(evil+"circle 2", lockcore.Exclusive(evil+"right"))
	enter(evil+"circle 1", lockcore.Exclusive(evil+"right"))
	enter(evil+"circle 2", lockcore.Exclusive(evil+"left"))
	enter(evil+"forced", lockcore.Exclusive(evil+"forced"))
	for st, err := range l.Status(t.Context(), lockcore.Filter{Resource: evil + "forced"}) {
		require.NoError(t, err)
		require.NoError(t, l.Revoke(t.Context(), st.Resource, st.LockID, st.FirstFence, evil, true))
	}
	enter(evil+"forced", lockcore.Exclusive(evil+"other"))
	for _, prefix := range []bool{false, true} {
		require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{Name: evil + "semaphore", Prefix: prefix, Limit: 9, By: evil, Reason: evil}))
	}
	return l
}

// hostileCases returns the arguments with which each command prints, or refuses, callers' text. A new command must be added.
func hostileCases(l *locks, traces string) map[string][][]string {
	in := func(more ...string) []string { return append([]string{"--database", l.database}, more...) }
	release := func(more ...string) []string { return append(in("--reason", evil, "--yes"), more...) }
	return map[string][][]string{
		"ps":        {in(), in("--json"), in("--watch", evil), in("--collection", evil)},
		"show":      {in(evil), in(evil + "forced"), in("nothing" + evil), in("--json", evil), {}, {evil, evil}},
		"why":       {in(evil), in("owner " + evil + "waiter"), in("--no-temporal", "nothing"+evil), in("--json", "--no-temporal", "owner "+evil+"waiter")},
		"deadlocks": {in(), in("--json")},
		"orphans":   {in(), in("--json"), in("--namespace", evil)},
		"doctor":    {in(), in("--json"), in("--namespace", evil), in("--collection", "x"+evil), in("--mongodb-uri", "mongodb://"+evil)},
		"hold":      {in("--reason", evil, "--wait", "1s", evil), in("--reason", evil, evil+"free"), in("--reason", evil, evil+"free"), in(evil)},
		"unhold":    {in(evil + "free"), in(evil)},
		"release": {
			release(evil, "nobody"+evil), release("--fence", "1", evil, evil), release(evil, evil+"waiter"), release(evil, evil), in("--reason", evil, evil, evil),
		},
		"ui":     {{"--listen", evil}, in("--collection", evil)},
		"verify": {{"--control", evil}, {"--duration", evil}},
		"contention": {
			{traces}, {"--json", traces}, {filepath.Join(filepath.Dir(traces), evil)}, {"--since", evil, traces}, {"--jaeger-ui", evil, traces}, {"--resource", evil, traces},
		},
		"worker":        {in("--namespace", evil), in(evil), in("--temporal-address", evil)},
		"janitor":       {in("--once"), in("--once", "--json"), in("--once", "--namespace", evil)},
		"init":          {in(), in("--collection", evil)},
		"demo":          {{"--guards", evil}, {"--transfers", evil}, {evil}},
		"demo-worker":   {{}, {evil}},
		"verify-client": {{}, {evil}},
		"version":       {{}, {evil}},
		"replaces":      {in("--reason", evil, "old"+evil), in("old" + evil)},
		"limit": {
			in("--reason", evil, evil, "3"), in("--exact", "--for", "7d", evil+"*", "3"), in("--for", evil, evil, "3"), in("--remove", evil+"none"),
			in("--from", evil), in("--from", traces), in(evil, evil), in(evil),
		},
		"pool": {
			in(evil), in("--reason", evil, evil+"pool", evil, evil+"2"), in(evil+"pool", evil+"3"), in("--json", evil+"pool"), in("--remove", evil+"none", evil+"pool"),
			in("--out", evil, "--reason", evil, evil+"pool"), in("--add", evil+"2", evil+"pool"), in(evil+"semaphore", evil), in(evil+"twice", evil), in(evil + "pool"),
		},
		"promote":    {in(evil, evil), in("--reason", evil, evil, evil+"waiter"), in("nothing"+evil, evil)},
		"policies":   {in(), in("--json"), in("--enable", "--reason", evil), in(evil)},
		"clear":      {in("--reason", evil), in("--reason", evil, "--collection", evil), in(evil)},
		"help":       {{evil}},
		"completion": {{evil}},
		"--" + evil:  {{}},
		evil:         {{}},
	}
}

// Callers' text reaches the terminal as plain text, whatever command prints it.
func TestCommands_HostileText_ReachesNoTerminal(t *testing.T) {
	t.Parallel()
	l := hostileLocks(t)
	cases := hostileCases(l, writeHostileTraces(t))
	for _, c := range rootCommand(streams{}).Commands() {
		require.Contains(t, cases, c.Name(), "the command is not in this test")
	}
	for name, calls := range cases {
		if !changesLocks(name) {
			requireCallsPlain(t, name, calls)
		}
	}
	for _, name := range []string{"hold", "unhold", "replaces", "release"} {
		requireCallsPlain(t, name, cases[name])
	}
	var listed []inspect.Resource
	require.NoError(t, json.Unmarshal([]byte(l.prints(t, "ps", "--json")), &listed))
	require.True(t, slices.ContainsFunc(listed, func(r inspect.Resource) bool { return r.Name == evil+"left" }), "JSON keeps the name")
	requireCallsPlain(t, "clear", cases["clear"])
}

// changesLocks reports whether a command changes the locks that other commands print.
func changesLocks(name string) bool {
	return slices.Contains([]string{"hold", "unhold", "replaces", "release", "clear"}, name)
}

// requireCallsPlain calls a command, and requires that all of its output is plain, and valid if it is JSON.
func requireCallsPlain(t *testing.T, name string, calls [][]string) {
	t.Helper()
	for _, args := range calls {
		code, stdout, stderr := lockstep(t, servers(t), append([]string{name}, args...)...)
		requirePlain(t, stdout)
		requirePlain(t, stderr)
		require.LessOrEqual(t, code, 2, stderr)
		if len(args) > 2 && args[2] == "--json" {
			require.True(t, json.Valid([]byte(stdout)), "%s %q: %s%s", name, args, stdout, stderr)
		}
	}
}

// writeHostileTraces writes a file with a span of which each text is evil, and with a broken line.
func writeHostileTraces(t *testing.T) (file string) {
	t.Helper()
	span, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{"scopeSpans": []any{map[string]any{"spans": []any{hostileSpan()}}}}}})
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "traces.json")
	require.NoError(t, os.WriteFile(file, append(span, "\n{broken "+evil+"\n"...), 0o600))
	return file
}

func hostileSpan() map[string]any {
	text := func(key string) map[string]any {
		return map[string]any{"key": key, "value": map[string]any{"stringValue": evil}}
	}
	return map[string]any{
		"traceId": strings.Repeat("1", 32), "spanId": strings.Repeat("2", 16), "name": "lock.wait", "startTimeUnixNano": "1000000000", "endTimeUnixNano": "3000000000",
		"attributes": []any{text("lock.resource"), text("lock.owner"), text("lock.id"), text("lock.outcome"), text("lock.mode")},
	}
}

// What fmt prints, a name in it may break into lines: table.Fprintf keeps each argument on its line.
func TestCommands_Print_WithTable(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	packages, err := parser.ParseDir(set, ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0) //nolint:staticcheck // no types are needed
	require.NoError(t, err)
	for _, file := range packages["main"].Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if called, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := called.X.(*ast.Ident); ok && of.Name == "fmt" {
					require.NotRegexp(t, "^(Fp|P)rint", called.Sel.Name, "%s", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}
