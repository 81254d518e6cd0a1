package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// pool contains the child processes of a run.
type pool struct {
	exe string
	log *Log
	// child returns the configuration of a slot's next process.
	child func(slot int) Child

	mu   sync.Mutex
	slot [slots]*process
	born int
}

// process is a child process.
type process struct {
	name   string
	slot   int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	// busy is locked while a fault of the process is under way.
	busy sync.Mutex
}

// startBound bounds the time in which a new process becomes ready. It includes a restart of Temporal: a worker that starts while
// the server is down ends with an error.
const startBound = time.Minute

// start starts a process in a slot, and returns when it is ready. Like a supervisor, it starts another one if that ends.
func (p *pool) start(ctx context.Context, slot int) error {
	for began := time.Now(); ; {
		proc, err := p.launch(slot)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.slot[slot] = proc
			return nil
		}
		if time.Since(began) > startBound || !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// launch starts a process and waits until it is ready.
func (p *pool) launch(slot int) (*process, error) {
	c := p.child(slot)
	p.mu.Lock()
	p.born++
	c.Name, c.Seed = fmt.Sprintf("s%d-%d", slot, p.born), c.Seed<<16+uint64(p.born) //nolint:gosec // small
	p.mu.Unlock()
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	role := clientCommand
	if slot >= clients {
		role = workerCommand
	}
	output, err := os.Create(filepath.Join(c.Dir, c.Name+".output"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()                                                      // the child has its own copy
	proc := &process{name: c.Name, slot: slot, cmd: exec.Command(p.exe, role, string(config))} //nolint:gosec,noctx // ourselves; it is ended by stop
	proc.cmd.Stderr = output
	if proc.stdin, err = proc.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := proc.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	proc.stdout = bufio.NewReader(stdout)
	if err := proc.cmd.Start(); err != nil {
		return nil, err
	}
	if line, _ := proc.stdout.ReadString('\n'); line != ready+"\n" {
		p.kill(proc)
		return nil, fmt.Errorf("process %s did not start: see %s", proc.name, output.Name())
	}
	return proc, nil
}

// startAll starts a process in each slot.
func (p *pool) startAll(ctx context.Context) error {
	for slot := range slots {
		if err := p.start(ctx, slot); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) at(slot int) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slot[slot]
}

// kill kills a process. It returns what was seen, or nothing.
func (p *pool) kill(proc *process) string {
	_ = proc.cmd.Process.Kill() // it may have ended, which the state shows
	_ = proc.cmd.Wait()
	p.log.WriteAbout(proc.name, proc.slot, &Record{What: Dead})
	status, ok := proc.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return ""
	}
	return fmt.Sprintf("%s (pid %d) ended by SIGKILL", proc.name, proc.cmd.Process.Pid)
}

// suspend stops a process. It returns what was seen, or nothing.
func suspend(proc *process) (seen string, err error) {
	if err := proc.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", proc.cmd.Process.Pid))
		if err != nil {
			return "", err
		}
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; len(after) > 1 && after[1] == 'T' {
			return fmt.Sprintf("%s (pid %d) was in state T", proc.name, proc.cmd.Process.Pid), nil
		}
		time.Sleep(time.Millisecond) // Linux has no event for it that a reader of /proc could wait for
	}
	return "", nil
}

func resume(proc *process) error { return proc.cmd.Process.Signal(syscall.SIGCONT) }

// setWall makes the wall clock of a client wrong. It returns what the client saw.
func (p *process) setWall(d time.Duration) (seen string, err error) {
	if _, err := fmt.Fprintln(p.stdin, int64(d)); err != nil {
		return "", err
	}
	line, err := p.stdout.ReadString('\n')
	jump, parseErr := time.ParseDuration(string(bytes.TrimSpace([]byte(line))))
	if err := errors.Join(err, parseErr); err != nil {
		return "", err
	}
	if jump.Abs() < time.Second {
		return "", nil
	}
	return fmt.Sprintf("%s saw its wall clock jump by %v", p.name, jump), nil
}

// quit lets a process end by itself, and kills it if it does not.
func (p *pool) quit(proc *process, within time.Duration) {
	_ = proc.stdin.Close() // it may have ended
	t := time.AfterFunc(within, func() { _ = proc.cmd.Process.Kill() })
	_ = proc.cmd.Wait() // whichever way it ended
	t.Stop()
	p.log.WriteAbout(proc.name, proc.slot, &Record{What: Dead})
}

// stop ends the processes in some slots: in every second one by itself, and in the others by a kill, in the middle of whatever it does.
func (p *pool) stop(from, to int) {
	var wg sync.WaitGroup
	for slot := from; slot < to; slot++ {
		proc := p.at(slot)
		if proc == nil {
			continue
		}
		p.slot[slot] = nil
		wg.Go(func() {
			if slot%2 == 0 {
				p.quit(proc, 2*opTimeout)
				return
			}
			p.kill(proc)
		})
	}
	wg.Wait()
}
