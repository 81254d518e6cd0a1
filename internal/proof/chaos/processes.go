package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// pool contains the child processes of a run.
type pool struct {
	*harness.Pool
	log *Log
	// gentle makes all processes end by themselves at the end.
	gentle bool
	names  []string // of all processes so far
}

// startBound bounds the time in which a new process becomes ready. It includes a restart of Temporal: a worker that starts while
// the server is down ends with an error.
const startBound = time.Minute

// newPool returns a pool of processes of the program exe. The function child returns the configuration of a slot's next process.
func newPool(exe string, log *Log, child func(slot int) Child) *pool {
	p := &pool{log: log}
	p.Pool = harness.NewPool(slots, func(slot, number int) harness.Command {
		c := child(slot)
		c.Name, c.Seed = fmt.Sprintf("s%d-%d", slot, number), c.Seed<<16+uint64(number) //nolint:gosec // it is small
		p.names = append(p.names, c.Name)
		config, err := json.Marshal(c)
		if err != nil {
			panic(err) // it has only numbers and strings
		}
		role := clientCommand
		if slot >= clients {
			role = workerCommand
		}
		return harness.Command{
			Name: c.Name, Program: exe, Args: []string{role, string(config)}, Output: filepath.Join(c.Dir, c.Name+".output"), Within: startBound,
			Ended: func(proc *harness.Process) { p.ended(slot, proc) },
		}
	})
	return p
}

// start starts a process in a slot, and returns when it is ready. Like a supervisor, it starts another one if that ends.
func (p *pool) start(ctx context.Context, slot int) error {
	for began := time.Now(); ; {
		err := p.Start(ctx, slot)
		if err == nil || time.Since(began) > startBound || !harness.Pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
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

// ended logs the end of a process. It also logs a crash if the process ended by itself or by a panic. A process that was asked to end
// may return an error, if the database does not answer, and so may one that is not ready.
func (p *pool) ended(slot int, proc *harness.Process) {
	if proc.State().ExitCode() == panicked || proc.Crashed() {
		p.log.Write(&Record{What: Crashed, Process: proc.Name, Slot: slot, Error: proc.State().String()})
	}
	if proc.WasReady() {
		p.log.Write(&Record{What: Dead, Process: proc.Name, Slot: slot})
	}
}

// panicked is the exit status of a Go program after a panic.
const panicked = 2

// probed returns the names of the resources that only one process asked for.
func (p *pool) probed() (names []string) {
	for _, name := range p.names {
		names = append(names, probedBy(name))
	}
	return names
}

// kill kills a process. It returns what was seen, or nothing.
func kill(proc *harness.Process) string {
	if !proc.Kill() {
		return "" // it has ended by itself, which is logged
	}
	return fmt.Sprintf("%s (pid %d) ended by SIGKILL", proc.Name, proc.PID())
}

// suspend stops a process. It returns what was seen, or nothing.
func suspend(proc *harness.Process) (string, error) {
	seen, err := proc.Suspend()
	if err != nil || !seen {
		return "", unlessEnded(err)
	}
	return fmt.Sprintf("%s (pid %d) was in state T", proc.Name, proc.PID()), nil
}

// unlessEnded returns nil for an error that means that a process has ended. It is logged as a crash, and the run continues.
func unlessEnded(err error) error {
	if errors.Is(err, harness.ErrEnded) {
		return nil
	}
	return err
}

// setClientWall makes the wall clock of a client wrong. It returns what the client saw.
func setClientWall(ctx context.Context, proc *harness.Process, d time.Duration) (seen string, err error) {
	line, err := "", proc.Say(strconv.FormatInt(int64(d), 10))
	if err == nil {
		line, err = proc.Line(ctx)
	}
	if err != nil {
		return "", unlessEnded(err)
	}
	jump, err := time.ParseDuration(line)
	if err != nil || jump.Abs() < time.Second {
		return "", err
	}
	return fmt.Sprintf("%s saw its wall clock jump by %v", proc.Name, jump), nil
}

// stop ends the processes in some slots: in every second one by itself, and in the others by a kill, in the middle of whatever it
// does, unless the pool is gentle.
func (p *pool) stop(from, to int) {
	p.Stop(from, to, func(slot int, proc *harness.Process) {
		if slot%2 == 0 || p.gentle {
			_ = proc.Quit(2 * opTimeout) // the log has its end
			return
		}
		proc.Kill()
	})
}
