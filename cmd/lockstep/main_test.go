package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

var binary string

func TestMain(m *testing.M) {
	beDoorKeeper()
	dir, err := os.MkdirTemp("", "lockstep")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "lockstep")
	if out, err := exec.Command("go", "build", "-race", "-o", binary, ".").CombinedOutput(); err != nil { //nolint:noctx // the build bounds itself
		panic(string(out))
	}
	onlyTheTests(dir)
	// Who is started in the background by a script ignores interrupts, and hands that down to the processes that the tests interrupt.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

// onlyTheTests takes away what the user's environment and configuration file say of how Temporal is spoken to.
func onlyTheTests(dir string) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TEMPORAL_") && name != "TEMPORAL_ADDRESS" {
			_ = os.Unsetenv(name) // a name that is there
		}
	}
	empty := filepath.Join(dir, "temporal.toml")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.Setenv("TEMPORAL_CONFIG_FILE", empty)); err != nil {
		panic(err)
	}
}

// lockstep runs the compiled binary in an empty folder.
func lockstep(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir = t.TempDir()
	c.Env = append(c.Environ(), env...)
	var out, err bytes.Buffer
	c.Stdout, c.Stderr = &out, &err
	_ = c.Run() // the exit status says it
	require.NoError(t, ctx.Err(), "it did not end")
	return c.ProcessState.ExitCode(), out.String(), err.String()
}

func TestWrongInputIsAnsweredInFewWords(t *testing.T) {
	t.Parallel()
	nowhere := []string{"TEMPORAL_ADDRESS=127.0.0.1:1", "LOCKSTEP_MONGODB_URI=mongodb://127.0.0.1:1/"}
	for name, c := range map[string]struct {
		env  []string
		args string
		code int
		want string
	}{
		"unknown command":     {args: "frobnicate", code: 2, want: `unknown command "frobnicate"`},
		"unknown flag":        {args: "demo --frobnicate", code: 2, want: "unknown flag: --frobnicate"},
		"argument":            {args: "demo now", code: 2, want: `takes no argument: have "now"`},
		"no number":           {args: "demo --transfers many", code: 2, want: `invalid argument "many"`},
		"too few accounts":    {env: nowhere, args: "demo --accounts 0", code: 2, want: "--accounts is 0: want 2 to 90"},
		"negative":            {env: nowhere, args: "demo --transfers -5", code: 2, want: "--transfers is -5: want 1 to"},
		"nobody to go on":     {env: nowhere, args: "demo --workers 1", code: 2, want: "--kill needs at least 2 workers"},
		"guards":              {env: nowhere, args: "demo --guards maybe", code: 2, want: `--guards is "maybe": want on or off`},
		"no address":          {env: []string{"TEMPORAL_ADDRESS=", "LOCKSTEP_MONGODB_URI="}, args: "demo", code: 1, want: "TEMPORAL_ADDRESS is not set"},
		"no database":         {env: nowhere, args: "demo", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"no MongoDB URI":      {env: append(nowhere, "LOCKSTEP_MONGODB_URI=http://user:secret@x/"), args: "demo", code: 1, want: "LOCKSTEP_MONGODB_URI"},
		"worker's database":   {env: nowhere, args: "worker", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"worker's URI":        {env: nowhere, args: "worker --mongodb-uri http://user:secret@x/", code: 1, want: "--mongodb-uri"},
		"worker without URI":  {env: []string{"LOCKSTEP_MONGODB_URI="}, args: "worker", code: 2, want: "neither --mongodb-uri nor LOCKSTEP_MONGODB_URI"},
		"worker's argument":   {env: nowhere, args: "worker now", code: 2, want: `takes no argument: have "now"`},
		"worker's janitor":    {env: nowhere, args: "worker --janitor often", code: 2, want: `invalid argument "often"`},
		"janitor's database":  {env: nowhere, args: "janitor", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"janitor's argument":  {env: nowhere, args: "janitor now", code: 2, want: `takes no argument: have "now"`},
		"janitor's interval":  {env: nowhere, args: "janitor --interval 1ms", code: 2, want: "100ms to 1h"},
		"janitor of one mind": {env: nowhere, args: "janitor --once --interval 5m", code: 2, want: "--interval is for the loop"},
		"janitor's JSON":      {env: nowhere, args: "janitor --json", code: 2, want: "needs --once"},
		"a typing error":      {args: "hodl r", code: 2, want: `did you mean "hold"?`},
		"ps of too few":       {env: nowhere, args: "ps --most -1", code: 2, want: "--most is -1: want 0 or more"},
		"ps all the time":     {env: nowhere, args: "ps --watch 1ms", code: 2, want: "--watch is 1ms: want 1s or more"},
		"ps's database":       {env: nowhere, args: "ps", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"show of nothing":     {env: nowhere, args: "show", code: 2, want: "wants the resource's name"},
		"show of two":         {env: nowhere, args: "show a b", code: 2, want: `takes 1: have "b" too`},
		"why of nobody":       {env: nowhere, args: "why", code: 2, want: "wants a workflow ID"},
		"release of what":     {env: nowhere, args: "release r", code: 2, want: "wants the lock ID"},
		"release why":         {env: nowhere, args: "release r l", code: 2, want: "--reason is required"},
		"hold why":            {env: nowhere, args: "hold r", code: 2, want: "--reason is required"},
		"hold till yesterday": {env: nowhere, args: "hold r --reason x --wait -1s", code: 2, want: "--wait is -1s"},
		"doctor's database":   {env: nowhere, args: "doctor", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"a page nowhere":      {env: nowhere, args: "ui --listen here", code: 2, want: `--listen is "here": want host:port`},
		"worker on its own":   {args: "demo-worker", code: 2, want: "started by lockstep demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := lockstep(t, c.env, strings.Fields(c.args)...)
			require.Equal(t, c.code, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Empty(t, stdout)
			require.NotContains(t, stderr, "goroutine ")
			require.NotContains(t, stderr, "secret")
			require.LessOrEqual(t, strings.Count(stderr, "\n"), 5, stderr)
		})
	}
}

func TestNoTemporalLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	before := databases(t)
	code, _, stderr := lockstep(t, []string{"TEMPORAL_ADDRESS=127.0.0.1:1", "LOCKSTEP_MONGODB_URI=" + testenv.MongoURI(t)}, "demo")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no Temporal server answers at 127.0.0.1:1")
	require.Contains(t, stderr, "make stack-up")
	// Demos that run at the same time make databases too, and drop them.
	made := databases(t)
	mongo := testenv.Mongo(t).Client()
	require.Eventually(t, func() bool {
		now, err := mongo.ListDatabaseNames(t.Context(), demos)
		made = slices.DeleteFunc(made, func(name string) bool {
			return slices.Contains(before, name) || err == nil && !slices.Contains(now, name)
		})
		return len(made) == 0
	}, 5*time.Minute, 100*time.Millisecond, "a database of a demo that could not start stands")
}

func servers(t *testing.T) []string {
	t.Helper()
	return []string{"TEMPORAL_ADDRESS=" + testenv.TemporalAddress(t), "LOCKSTEP_MONGODB_URI=" + testenv.MongoURI(t)}
}

// The main job, small: isolation holds while a worker is killed.
func TestDemoConservesMoneyWhileAWorkerIsKilled(t *testing.T) {
	t.Parallel()
	traces := t.TempDir()
	code, stdout, stderr := lockstep(t, servers(t), "demo", "--transfers", "12", "--accounts", "4", "--concurrency", "6", "--traces", traces)
	require.Equal(t, 0, code, stdout+stderr)
	require.Regexp(t, `transfers +\d+ committed, \d+ compensated, 0 failed otherwise`, stdout)
	require.Regexp(t, `AUDITS THAT SAW A WRONG TOTAL +0\n`, stdout)
	require.Contains(t, stdout, "conserved")
	require.Contains(t, stdout, "worker-1, by SIGKILL")
	requireEveryWaitExplained(t, traces)
}

// requireEveryWaitExplained: from a demo's traces alone each wait is joined with a hold that was in its way, and that hold with a
// step, its workflow and its span.
func requireEveryWaitExplained(t *testing.T, traces string) {
	t.Helper()
	code, stdout, stderr := lockstep(t, nil, "contention", "--json", traces)
	require.Equal(t, 0, code, stderr)
	var r contention.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Zero(t, r.Read.Broken)
	require.Zero(t, r.Read.Malformed)
	require.NotEmpty(t, r.Waits, "nobody waited")
	for i, w := range r.Waits {
		require.True(t, slices.ContainsFunc(w.Blockers, func(b contention.Blocker) bool { return b.Named }), "its span names nobody: %+v", w)
		require.True(t, slices.ContainsFunc(w.Blockers, func(b contention.Blocker) bool {
			if b.Hold < 0 || b.Workflow == "" || b.Trace == "" || b.Span == "" {
				return false
			}
			hold := r.Holds[b.Hold] // without a step where the grant was given back before it was taken
			return (b.Step != "" || len(hold.Steps) == 0) && slices.Contains(hold.Blocks, i)
		}), "no hold is joined with it: %+v", w)
	}
}

// The control, small: without locks the same load goes wrong, and the demo says so.
func TestControlFindsWhatGuardsAreFor(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := lockstep(t, servers(t), "demo", "--guards", "off", "--transfers", "60", "--accounts", "4", "--kill=false")
	require.Equal(t, 1, code, stdout+stderr)
	require.Regexp(t, `AUDITS THAT SAW A WRONG TOTAL +[1-9]`, stdout)
	require.Contains(t, stderr, "audits saw a wrong total")
	require.Regexp(t, `this is what the control is for.*\n$`, stderr)
}

func TestInterruptedDemoStopsSoonAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), binary, "demo", "--transfers", "5000", "--accounts", "20")
	c.Dir = t.TempDir()
	c.Env = append(c.Environ(), servers(t)...)
	progress, err := c.StderrPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	c.Stdout = &out
	require.NoError(t, c.Start())
	run := started(t, c.Dir)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	begun := time.Now()
	text, err := io.ReadAll(progress)
	require.NoError(t, err)
	require.Error(t, c.Wait())
	require.Equal(t, 130, c.ProcessState.ExitCode(), string(text))
	require.Contains(t, string(text), "lockstep: interrupted")
	require.Less(t, time.Since(begun), time.Minute, "bounded, whatever the machine is doing")
	require.NotContains(t, databases(t), databaseOf(run))
	require.Empty(t, out.String())
}

// started waits until the demo in the folder dir has started its workers, and returns the run's name.
func started(t *testing.T, dir string) (run string) {
	t.Helper()
	var found []string
	require.Eventually(t, func() bool {
		var err error
		found, err = filepath.Glob(filepath.Join(dir, "traces", "*", "worker-3.json"))
		return err == nil && len(found) == 1
	}, time.Minute, 20*time.Millisecond, "it starts its workers")
	return filepath.Base(filepath.Dir(found[0]))
}

func databaseOf(run string) string { return "lockstep_" + strings.ReplaceAll(run, "-", "_") }

// demos are the databases of demos.
var demos = bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^lockstep_demo"}}}}

func databases(t *testing.T) []string {
	t.Helper()
	names, err := testenv.Mongo(t).Client().ListDatabaseNames(t.Context(), demos)
	require.NoError(t, err)
	return names
}
