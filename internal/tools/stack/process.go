package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopWithin bounds a polite end. PostgreSQL's is the longest: it writes a checkpoint.
const stopWithin = 20 * time.Second

// alive reports whether the process that was recorded still runs; another one with its PID does not count.
func alive(p Part) bool {
	start, err := processStart(p.PID)
	return err == nil && start == p.Start
}

// launch starts a service that outlives this program. The channel is closed when it has ended.
func launch(argv []string, dir, log string) (pid int, start string, ended <-chan struct{}, err error) {
	// One older log is kept: a service that died is best explained by the log that the restart would hide.
	if err := os.Rename(log, log+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return 0, "", nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
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
	// Before it is waited for, even a process that has ended keeps its PID.
	start, err = processStart(cmd.Process.Pid)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log tells more than the status does
		close(done)
	}()
	if err != nil {
		// It has ended already, or else cannot be told from others and must not stay. Its log will say more than err.
		_ = cmd.Process.Kill()
		<-done
		start = ""
	}
	return cmd.Process.Pid, start, done, nil
}

// terminate ends the process that was recorded, first politely, then by force.
func terminate(ctx context.Context, p Part) error {
	// FindProcess holds on to the process where the system can do that, so nothing can take over the PID between the
	// look at the start time and the signal.
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer process.Release()
	if !alive(p) {
		return nil
	}
	polite := syscall.SIGTERM
	if p.Interrupt {
		polite = syscall.SIGINT
	}
	for _, sig := range []syscall.Signal{polite, syscall.SIGKILL} {
		if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s (pid %d): %w", p.Name, p.PID, err)
		}
		_ = process.Signal(sigContinue) // one that is suspended hears nothing else
		if gone(ctx, p) {
			return nil
		}
	}
	return fmt.Errorf("%s (pid %d) did not end", p.Name, p.PID)
}

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
