package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

var binary string

func TestMain(m *testing.M) {
	runDoorKeeper()
	dir, err := os.MkdirTemp("", "lockstep")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "lockstep")
	if out, err := exec.Command("go", "build", "-race", "-o", binary, ".").CombinedOutput(); err != nil { //nolint:noctx // the build bounds itself
		panic(string(out))
	}
	clearSettings(dir)
	// A process that a script starts in the background ignores interrupts, and so do its children, which the tests interrupt.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

// clearSettings removes the user's settings of the connection to Temporal.
func clearSettings(dir string) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TEMPORAL_") && name != "TEMPORAL_ADDRESS" {
			_ = os.Unsetenv(name)
		}
	}
	empty := filepath.Join(dir, "temporal.toml")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.Setenv("TEMPORAL_CONFIG_FILE", empty)); err != nil {
		panic(err)
	}
}

// within bounds what a test waits for: long, since machines are slow and only failures take it.
const within = 2 * time.Minute

// lockstep runs the compiled binary in an empty folder.
func lockstep(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, env, args...)
	code = p.wait(t)
	return code, p.stdout.String(), p.stderr.String()
}

// process is a command that runs in the background.
type process struct {
	*exec.Cmd
	stdout, stderr text
}

// text is the output of a process, or another text, which may still grow.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// start starts the compiled binary in an empty folder. The end of the test kills it.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.CommandContext(t.Context(), binary, args...), env)
}

func startCommand(t *testing.T, c *exec.Cmd, env []string) *process {
	t.Helper()
	p := &process{Cmd: c}
	c.Dir, c.Env = t.TempDir(), append(c.Environ(), env...)
	c.Stdout, c.Stderr = &p.stdout, &p.stderr
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // most have ended
		_ = c.Wait()
	})
	return p
}

// line returns the first line of its output.
func (p *process) line(t *testing.T) (line string) {
	t.Helper()
	require.Eventually(t, func() (found bool) {
		line, _, found = strings.Cut(p.stdout.String(), "\n")
		return found
	}, within, 10*time.Millisecond, "it prints nothing: %s", &p.stderr)
	return line
}

// interrupt sends Ctrl-C.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(os.Interrupt))
}

// wait returns the exit status when the process has ended. It is -1 if a signal ended it.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	timeout := time.AfterFunc(5*time.Minute, func() { _ = p.Process.Kill() })
	_ = p.Wait() // the exit status has the result
	require.True(t, timeout.Stop(), "it did not end")
	return p.ProcessState.ExitCode()
}

func servers(t *testing.T) []string {
	t.Helper()
	return []string{"TEMPORAL_ADDRESS=" + testenv.TemporalAddress(t), "LOCKSTEP_MONGODB_URI=" + testenv.MongoURI(t)}
}

// locks is a test's own collection of locks, on which commands run.
type locks struct {
	*lockcore.Steps
	database string
	orders   uint32
}

func newLocks(t *testing.T) *locks {
	t.Helper()
	db := testenv.Mongo(t)
	return &locks{Steps: newSteps(t, lockcore.New, db.Collection(defaultCollection)), database: db.Name()}
}

// newSteps returns the Steps of a new Locker, which knows nothing of its collection yet. The end of the test closes it.
func newSteps[C any](t *testing.T, create func(C, lockcore.Config) (*lockcore.Locker, error), locks C) *lockcore.Steps {
	t.Helper()
	l, err := create(locks, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l.Steps()
}

// start starts a command on the collection.
func (l *locks) start(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, servers(t), append(args, "--database", l.database)...)
}

// lockstep runs a command on the collection.
func (l *locks) lockstep(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return lockstep(t, servers(t), append(args, "--database", l.database)...)
}

// prints runs a command that must succeed, and returns its output.
func (l *locks) prints(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := l.lockstep(t, args...)
	require.Zero(t, code, stderr)
	if !slices.Contains([]string{"clear", "janitor", "release", "replaces", "unhold"}, args[0]) { // which log
		require.Empty(t, stderr)
	}
	return stdout
}

// fails runs a command that must fail with an exit status, and returns its errors.
func (l *locks) fails(t *testing.T, want int, args ...string) string {
	t.Helper()
	code, stdout, stderr := l.lockstep(t, args...)
	require.Equal(t, want, code, stdout+stderr)
	return stderr
}

// ask makes one attempt to acquire a resource, and queues if it is busy.
func (l *locks) ask(t *testing.T, lockID, part, resource string) lockcore.Lease {
	t.Helper()
	return l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: part}}, lockcore.Exclusive(resource))
}

// enter is ask with more of a request.
func (l *locks) enter(t *testing.T, r lockcore.StepRequest, resource lockcore.Resource) lockcore.Lease {
	t.Helper()
	l.orders++
	r.Order, r.TTL, r.Resources = lockcore.Order{Schedule: l.orders, Attempt: 1}, time.Hour, []lockcore.Resource{resource}
	leases, err := l.Enter(t.Context(), r)
	if err != nil {
		require.ErrorIs(t, err, lockcore.ErrBusy)
		return lockcore.Lease{}
	}
	return leases[0]
}

// states lists the states of the entries of a resource, of one lock ID or of all.
func (l *locks) states(t *testing.T, resource, lockID string) []lockcore.State {
	t.Helper()
	states := []lockcore.State{}
	for st, err := range l.Status(t.Context(), lockcore.Filter{Resource: resource, LockID: lockID}) {
		require.NoError(t, err)
		states = append(states, st.State)
	}
	return states
}

func TestRun_WrongUsage_IsExplained(t *testing.T) {
	t.Parallel()
	nowhere := []string{"TEMPORAL_ADDRESS=127.0.0.1:1", "LOCKSTEP_MONGODB_URI=mongodb://127.0.0.1:1/"}
	for name, c := range map[string]struct {
		env  []string
		args string
		code int
		want string
	}{
		"unknown command":    {args: "frobnicate", code: 2, want: `unknown command "frobnicate"`},
		"unknown flag":       {args: "demo --frobnicate", code: 2, want: "unknown flag: --frobnicate"},
		"argument":           {args: "demo now", code: 2, want: `takes no argument: have "now"`},
		"no number":          {args: "demo --transfers many", code: 2, want: `invalid argument "many"`},
		"too few accounts":   {env: nowhere, args: "demo --accounts 0", code: 2, want: "--accounts is 0: want 2 to 90"},
		"negative":           {env: nowhere, args: "demo --transfers -5", code: 2, want: "--transfers is -5: want 1 to"},
		"guards":             {env: nowhere, args: "demo --guards maybe", code: 2, want: `--guards is "maybe": want on or off`},
		"no address":         {env: []string{"TEMPORAL_ADDRESS=", "LOCKSTEP_MONGODB_URI="}, args: "demo", code: 1, want: "TEMPORAL_ADDRESS is not set"},
		"no database":        {env: nowhere, args: "demo", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"no MongoDB URI":     {env: append(nowhere, "LOCKSTEP_MONGODB_URI=http://user:secret@x/"), args: "demo", code: 1, want: "LOCKSTEP_MONGODB_URI"},
		"worker's database":  {env: nowhere, args: "worker", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"worker's URI":       {env: nowhere, args: "worker --mongodb-uri http://user:secret@x/", code: 1, want: "--mongodb-uri"},
		"worker without URI": {env: []string{"LOCKSTEP_MONGODB_URI="}, args: "worker", code: 2, want: "neither --mongodb-uri nor LOCKSTEP_MONGODB_URI"},
		"worker's argument":  {env: nowhere, args: "worker now", code: 2, want: `takes no argument: have "now"`},
		"worker's janitor":   {env: nowhere, args: "worker --janitor often", code: 2, want: `invalid argument "often"`},
		"janitor's database": {env: nowhere, args: "janitor", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"janitor's argument": {env: nowhere, args: "janitor now", code: 2, want: `takes no argument: have "now"`},
		"janitor's interval": {env: nowhere, args: "janitor --interval 1ms", code: 2, want: "100ms to 1h"},
		"janitor once often": {env: nowhere, args: "janitor --once --interval 5m", code: 2, want: "--interval is for the loop"},
		"janitor's JSON":     {env: nowhere, args: "janitor --json", code: 2, want: "needs --once"},
		"a typing error":     {args: "hodl r", code: 2, want: `did you mean "hold"?`},
		"ps of too few":      {env: nowhere, args: "ps --most -1", code: 2, want: "--most is -1: want 0 or more"},
		"ps all the time":    {env: nowhere, args: "ps --watch 1ms", code: 2, want: "--watch is 1ms: want 1s or more"},
		"ps's database":      {env: nowhere, args: "ps", code: 1, want: "no database answers at [127.0.0.1:1]"},
		"show of nothing":    {env: nowhere, args: "show", code: 2, want: "wants the resource's name"},
		"show of two":        {env: nowhere, args: "show a b", code: 2, want: `takes 1: have "b" too`},
		"why of nothing":     {env: nowhere, args: "why", code: 2, want: "wants a workflow ID"},
		"release of nothing": {env: nowhere, args: "release r", code: 2, want: "wants the lock ID"},
		"release's reason":   {env: nowhere, args: "release r l", code: 2, want: "--reason is required"},
		"hold's reason":      {env: nowhere, args: "hold r", code: 2, want: "--reason is required"},
		"hold for less":      {env: nowhere, args: "hold r --reason x --wait -1s", code: 2, want: "--wait is -1s"},
		"limit of nothing":   {env: nowhere, args: "limit", code: 2, want: "wants the name of a resource"},
		"limit without N":    {env: nowhere, args: "limit r", code: 2, want: "wants the limit, or --remove"},
		"limit of 0":         {env: nowhere, args: "limit r 0", code: 2, want: `the limit is "0": want 1 to 1000000`},
		"limit too large":    {env: nowhere, args: "limit r 1000001", code: 2, want: `the limit is "1000001": want`},
		"limit below 0":      {env: nowhere, args: "limit -- r -1", code: 2, want: `the limit is "-1": want`},
		"limit's number":     {env: nowhere, args: "limit r many", code: 2, want: `the limit is "many": want`},
		"limit for less":     {env: nowhere, args: "limit r 1 --for=-1h", code: 2, want: `--for is "-1h": want 1s to 3650d`},
		"limit for negative": {env: nowhere, args: "limit r 1 --for=-7d", code: 2, want: `--for is "-7d": want`},
		"limit for long":     {env: nowhere, args: "limit r 1 --for 3651d", code: 2, want: `--for is "3651d": want`},
		"limit for a while":  {env: nowhere, args: "limit r 1 --for soon", code: 2, want: `--for is "soon": want`},
		"limit and remove":   {env: nowhere, args: "limit r 1 --remove", code: 2, want: `takes 1: have "1" too`},
		"removal for a time": {env: nowhere, args: "limit r --remove --for 7d", code: 2, want: "--for is not for --remove"},
		"limit from a file":  {env: nowhere, args: "limit --from policies.json r", code: 2, want: `takes no argument: have "r"`},
		"file for a time":    {env: nowhere, args: "limit --from policies.json --for 7d", code: 2, want: "are not for --from"},
		"no such file":       {env: nowhere, args: "limit --from policies.json", code: 1, want: "--from: open policies.json"},
		"page's address":     {env: nowhere, args: "ui --listen here", code: 2, want: `--listen is "here": want host:port`},
		"verify's database":  {env: nowhere, args: "verify", code: 1, want: "LOCKSTEP_MONGODB_URI: no database answers at [127.0.0.1:1]"},
		"verify's URI":       {env: nowhere, args: "verify --mongodb-uri http://user:secret@x/", code: 1, want: "--mongodb-uri: the MongoDB URI"},
		"verify without URI": {env: []string{"LOCKSTEP_MONGODB_URI="}, args: "verify", code: 2, want: "neither --mongodb-uri nor LOCKSTEP_MONGODB_URI"},
		"verify's argument":  {env: nowhere, args: "verify now", code: 2, want: `takes no argument: have "now"`},
		"verify's clients":   {env: nowhere, args: "verify --clients 1", code: 2, want: "--clients is 1: want 2 to 12"},
		"verify's duration":  {env: nowhere, args: "verify --duration long", code: 2, want: `invalid argument "long"`},
		"verify's control":   {env: nowhere, args: "verify --control all", code: 2, want: `--control is "all": want early-answer, clock-jump, lost-compare`},
		"verify's client":    {args: "verify-client", code: 2, want: "started by lockstep verify"},
		"demo's worker":      {args: "demo-worker", code: 2, want: "started by lockstep demo"},
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
