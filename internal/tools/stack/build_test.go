package stack

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCached_ConcurrentCalls_BuildOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	target := filepath.Join(s.cfg.CacheDir, "thing")
	var built atomic.Int32
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() {
			errs[i] = s.cached(t.Context(), target, func(_ context.Context, tmp string) error {
				built.Add(1)
				return errors.Join(os.WriteFile(tmp+"/thing", nil, 0o644), os.Rename(tmp+"/thing", target))
			})
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 1, built.Load())
	require.FileExists(t, target)
}

func TestCached_FirstBuild_GivesSomethingToRead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var printed bytes.Buffer
	s.log = log.New(&printed, "", 0)
	for _, name := range []string{"a", "b", "b"} {
		target := filepath.Join(s.cfg.CacheDir, name)
		require.NoError(t, s.cached(t.Context(), target, func(context.Context, string) error { return os.WriteFile(target, nil, 0o644) }))
	}
	require.Equal(t, 1, strings.Count(printed.String(), "make demo"+"` shows"), printed.String())
	require.Less(t, strings.Index(printed.String(), "make demo"), strings.Index(printed.String(), "build a ..."))
}

func TestCached_Interrupted_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	target := filepath.Join(s.cfg.CacheDir, "thing")
	require.NoError(t, os.MkdirAll(target+".partial/old", 0o755), "left by a run that was killed")
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	err := s.cached(ctx, target, func(ctx context.Context, tmp string) error {
		attempts++
		require.NoDirExists(t, tmp+"/old")
		require.NoError(t, os.WriteFile(tmp+"/half", nil, 0o644))
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, attempts)
	require.NoFileExists(t, target)
	require.NoDirExists(t, target+".partial")
}

func TestStep_Fails_ErrorQuotesLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := step{argv: []string{"sh", "-c", "echo it is broken; exit 2"}, dir: dir, log: dir + "/log"}.run(t.Context())
	require.ErrorContains(t, err, "exit status 2")
	require.ErrorContains(t, err, "it is broken")
	require.ErrorContains(t, err, dir+"/log")
}

func TestStep_Interrupted_EndsWithItsChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		// The child ignores SIGTERM. It waits for a line that is never written.
		script := `mkfifo never; sh -c 'trap "" TERM; echo $$ > tmp; mv tmp pid; read line < never' & wait`
		ended <- step{argv: []string{"sh", "-c", script}, dir: dir, log: dir + "/log"}.run(ctx)
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
