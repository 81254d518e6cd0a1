package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/child"
)

// process is one worker process.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer     // closing it asks the process to stop
	done  chan struct{} // closed when it has ended
	asked atomic.Bool   // it was asked to stop
	name  string
	log   string
}

// pool has the worker processes of a run.
type pool struct {
	run     *run
	started int
	running []*process
	died    chan *process // processes that ended by themselves
}

// watch fails the run when a worker ends by itself, which would not be noticed if the others continue.
func (p *pool) watch(ctx context.Context, fail context.CancelCauseFunc) {
	select {
	case proc := <-p.died:
		fail(fmt.Errorf("%s ended by itself: see %s", proc.name, proc.log))
	case <-ctx.Done():
	}
}

// start starts one more worker process, and returns when it polls.
func (p *pool) start(ctx context.Context) error {
	p.started++
	name := fmt.Sprintf("worker-%d", p.started)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	proc := &process{name: name, log: filepath.Join(p.run.dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(proc.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()          // the child has its own copy
	proc.cmd = exec.Command(exe, "demo-worker", //nolint:gosec,noctx // ourselves; it outlives ctx to finish its steps
		"--database", p.run.db.Name(), "--task-queue", p.run.id, "--seed", strconv.FormatInt(p.run.cfg.Seed, 10),
		"--traces", filepath.Join(p.run.dir, name+".json"))
	proc.cmd.Stderr = log
	proc.cmd.SysProcAttr = child.Attributes()
	proc.cmd.WaitDelay = time.Second
	if proc.stdin, err = proc.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := proc.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := proc.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.running = append(p.running, proc)
	polls := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n') // without a line it has ended
		polls <- line == ready+"\n"
		_ = proc.cmd.Wait() // the log has the reason
		close(proc.done)
		if !proc.asked.Load() {
			p.died <- proc
		}
	}()
	select {
	case ok := <-polls:
		if !ok {
			return fmt.Errorf("%s did not start: see %s", name, proc.log)
		}
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s did not start within 30 s: see %s", name, proc.log)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the first worker as a crash would, and starts another in its place.
func (p *pool) kill(ctx context.Context) (name string, err error) {
	victim := p.running[0]
	p.running = p.running[1:]
	victim.asked.Store(true)
	if err := victim.cmd.Process.Kill(); err != nil {
		return victim.name, err
	}
	<-victim.done
	return victim.name, p.start(ctx)
}

// stop asks all to stop, and kills those that do not.
func (p *pool) stop() {
	for _, proc := range p.running {
		proc.asked.Store(true)
		_ = proc.stdin.Close() // if it has ended already there is nothing to ask
	}
	patience := time.After(8 * time.Second)
	for _, proc := range p.running {
		select {
		case <-proc.done:
		case <-patience:
			_ = proc.cmd.Process.Kill() // it may have ended just now
			<-proc.done
		}
	}
	p.running = nil
}
