package page

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// WriteFile writes a page to a file, in the place of what was there: whole, or not at all.
func WriteFile(path string, r *contention.Report, o Options) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		var of *os.PathError
		if errors.As(err, &of) {
			of.Path = path // the other name means nothing to a reader
		}
		return err
	}
	err = errors.Join(Write(f, r, o), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// JaegerTraces is the TraceURL of a Jaeger whose UI is at an address; empty without one.
func JaegerTraces(ui string) string {
	if ui == "" {
		return ""
	}
	return strings.TrimRight(ui, "/") + "/trace/{trace}?uiFind={span}"
}
