package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Ready is the line that a child process prints when it works, unless its Command names another.
const Ready = "ready"

// ErrEnded is the error of a call that needs a process which has ended.
var ErrEnded = errors.New("the process has ended")

// Command describes a child process.
type Command struct {
	// Name names the process in errors.
	Name string
	// Program defaults to this program. Env is added to the environment.
	Program   string
	Args, Env []string
	// Stderr gets its standard error. Defaults to the file Output or, without one, to os.Stderr.
	Stderr io.Writer
	Output string
	// Within bounds the time until it prints Ready. Defaults to two minutes. With Silent, Start does not wait for Ready.
	Within time.Duration
	Silent bool
	// Change, unless nil, changes what is executed.
	Change func(*exec.Cmd)
	// Ended, unless nil, is called when the process has ended, before calls that wait for that return.
	Ended func(*Process)
}

// Process is a child process. Its methods are safe for concurrent use.
type Process struct {
	Name string
	// Output is the file with its standard error; empty if there is none.
	Output string

	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // what it prints; closed at the end of that
	ended chan struct{}
	asked atomic.Bool // this program has made it end
	ready atomic.Bool
}

// keptLines is the number of lines that are kept until Line returns them. Later ones are dropped, so that a child is never stuck.
const keptLines = 16

// Start starts a child process and returns when it is ready. A child that does not become ready is ended.
func Start(ctx context.Context, c Command) (*Process, error) {
	p := &Process{Name: c.Name, Output: c.Output, lines: make(chan string, keptLines), ended: make(chan struct{})}
	stdout, err := p.launch(c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	first := make(chan bool, 1)
	go p.watch(stdout, c, first)
	if c.Silent {
		return p, nil
	}
	within := cmp.Or(c.Within, 2*time.Minute)
	late := time.NewTimer(within)
	defer late.Stop()
	err = fmt.Errorf("%s did not start%s", p.Name, p.see())
	select {
	case ready := <-first:
		if ready {
			return p, nil
		}
	case <-late.C:
		err = fmt.Errorf("%s did not start within %s%s", p.Name, within, p.see())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.Kill()
	return nil, err
}

// launch executes a command and returns its standard output.
func (p *Process) launch(c Command) (stdout io.Reader, err error) {
	program := c.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p.cmd = exec.Command(program, c.Args...) //nolint:gosec,noctx // a build of ours or a server; it may outlive ctx to end in order
	p.cmd.Env = append(p.cmd.Environ(), c.Env...)
	p.cmd.SysProcAttr, p.cmd.WaitDelay = attributes(), time.Second
	switch {
	case c.Stderr != nil:
		p.cmd.Stderr = c.Stderr
	case c.Output == "":
		p.cmd.Stderr = os.Stderr
	default:
		file, err := os.Create(c.Output)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // the child has its own copy
		p.cmd.Stderr = file
	}
	if c.Change != nil {
		c.Change(p.cmd)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout = strings.NewReader("")
	if p.cmd.Stdout == nil { // Change may have set it
		if stdout, err = p.cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	return stdout, p.cmd.Start()
}

func (p *Process) see() string {
	if p.Output == "" {
		return ""
	}
	return ": see " + p.Output
}

// watch reads what the child prints, and waits for its end.
func (p *Process) watch(stdout io.Reader, c Command, first chan<- bool) {
	in := bufio.NewScanner(stdout)
	if !c.Silent {
		p.ready.Store(in.Scan() && in.Text() == Ready)
		first <- p.ready.Load()
	}
	for in.Scan() {
		select {
		case p.lines <- in.Text():
		default:
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // after a line that is too long
	close(p.lines)
	_ = p.cmd.Wait() // its state has the details
	if c.Ended != nil {
		c.Ended(p)
	}
	close(p.ended)
}

// Say writes a line to the standard input of the process.
func (p *Process) Say(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return p.explain(err)
}

// Line returns the next line that the process prints.
func (p *Process) Line(ctx context.Context) (string, error) {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", p.explain(os.ErrProcessDone)
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// explain returns an error that wraps ErrEnded for an error whose reason is that the process has ended.
func (p *Process) explain(err error) error {
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%s: %w%s", p.Name, ErrEnded, p.see())
	}
	return err
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// State returns the exit status of a process that has ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Crashed reports whether the process has become ready, and ended although this program did not make it end.
func (p *Process) Crashed() bool { return p.ready.Load() && !p.asked.Load() }

// WasReady reports whether the process has become ready.
func (p *Process) WasReady() bool { return p.ready.Load() }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.explain(p.cmd.Process.Signal(s)) }

// Kill ends the process as a crash would, and waits for its end. It reports whether the signal has ended it.
func (p *Process) Kill() bool {
	select {
	case <-p.ended: // by itself
		return false
	default:
	}
	p.asked.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended, which its state shows
	<-p.ended
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Quit asks the process to end by closing its standard input, and waits for its end. It kills a process that does not end within
// a time. The error is that of its exit status.
func (p *Process) Quit(within time.Duration) error {
	p.asked.Store(true)
	_ = p.stdin.Close() // it may have ended
	kill := time.AfterFunc(within, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if !p.State().Success() {
		return fmt.Errorf("%s: %s%s", p.Name, p.State(), p.see())
	}
	return nil
}

// Suspend stops the process without its knowledge, until Resume. On Linux it reports whether the process was seen to be stopped.
func (p *Process) Suspend() (seen bool, err error) {
	if err := p.Signal(sigStop); err != nil {
		return false, err
	}
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if err != nil {
			return false, nil //nolint:nilerr // it was killed just now, or this is not Linux
		}
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; len(after) > 1 && after[1] == 'T' {
			return true, nil
		}
		time.Sleep(time.Millisecond) // Linux has no event for it that a reader of /proc could wait for
	}
	return false, nil
}

// Resume continues a suspended process.
func (p *Process) Resume() error { return p.Signal(sigContinue) }
