package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// goTool returns a program built from a Go module, building it if the cache has none.
func (s *Stack) goTool(ctx context.Context, pkg, version string) (string, error) {
	name := path.Base(pkg)
	target := filepath.Join(s.cfg.CacheDir, "bin", name+"-"+version)
	err := s.cached(ctx, target, func(ctx context.Context, tmp string, t *task) error {
		goCommand, err := exec.LookPath("go")
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		err = step{
			// It is not debugged, and the linker is done sooner without.
			argv: []string{goCommand, "install", "-v", "-ldflags=-s -w", pkg + "@" + version},
			dir:  tmp,
			// Without cgo no C compiler is needed, and the program runs anywhere. What the caller builds for, and how,
			// must not leak into it.
			env:  []string{"GOBIN=" + tmp, "CGO_ENABLED=0", "GOOS", "GOARCH", "GOFLAGS", "GOWORK=off"},
			log:  filepath.Join(s.cfg.Dir, "logs", "build-"+name+".log"),
			task: t,
		}.run(ctx)
		if err != nil {
			return err
		}
		return os.Rename(filepath.Join(tmp, name), target)
	})
	return target, err
}
