//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// The test follows docs/getting-started.md in one shell:
//
//   - a block of Go is saved as main.go, or replaces the function that it defines;
//   - commands must succeed;
//   - commands before a block of output are run until they print it.
func TestGettingStarted_Page_Works(t *testing.T) {
	t.Parallel()
	r := startReader(t)
	after := map[string]func(t *testing.T){
		"lockstep why book-ben": r.seesTheWaitInTemporal,
		"lockstep ui &":         r.seesThePage,
	}
	blocks := blocksOf(t, "../../docs/getting-started.md")
	for i, b := range blocks {
		text := r.own(b.text)
		switch {
		case b.lang == "go":
			r.saves(t, text)
		case b.lang == "sh" && i+1 < len(blocks) && blocks[i+1].lang == "text":
			r.looks(t, text, r.own(blocks[i+1].text))
		case b.lang == "sh":
			out, status := r.types(t, text)
			require.Equal(t, "0", status, "%s\n%s", text, out)
		}
		command := strings.TrimSpace(b.text)
		if look := after[command]; look != nil {
			look(t)
			delete(after, command)
		}
	}
	require.Empty(t, after, "the page has lost these commands")
}

type block struct{ lang, text string }

var fenced = regexp.MustCompile("(?ms)^(<!-- not run: [^\n]*\n)?```(\\w+)\n(.*?)^```$")

// blocksOf returns the code blocks of a page, without the ones that a comment marks as not run.
func blocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "" {
			blocks = append(blocks, block{lang: m[2], text: m[3]})
		}
	}
	return blocks
}

// reader follows the page.
type reader struct {
	dir      string
	database string
	suffix   string
	stdin    io.Writer
	out      *text
	typed    int
}

// startReader opens a shell in this clone.
func startReader(t *testing.T) *reader {
	t.Helper()
	clone, err := filepath.Abs("../..")
	require.NoError(t, err)
	modules, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	queue := testenv.TaskQueue(t)
	r := &reader{
		dir: t.TempDir(), database: testenv.Mongo(t).Name(), out: &text{},
		suffix: queue[strings.LastIndex(queue, "-"):],
	}
	shell := exec.CommandContext(t.Context(), "bash")
	shell.Dir = clone
	// The page appends to PATH, and a lockstep that is installed already would be found first.
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "lockstep"))
		return err == nil
	})
	shell.Env = append(append(shell.Environ(), servers(t)...), "PATH="+strings.Join(path, string(filepath.ListSeparator)),
		"GOPATH="+filepath.Join(r.dir, "go"), "GOMODCACHE="+strings.TrimSpace(string(modules)), "GOBIN=")
	shell.Stdout, shell.Stderr = r.out, r.out
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.stdin, err = shell.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // also kills what the page has left running
		_ = shell.Wait()
	})
	// A database and a port of the test's own.
	r.types(t, "lockstep() { [ $1 != ui ] || set -- \"$@\" --listen 127.0.0.1:0; command lockstep \"$@\" --database "+r.database+"; }\n")
	return r
}

var people = regexp.MustCompile(`\b(ann|ben|cleo)\b`)

// own replaces paths and names of the page with those of the test.
func (r *reader) own(text string) string {
	text = strings.ReplaceAll(text, "~/seats", filepath.Join(r.dir, "seats"))
	text = strings.ReplaceAll(text, `Database("lockstep")`, fmt.Sprintf("Database(%q)", r.database))
	return people.ReplaceAllString(text, "${1}"+r.suffix)
}

// saves writes main.go, or replaces a function in it.
func (r *reader) saves(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(r.dir, "seats", "main.go")
	if !strings.HasPrefix(text, "package ") {
		name, _, _ := strings.Cut(text, "(")
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		function := regexp.MustCompile(`(?ms)^` + name + `\(.*?^}\n`)
		require.Len(t, function.FindAll(source, -1), 1, name)
		text = function.ReplaceAllLiteralString(string(source), text)
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// types types commands, and returns their output and the exit status of the last one.
func (r *reader) types(t *testing.T, commands string) (out, status string) {
	t.Helper()
	r.typed++
	before := len(r.out.String())
	_, err := fmt.Fprintf(r.stdin, "%s\necho \"[done %d: $?]\"\n", strings.TrimSuffix(commands, "\n"), r.typed)
	require.NoError(t, err)
	done := regexp.MustCompile(fmt.Sprintf(`\[done %d: (\d+)\]\n`, r.typed))
	var at []int
	require.Eventually(t, func() bool {
		out = r.out.String()[before:]
		at = done.FindStringSubmatchIndex(out)
		return at != nil
	}, 2*within, 10*time.Millisecond, "it does not return: %s", commands)
	return out[:at[0]], out[at[2]:at[3]]
}

// looks repeats commands, at most twice a second, until they print the wanted text.
func (r *reader) looks(t *testing.T, commands, want string) {
	t.Helper()
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(within); ; <-again.C {
		out, _ := r.types(t, commands)
		if shows(out, want) {
			return
		}
		require.True(t, time.Now().Before(end), "%s\nprints\n%s\nand not\n%s\n\n%s", commands, out, want, r.logs())
	}
}

// logs returns the logs of the page's programs.
func (r *reader) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(r.dir, "seats", "*.log")) // a constant pattern
	for _, file := range files {
		text, _ := os.ReadFile(file) // unreadable files are left out
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(file), text)
	}
	return all.String()
}

var (
	seconds = regexp.MustCompile(`^(min|s)\b`)
	number  = regexp.MustCompile(`\d+`)
)

// shows reports whether out matches the page, apart from empty lines. A line "…" of the page matches any number of lines.
func shows(out, want string) bool {
	pattern := `^\s*`
	for line := range strings.Lines(want) {
		if strings.TrimSpace(line) == "…" {
			pattern += `(?:.*\n)*?\s*`
			continue
		}
		var words []string
		for word := range strings.FieldsSeq(line) {
			words = append(words, patternOf(word))
		}
		pattern += strings.Join(words, `[ ]+`) + `\s*\n\s*`
	}
	return regexp.MustCompile(pattern + `$`).MatchString(out)
}

// patternOf returns the pattern for a word of the page. A number matches any number, the unit of a duration below one hour every such
// unit, and "…" any text.
func patternOf(word string) string {
	switch {
	case people.MatchString(word):
		return regexp.QuoteMeta(word)
	case seconds.MatchString(word):
		return seconds.ReplaceAllLiteralString(word, `(?:ms|s|min(?: \d+ s)?)`)
	}
	return strings.ReplaceAll(number.ReplaceAllString(regexp.QuoteMeta(word), `\d+`), "…", `\S*`)
}

// seesTheWaitInTemporal checks the data that Temporal's UI shows for Ben.
func (r *reader) seesTheWaitInTemporal(t *testing.T) {
	c := testenv.Temporal(t)
	require.Eventually(t, func() bool {
		described, err := c.DescribeWorkflowExecution(t.Context(), r.own("book-ben"), "")
		if err != nil || len(described.GetPendingActivities()) != 1 {
			return false
		}
		pending := described.GetPendingActivities()[0]
		return pending.GetActivityType().GetName() == "lockstep.Wait" && strings.Contains(pending.GetLastFailure().GetMessage(), r.own("book-ann"))
	}, within, 100*time.Millisecond)
}

// seesThePage opens the address that lockstep ui has printed, and checks that the pages show the holder.
func (r *reader) seesThePage(t *testing.T) {
	address := regexp.MustCompile(`(?m)^http://\S+$`)
	require.Eventually(t, func() bool { return address.MatchString(r.out.String()) }, within, 10*time.Millisecond, r.out)
	for _, path := range []string{"", "why?workflow=" + r.own("book-ben")} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address.FindString(r.out.String())+path, http.NoBody)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		page, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		require.Contains(t, string(page), "seat/12A")
		require.Contains(t, string(page), r.own("book-ann"))
	}
}
