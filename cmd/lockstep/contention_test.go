package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// oneWait is the trace of a hold on account/1 by A (2 s), and of a wait for it by B (1 s).
const oneWait = `{"resourceSpans":[{"scopeSpans":[{"spans":[` +
	`{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"lock.hold","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000002000000000",` +
	`"attributes":[{"key":"lock.resource","value":{"stringValue":"account/1"}},{"key":"lock.id","value":{"stringValue":"A"}},{"key":"lock.fence","value":{"intValue":"1"}},{"key":"lock.outcome","value":{"stringValue":"released"}}]},` +
	`{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002","name":"lock.wait","startTimeUnixNano":"1790000001000000000","endTimeUnixNano":"1790000002000000000",` +
	`"attributes":[{"key":"lock.resource","value":{"stringValue":"account/1"}},{"key":"lock.id","value":{"stringValue":"B"}},{"key":"lock.fence","value":{"intValue":"2"}},{"key":"lock.outcome","value":{"stringValue":"granted"}}]}` +
	`]}]}]}` + "\n"

func traceFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "traces.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestContention_FilesFoldersAndPipes_AreRead(t *testing.T) {
	t.Parallel()
	path := traceFile(t, oneWait)
	for _, args := range [][]string{{path}, {filepath.Dir(path)}, {path, path}, {"--top", "1", "--resource", "account/", path}} {
		code, stdout, stderr := lockstep(t, nil, append([]string{"contention"}, args...)...)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stderr)
		require.Contains(t, stdout, "└─ B waited 1.0 s for account/1")
		require.Contains(t, stdout, "100 % of the waiting was for A, which held it 2.0 s")
	}
	for _, args := range [][]string{nil, {"-"}} {
		c := exec.CommandContext(t.Context(), binary, append([]string{"contention"}, args...)...)
		c.Stdin = strings.NewReader(oneWait)
		out, err := c.Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "└─ B waited 1.0 s for account/1")
	}
}

func TestContention_JSON_IsTheReport(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := lockstep(t, nil, "contention", "--json", traceFile(t, oneWait))
	require.Equal(t, 0, code, stderr)
	var r contention.Report
	d := json.NewDecoder(bytes.NewReader([]byte(stdout)))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	require.Equal(t, 1, r.Totals.Waited)
	require.Equal(t, "A", r.Waits[0].Blockers[0].Owner)
}

func TestContention_HTML_WritesAPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.html")
	code, stdout, stderr := lockstep(t, nil, "contention", "--html", path, "--jaeger-ui", "http://127.0.0.1:16686", traceFile(t, oneWait))
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "wrote "+path)
	require.Contains(t, stdout, "RESOURCES")
	html, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(html), "account/1")
	require.Contains(t, string(html), "127.0.0.1:16686")
}

func TestContention_WrongInput_IsExplained(t *testing.T) {
	t.Parallel()
	foreign := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"GET /"}]}]}]}`
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no such file":   {[]string{"nowhere.json"}, 1, "nowhere.json: there is no such file or folder"},
		"empty folder":   {[]string{"."}, 1, "there is no *.json or *.jsonl"},
		"empty pipe":     {nil, 1, "no lock spans were found: there are no spans at all in 1 file"},
		"others' spans":  {[]string{traceFile(t, foreign)}, 1, `no lock spans were found among 1 span`},
		"no traces":      {[]string{traceFile(t, "hello")}, 1, "no JSON object begins here"},
		"no list":        {[]string{"--top", "0", "x"}, 2, "--top is 0: want 1 or more"},
		"no time":        {[]string{"--since", "yesterday", "x"}, 2, `--since is "yesterday": want a time such as`},
		"times reversed": {[]string{"--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z", "x"}, 2, "--until is before --since"},
		"no link":        {[]string{"--jaeger-ui", "javascript:alert(1)", "x"}, 2, "--jaeger-ui: "},
		"no place":       {[]string{"--html", "/no/such/folder/page.html", traceFile(t, oneWait)}, 1, "--html: open /no/such/folder/page.html: no such file"},
		"no such name":   {[]string{"--resource", "acount/1", traceFile(t, oneWait)}, 1, `no span names a resource that begins with "acount/1"; near that is "account/1"`},
		"no such time":   {[]string{"--since", "2100-01-01T00:00:00Z", traceFile(t, oneWait)}, 1, "no lock span is of the time between --since and --until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := lockstep(t, nil, append([]string{"contention"}, c.args...)...)
			require.Equal(t, c.code, code, stderr)
			require.Contains(t, stderr, c.want)
			require.NotContains(t, stderr, "goroutine ")
			require.LessOrEqual(t, strings.Count(stderr, "\n"), 2)
		})
	}
}

// The other end of the pipe, such as curl, may hang.
func TestContention_InterruptedAtPipe_Ends(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), binary, "contention")
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	p := startCommand(t, c, nil)
	_, err = io.WriteString(stdin, oneWait+strings.Repeat(" ", 300_000)) // more than a pipe buffers: the command has begun to read, and waits for the end of the line
	require.NoError(t, err)
	p.interrupt(t)
	require.Equal(t, 130, p.wait(t), &p.stderr)
	require.Contains(t, p.stderr.String(), "lockstep: interrupted")
	require.Empty(t, p.stdout.String())
}
