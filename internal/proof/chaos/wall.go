package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

// buildClient builds this program again for its child processes, with another time.Now: its wall clock can be set, and its
// monotonic clock runs on. Go programs read the clock without libc, so nothing outside of the program can do that. Everything
// in the client sees the wrong clock: the lock library, the driver, and the program itself.
//
// All packages are compiled again, which takes a minute or two the first time. Go's build cache keeps them, because the
// changed file is always at the same place.
func buildClient(ctx context.Context, work string) (exe string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "lockstep", "chaos")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original) //nolint:gosec // Go's own source
	if err != nil {
		return "", err
	}
	changed, err := withWall(string(text))
	if err != nil {
		return "", err
	}
	overlay, err := mutate.WriteOverlay(dir, map[string]string{original: changed})
	if err != nil {
		return "", err
	}
	exe = filepath.Join(work, "chaos-client")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-tags", "wall", "-o", exe, //nolint:gosec // our own arguments
		"github.com/temporal-lockstep/lockstep/internal/proof/chaos")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the client (run the program in the repository): %w: %s", err, out)
	}
	return exe, nil
}

// withWall returns Go's time.go with an error of the wall clock that SetWallError sets.
func withWall(text string) (string, error) {
	const read, imports = "\tsec, nsec, mono := runtimeNow()\n", "\t\"errors\"\n"
	if strings.Count(text, read) != 1 || strings.Count(text, imports) != 1 {
		return "", fmt.Errorf("time.Now of this version of Go is unknown: adapt withWall")
	}
	text = strings.Replace(text, read, read+"\tsec += wallError.Load()\n", 1)
	text = strings.Replace(text, imports, imports+"\t\"sync/atomic\"\n", 1)
	return text + `
var wallError atomic.Int64

// SetWallError adds seconds to the wall clock of this process.
func SetWallError(seconds int64) { wallError.Store(seconds) }
`, nil
}
