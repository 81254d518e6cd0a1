package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCachedMakesOnceForAll(t *testing.T) {
	t.Parallel()
	s := setup(t)
	target := filepath.Join(s.cfg.CacheDir, "thing")
	var made atomic.Int32
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() {
			errs[i] = s.cached(t.Context(), target, func(_ context.Context, tmp string, _ *task) error {
				made.Add(1)
				return errors.Join(os.WriteFile(tmp+"/thing", nil, 0o644), os.Rename(tmp+"/thing", target))
			})
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 1, made.Load())
	require.FileExists(t, target)
}

func TestCachedLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	s := setup(t)
	target := filepath.Join(s.cfg.CacheDir, "thing")
	// A run that was killed has left this.
	require.NoError(t, os.MkdirAll(target+".partial/old", 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.cached(ctx, target, func(ctx context.Context, tmp string, _ *task) error {
		require.NoDirExists(t, tmp+"/old")
		require.NoError(t, os.WriteFile(tmp+"/half", nil, 0o644))
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, target)
	require.NoDirExists(t, target+".partial")
}

func TestLockIsWaitedForAndWaitingCanBeLeft(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	unlock, err := lockFile(t.Context(), path, func() { t.Error("nobody else has it") })
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = lockFile(ctx, path, cancel)
	require.ErrorIs(t, err, context.Canceled)

	second, err := lockFile(t.Context(), path, unlock)
	require.NoError(t, err)
	second()
}
