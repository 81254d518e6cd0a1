package stack

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStepThatFailsShowsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := step{argv: []string{"sh", "-c", "echo it is broken; exit 2"}, dir: dir, log: dir + "/log"}.run(t.Context())
	require.ErrorContains(t, err, "exit status 2")
	require.ErrorContains(t, err, "it is broken")
	require.ErrorContains(t, err, dir+"/log")
}

func TestInterruptedStepEndsWithItsChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		// The shell and its child, which waits for a line that never comes, ignore the polite signal.
		script := `trap "" INT; mkfifo never; sh -c 'echo $$ > tmp; mv tmp pid; read line < never' & wait`
		ended <- step{argv: []string{"sh", "-c", script}, dir: dir, log: dir + "/log", grace: 50 * time.Millisecond}.run(ctx)
	}()
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "pid")) }, 10*time.Second, 10*time.Millisecond,
		"the child writes its PID when it runs")
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	start, err := processStart(pid)
	require.NoError(t, err)

	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.True(t, gone(t.Context(), Part{PID: pid, Start: start}))
}

func TestEnvironmentChangesAndTakesAway(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"A=1", "D=4", "B=3"},
		environment([]string{"A=1", "B=2", "C=9", "D=4"}, []string{"B=3", "C"}))
}

func TestRetryIsBoundedAndStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	err := s.retry(ctx, "it", func() error {
		tries++
		cancel()
		return os.ErrDeadlineExceeded
	})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, 1, tries)
}

func TestTailIsShort(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/log"
	var content []byte
	for range 100 {
		content = append(content, "line\n"...)
	}
	require.NoError(t, os.WriteFile(path, append(content, "last\n"...), 0o644))
	require.Regexp(t, `^(    line\n){11}    last$`, tail(path))
	require.Contains(t, tail(path+".none"), "no such file")
}
