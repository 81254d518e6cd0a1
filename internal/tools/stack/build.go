package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// buildAttempts bounds the attempts of a build, because downloads fail now and then.
	buildAttempts = 3
	tailLines     = 12
)

// cached builds target, unless it exists. build works in the folder tmp and renames the result to target as its last action. A
// failed or interrupted attempt leaves nothing.
func (s *Stack) cached(ctx context.Context, target string, build func(ctx context.Context, tmp string) error) error {
	if exists(target) {
		return nil
	}
	name := filepath.Base(target)
	unlock, err := lockFile(ctx, target+".lock", func() { s.progress.Printf("%s: waiting for another run that builds it", name) })
	if err != nil {
		return err
	}
	defer unlock()
	if exists(target) {
		return nil
	}
	return s.progress.run("build "+name, func() error {
		return s.retry(ctx, "build "+name, func() error { return inTemporary(ctx, target+".partial", build) })
	})
}

// inTemporary runs a build in a new folder and removes the folder afterwards. The folder may be left over from a run that was killed.
func inTemporary(ctx context.Context, tmp string, build func(ctx context.Context, tmp string) error) error {
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
		return err
	}
	return errors.Join(build(ctx, tmp), os.RemoveAll(tmp))
}

func (s *Stack) retry(ctx context.Context, name string, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || ctx.Err() != nil || attempt == buildAttempts {
			return err
		}
		pause := time.Duration(attempt) * 3 * time.Second
		s.progress.Printf("%s failed (%s); attempt %d of %d follows in %s", name, firstLine(err), attempt+1, buildAttempts, pause)
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// goTool returns the path of a program, built from its Go module unless the cache has it.
func (s *Stack) goTool(ctx context.Context, pkg, version string) (string, error) {
	name := path.Base(pkg)
	target := filepath.Join(s.cfg.CacheDir, "bin", name+"-"+version)
	err := s.cached(ctx, target, func(ctx context.Context, tmp string) error {
		goCommand, err := exec.LookPath("go")
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		err = step{
			argv: []string{goCommand, "install", "-v", "-ldflags=-s -w", pkg + "@" + version},
			dir:  tmp,
			// Without cgo the build needs no C compiler. The caller's build settings must not apply.
			env: []string{"GOBIN=" + tmp, "CGO_ENABLED=0", "GOOS=", "GOARCH=", "GOFLAGS=", "GOWORK=off"},
			log: s.log("build-" + name),
		}.run(ctx)
		if err != nil {
			return err
		}
		return os.Rename(filepath.Join(tmp, name), target)
	})
	return target, err
}

// step is a program that must end before the work continues.
type step struct {
	argv []string
	dir  string
	// env is added to the environment of this process.
	env []string
	// log is the file to which the program's output is appended.
	log string
	// signal is sent to the program and its children if the context ends. Defaults to SIGINT.
	signal syscall.Signal
	// grace is the time after which they are killed. Defaults to 5 s.
	grace time.Duration
}

// run runs the program. Its error quotes the end of the log.
func (s step) run(ctx context.Context) error {
	out, err := createLog(s.log)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "$ %s\n", strings.Join(s.argv, " "))
	err = s.exec(ctx, out)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; the end of %s:\n%s", strings.Join(s.argv, " "), err, s.log, tail(s.log))
	}
	return nil
}

func (s step) exec(ctx context.Context, out *os.File) error {
	// The kernel kills the child when the thread that started it ends, so the thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, append(os.Environ(), s.env...), out, out
	bind(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd.Process, cmp.Or(s.signal, syscall.SIGINT)) }
	cmd.WaitDelay = cmp.Or(s.grace, 5*time.Second)
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = signalGroup(cmd.Process, syscall.SIGKILL) // children may have outlived the program
	}
	return err
}

func createLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// tail returns the last lines of a log, indented, for an error message.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "    (" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "    " + strings.Join(lines, "\n    ")
}
