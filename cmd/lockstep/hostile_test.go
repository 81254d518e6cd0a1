package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
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
	enter := func(lockID string, order uint32, resources ...lockcore.Resource) {
		_, err := l.Enter(t.Context(), party.Request{
			LockID: lockID, Owner: "owner " + lockID, Comment: evil, Part: evil, Order: party.Order{Schedule: order, Attempt: 1}, TTL: time.Hour, Resources: resources,
		})
		if err != nil {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		}
	}
	limited := func(n int) lockcore.Resource {
		return lockcore.Resource{Name: evil + "semaphore", Mode: lockcore.ModeShared, Limit: n}
	}
	enter(evil, 1, lockcore.Exclusive(evil))
	enter(evil+"waiter", 1, lockcore.Exclusive(evil))
	enter(evil+"1", 1, limited(7))
	enter(evil+"2", 1, limited(8))
	enter(evil+"circle 1", 1, lockcore.Exclusive(evil+"left"))
	enter(evil+"circle 2", 1, lockcore.Exclusive(evil+"right"))
	enter(evil+"circle 1", 2, lockcore.Exclusive(evil+"right"))
	enter(evil+"circle 2", 2, lockcore.Exclusive(evil+"left"))
	enter(evil+"forced", 1, lockcore.Exclusive(evil+"forced"))
	for st, err := range l.Status(t.Context(), lockcore.Filter{Resource: evil + "forced"}) {
		require.NoError(t, err)
		require.NoError(t, l.Revoke(t.Context(), st.Resource, st.LockID, st.FirstFence, evil, true))
	}
	enter(evil+"forced", 2, lockcore.Exclusive(evil+"other"))
	return l
}

// Each command is here: a new one must be added, with arguments that make it print callers' text.
func TestCommands_HostileText_ReachesNoTerminal(t *testing.T) {
	t.Parallel()
	l := hostileLocks(t)
	dir := t.TempDir()
	traces := filepath.Join(dir, "traces.json")
	span, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{"scopeSpans": []any{map[string]any{"spans": []any{hostileSpan()}}}}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(traces, append(span, "\n{broken "+evil+"\n"...), 0o600))
	in := []string{"--database", l.database}
	reason := []string{"--reason", evil, "--yes"}
	cases := map[string][][]string{
		"ps":        {in, append(in, "--json"), append(in, "--watch", evil), append(in, "--collection", evil)},
		"show":      {append(in, evil), append(in, evil+"forced"), append(in, "nothing"+evil), append(in, "--json", evil), {}, {evil, evil}},
		"why":       {append(in, evil), append(in, "owner "+evil+"waiter"), append(in, "--no-temporal", "nothing"+evil), append(in, "--json", "--no-temporal", "owner "+evil+"waiter")},
		"deadlocks": {in, append(in, "--json")},
		"orphans":   {in, append(in, "--json"), append(in, "--namespace", evil)},
		"doctor":    {in, append(in, "--json"), append(in, "--namespace", evil), append(in, "--collection", "x"+evil), append(in, "--mongodb-uri", "mongodb://"+evil)},
		"hold": {
			append(in, "--reason", evil, "--wait", "1s", evil), append(in, "--reason", evil, evil+"free"), append(in, "--reason", evil, evil+"free"), append(in, evil),
		},
		"unhold": {append(in, evil+"free"), append(in, evil)},
		"release": {
			append(append(in, reason...), evil, "nobody"+evil), append(append(in, reason...), "--fence", "1", evil, evil),
			append(append(in, reason...), evil, evil+"waiter"), append(append(in, reason...), evil, evil), append(append(in, "--reason", evil), evil, evil),
		},
		"ui":            {{"--listen", evil}, append(in, "--collection", evil)},
		"verify":        {{"--control", evil}, {"--duration", evil}},
		"contention":    {{traces}, {"--json", traces}, {filepath.Join(dir, evil)}, {"--since", evil, traces}, {"--jaeger-ui", evil, traces}, {"--resource", evil, traces}},
		"worker":        {append(in, "--namespace", evil), append(in, evil), append(in, "--temporal-address", evil)},
		"janitor":       {append(in, "--once"), append(in, "--once", "--json"), append(in, "--once", "--namespace", evil)},
		"init":          {in, append(in, "--collection", evil)},
		"demo":          {{"--guards", evil}, {"--transfers", evil}, {evil}},
		"demo-worker":   {{}, {evil}},
		"verify-client": {{}, {evil}},
		"version":       {{}, {evil}},
		"replaces":      {append(in, "--reason", evil, "old"+evil), append(in, "old"+evil)},
		"clear":         {append(in, "--reason", evil), append(in, "--reason", evil, "--collection", evil), append(in, evil)},
	}
	known := map[string]bool{"help": true, "completion": true} // cobra's own
	for name := range cases {
		known[name] = true
	}
	for _, c := range rootCommand(streams{}).Commands() {
		require.True(t, known[c.Name()], "the command %s is not in this test", c.Name())
	}
	cases["help"], cases["completion"], cases["--"+evil], cases[evil] = [][]string{{evil}}, [][]string{{evil}}, [][]string{{}}, [][]string{{}}
	check := func(name string) {
		for _, args := range cases[name] {
			code, stdout, stderr := lockstep(t, servers(t), append([]string{name}, args...)...)
			requirePlain(t, stdout)
			requirePlain(t, stderr)
			require.LessOrEqual(t, code, 2, stderr)
			if len(args) > 2 && args[2] == "--json" {
				require.True(t, json.Valid([]byte(stdout)), "%s %q: %s%s", name, args, stdout, stderr)
			}
		}
		delete(cases, name)
	}
	for _, name := range []string{ // releases come last
		"ps", "show", "why", "deadlocks", "orphans", "doctor", "hold", "unhold", "ui", "verify", "contention", "worker", "janitor", "init", "demo", "demo-worker",
		"verify-client", "version", "help", "completion", "--" + evil, evil, "replaces", "release",
	} {
		check(name)
	}
	_, stdout, _ := l.lockstep(t, "ps", "--json")
	var found []struct{ Resource string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &found))
	var names []string
	for _, r := range found {
		names = append(names, r.Resource)
	}
	require.Contains(t, names, evil+"left", "JSON keeps the name")
	check("clear")
	require.Empty(t, cases)
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
