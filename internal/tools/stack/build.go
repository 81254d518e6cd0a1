package stack

import (
	"context"
	_ "embed"
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

// meanwhile is printed before the first build of a run.
//
//go:embed meanwhile.txt
var meanwhile string

// cached builds target, unless it exists. build works in the folder tmp and renames the result to target as its last action. A
// failed or interrupted attempt leaves nothing.
func (s *Stack) cached(ctx context.Context, target string, build func(ctx context.Context, tmp string) error) error {
	if exists(target) {
		return nil
	}
	name := filepath.Base(target)
	unlock, err := lockFile(ctx, target+".lock", func() { s.log.Printf("%s: waiting for another run that builds it", name) })
	if err != nil {
		return err
	}
	defer unlock()
	if exists(target) {
		return nil
	}
	s.explain.Do(func() { s.log.Print(meanwhile) })
	return s.task("build "+name, func() error {
		for attempt := 1; ; attempt++ {
			// The folder may be left over from a run that was killed.
			tmp := target + ".partial"
			err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755))
			if err == nil {
				err = errors.Join(build(ctx, tmp), os.RemoveAll(tmp))
			}
			if err == nil || ctx.Err() != nil || attempt == buildAttempts {
				return err
			}
			pause := time.Duration(attempt) * 3 * time.Second
			s.log.Printf("build %s failed (%s); attempt %d of %d follows in %s", name, firstLine(err), attempt+1, buildAttempts, pause)
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-time.After(pause):
			}
		}
	})
}

// repeatEvery is the time between two lines about a task that runs. Minutes without output look like a hang.
const repeatEvery = 15 * time.Second

// task calls f. It prints the name of the task before, the elapsed time while f runs, and the result.
func (s *Stack) task(name string, f func() error) error {
	s.log.Printf("%s ...", name)
	began := time.Now()
	elapsed := func() time.Duration { return time.Since(began).Round(10 * time.Millisecond) }
	done := make(chan error, 1)
	go func() { done <- f() }()
	tick := time.NewTicker(repeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.log.Printf("  %s: %s", name, elapsed().Round(time.Second))
		case err := <-done:
			outcome := "done"
			if err != nil {
				outcome = "failed"
			}
			s.log.Printf("%s: %s after %s", name, outcome, elapsed())
			return err
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
			log: s.logFile("build-" + name),
		}.run(ctx)
		if err != nil {
			return err
		}
		return os.Rename(filepath.Join(tmp, name), target)
	})
	return target, err
}

// step is a program that must end before the work continues. If the context ends, the program and its children get SIGTERM, and
// are killed 5 s later at most.
type step struct {
	argv []string
	dir  string
	// env is added to the environment of this process.
	env []string
	// log is the file to which the program's output is appended.
	log string
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
	cmd.Cancel = func() error { return signalGroup(cmd.Process, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
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
