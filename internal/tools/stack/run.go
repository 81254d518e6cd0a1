package stack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// downloadAttempts bounds how often a step that downloads is tried.
	downloadAttempts = 3
	tailLines        = 12
)

// step is a program that ends before this one does.
type step struct {
	argv []string
	dir  string
	env  []string // added to ours; an entry without a value takes the variable away
	// log gets what the program prints, after what is in it already.
	log string
	// signal asks for the end when the work is interrupted. Defaults to SIGINT.
	signal syscall.Signal
	// grace is how long the program may take to clean up then. Defaults to 5 s.
	grace time.Duration
	task  *task // may be nil
}

// run returns an error that shows the end of the log.
func (s step) run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.log), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "$ %s\n", strings.Join(s.argv, " "))
	lines := &lastLine{task: s.task}
	err = s.exec(ctx, io.MultiWriter(out, lines))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; the end of %s:\n%s", strings.Join(s.argv, " "), err, s.log, tail(s.log))
	}
	return nil
}

func (s step) exec(ctx context.Context, out io.Writer) error {
	// The kernel ends the child with the thread that started it, so this thread must last as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, environment(os.Environ(), s.env), out, out
	bind(cmd)
	sig := cmp.Or(s.signal, syscall.SIGINT)
	cmd.Cancel = func() error { return signalGroup(cmd.Process, sig) }
	cmd.WaitDelay = cmp.Or(s.grace, 5*time.Second)
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = signalGroup(cmd.Process, syscall.SIGKILL) // children that outlived the interrupted program
	}
	return err
}

// environment applies changes such as "A=b" and, to take A away, "A".
func environment(base, changes []string) []string {
	var env []string
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		changed := false
		for _, c := range changes {
			other, _, _ := strings.Cut(c, "=")
			changed = changed || other == name
		}
		if !changed {
			env = append(env, entry)
		}
	}
	for _, c := range changes {
		if strings.Contains(c, "=") {
			env = append(env, c)
		}
	}
	return env
}

// retry runs what may fail for a passing reason, with a growing pause in between.
func (s *Stack) retry(ctx context.Context, what string, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || ctx.Err() != nil || attempt == downloadAttempts {
			return err
		}
		pause := time.Duration(attempt) * 3 * time.Second
		s.progress.Say("%s failed (%s); attempt %d of %d follows in %s", what, firstLine(err), attempt+1, downloadAttempts, pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		case <-timer.C:
		}
	}
}

// lastLine hands each whole line to a task.
type lastLine struct {
	task *task
	rest []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	if l.task == nil {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			l.task.note(text)
		}
		l.rest = rest
	}
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
