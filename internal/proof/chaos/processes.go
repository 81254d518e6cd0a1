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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/child"
)

// pool contains the child processes of a run.
type pool struct {
	exe string
	log *Log
	// child returns the configuration of a slot's next process.
	child func(slot int) Child

	// gentle makes all processes end by themselves at the end.
	gentle bool

	mu    sync.Mutex
	slot  [slots]*process
	names []string // of all processes so far
}

// process is a child process.
type process struct {
	name   string
	slot   int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	// ended is closed when it has ended, and asked is set before it is made to end.
	ended chan struct{}
	asked atomic.Bool
	// busy is locked while a fault of the process is under way.
	busy sync.Mutex
}

// startBound bounds the time in which a new process becomes ready. It includes a restart of Temporal: a worker that starts while
// the server is down ends with an error.
const startBound = time.Minute

// start starts a process in a slot, and returns when it is ready. Like a supervisor, it starts another one if that ends.
func (p *pool) start(ctx context.Context, slot int) error {
	for began := time.Now(); ; {
		proc, err := p.launch(ctx, slot)
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
func (p *pool) launch(ctx context.Context, slot int) (*process, error) {
	c := p.child(slot)
	p.mu.Lock()
	born := len(p.names) + 1
	c.Name, c.Seed = fmt.Sprintf("s%d-%d", slot, born), c.Seed<<16+uint64(born)
	p.names = append(p.names, c.Name)
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
	defer func() { _ = output.Close() }() // the child has its own copy
	proc := &process{name: c.Name, slot: slot, ended: make(chan struct{})}
	proc.cmd = exec.Command(p.exe, role, string(config)) //nolint:gosec,noctx // ourselves; it is ended by stop
	proc.cmd.Stderr, proc.cmd.SysProcAttr = output, child.Attributes()
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
	starting, stop := context.WithTimeout(ctx, startBound)
	defer stop()
	kill := context.AfterFunc(starting, func() { _ = proc.cmd.Process.Kill() })
	defer kill()
	if line, _ := proc.stdout.ReadString('\n'); line != ready+"\n" {
		_ = proc.cmd.Process.Kill()
		_ = proc.cmd.Wait()
		if state := proc.cmd.ProcessState; state.ExitCode() == panicked {
			p.log.WriteAbout(proc.name, slot, &Record{What: Crashed, Error: state.String()})
		}
		return nil, fmt.Errorf("process %s did not start: see %s", proc.name, output.Name())
	}
	go p.watch(proc)
	return proc, nil
}

// watch waits for the end of a process and logs it. It also logs a crash if the process ended by itself or by a panic. A process that
// was asked to end may return an error, if the database does not answer.
func (p *pool) watch(proc *process) {
	_ = proc.cmd.Wait() // the state says more
	state := proc.cmd.ProcessState
	if state.ExitCode() == panicked || !proc.asked.Load() {
		p.log.WriteAbout(proc.name, proc.slot, &Record{What: Crashed, Error: state.String()})
	}
	p.log.WriteAbout(proc.name, proc.slot, &Record{What: Dead})
	close(proc.ended)
}

// panicked is the exit status of a Go program after a panic.
const panicked = 2

// startAll starts a process in each slot.
func (p *pool) startAll(ctx context.Context) error {
	for slot := range slots {
		if err := p.start(ctx, slot); err != nil {
			return err
		}
	}
	return nil
}

// probed returns the names of the resources that only one process asked for.
func (p *pool) probed() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.names {
		names = append(names, probedBy(name))
	}
	return names
}

func (p *pool) at(slot int) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slot[slot]
}

// kill kills a process. It returns what was seen, or nothing.
func kill(proc *process) string {
	select {
	case <-proc.ended: // by itself, and watch has logged it
		return ""
	default:
	}
	proc.asked.Store(true)
	_ = proc.cmd.Process.Kill() // it may have ended, which the state shows
	<-proc.ended
	status, ok := proc.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return ""
	}
	return fmt.Sprintf("%s (pid %d) ended by SIGKILL", proc.name, proc.cmd.Process.Pid)
}

// suspend stops a process. It returns what was seen, or nothing.
func suspend(proc *process) (seen string, err error) {
	if err := proc.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", unlessGone(err)
	}
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", proc.cmd.Process.Pid))
		if err != nil {
			return "", unlessGone(err)
		}
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; len(after) > 1 && after[1] == 'T' {
			return fmt.Sprintf("%s (pid %d) was in state T", proc.name, proc.cmd.Process.Pid), nil
		}
		time.Sleep(time.Millisecond) // Linux has no event for it that a reader of /proc could wait for
	}
	return "", nil
}

func resume(proc *process) error { return unlessGone(proc.cmd.Process.Signal(syscall.SIGCONT)) }

// unlessGone returns nil for an error that means that a process has ended. It is logged as a crash, and the run continues.
func unlessGone(err error) error {
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// setWall makes the wall clock of a client wrong. It returns what the client saw.
func (p *process) setWall(d time.Duration) (seen string, err error) {
	if _, err := fmt.Fprintln(p.stdin, int64(d)); err != nil {
		return "", unlessGone(err)
	}
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return "", unlessGone(err)
	}
	jump, err := time.ParseDuration(strings.TrimSpace(line))
	if err != nil || jump.Abs() < time.Second {
		return "", err
	}
	return fmt.Sprintf("%s saw its wall clock jump by %v", p.name, jump), nil
}

// quit lets a process end by itself, and kills it if it does not.
func quit(proc *process, within time.Duration) {
	proc.asked.Store(true)
	_ = proc.stdin.Close() // it may have ended
	t := time.AfterFunc(within, func() { _ = proc.cmd.Process.Kill() })
	<-proc.ended
	t.Stop()
}

// stop ends the processes in some slots: in every second one by itself, and in the others by a kill, in the middle of whatever it
// does, unless the pool is gentle.
func (p *pool) stop(from, to int) {
	p.mu.Lock()
	procs := slices.Clone(p.slot[from:to])
	clear(p.slot[from:to])
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, proc := range procs {
		switch {
		case proc == nil:
		case proc.slot%2 == 0 || p.gentle:
			wg.Go(func() { quit(proc, 2*opTimeout) })
		default:
			wg.Go(func() { kill(proc) })
		}
	}
	wg.Wait()
}
