package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopWithin bounds the time that a process may take to end. PostgreSQL takes longest: it writes a checkpoint.
const stopWithin = 20 * time.Second

// alive reports whether the recorded process runs. A later process with the same PID does not count.
func alive(p Part) bool {
	start, err := processStart(p.PID)
	return err == nil && start == p.Start
}

// launch starts a service that outlives this program. ended is closed when the service ends.
func launch(argv []string, dir, log string) (pid int, start string, ended <-chan struct{}, err error) {
	// The previous log is kept, because it shows why the previous process died.
	if err := os.Rename(log, log+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, "", nil, err
	}
	out, err := createLog(log)
	if err != nil {
		return 0, "", nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return 0, "", nil, err
	}
	// Before Wait, even a process that has ended keeps its PID.
	start, err = processStart(cmd.Process.Pid)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log explains more than the status
		close(done)
	}()
	if err != nil {
		// The process has ended, or cannot be identified later. The caller reports the log.
		_ = cmd.Process.Kill()
		<-done
		start = ""
	}
	return cmd.Process.Pid, start, done, nil
}

// terminate asks the recorded process to end, and kills it if it does not.
func terminate(ctx context.Context, p Part) error {
	// Where the system supports it, FindProcess keeps a handle on the process, so its PID is not used again before the signal.
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer process.Release()
	if !alive(p) {
		return nil
	}
	// On SIGTERM, PostgreSQL would wait for its clients. The other servers end on SIGINT too.
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s (pid %d): %w", p.Name, p.PID, err)
		}
		_ = process.Signal(sigContinue) // a suspended process ignores other signals
		if gone(ctx, p) {
			return nil
		}
	}
	return fmt.Errorf("%s (pid %d) did not end", p.Name, p.PID)
}

// Kill kills the recorded processes of parts without notice, as a crash does, and waits until they have ended. Up starts them
// again, on the same ports. It refuses parts that run in a container, because their process is only the container's client.
func (s *Stack) Kill(ctx context.Context, names ...string) error {
	st, err := loadState(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		p, ok := st.part(name)
		if !ok || p.Container != "" || !alive(p) {
			return fmt.Errorf("%s is not a process of this stack that runs", name)
		}
		process, err := os.FindProcess(p.PID)
		if err != nil {
			return err
		}
		defer process.Release()
		if err := process.Kill(); err != nil {
			return fmt.Errorf("kill %s (pid %d): %w", name, p.PID, err)
		}
		if !gone(ctx, p) {
			return fmt.Errorf("%s (pid %d) did not end", name, p.PID)
		}
	}
	return nil
}

// Record returns the record of the stack, as the last Up or Down has left it.
func (s *Stack) Record() (State, error) { return loadState(s.cfg.Dir) }

// gone waits until the process has ended.
func gone(ctx context.Context, p Part) bool {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for alive(p) {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
