package stack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// cached makes target unless it is there. make works in a folder of its own beside it and renames the result to target
// as the last thing, so that what is half made is never taken for whole. It is tried again when it fails, and nothing
// of a failed or interrupted attempt stays.
func (s *Stack) cached(ctx context.Context, target string, make func(ctx context.Context, tmp string, t *task) error) error {
	if exists(target) {
		return nil
	}
	name := filepath.Base(target)
	// The cache is shared by all stacks of this user.
	unlock, err := lockFile(ctx, target+".lock", func() { s.progress.Say("%s: another run is making it; waiting", name) })
	if err != nil {
		return err
	}
	defer unlock()
	if exists(target) {
		return nil
	}
	tmp := target + ".partial"
	task := s.progress.start("make " + name)
	err = s.retry(ctx, "make "+name, func() (err error) {
		// A run that was killed could not clean up. The lock says that no process works there now.
		if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
		return make(ctx, tmp, task)
	})
	task.end(err)
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
