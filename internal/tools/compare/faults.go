package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

const (
	// faultTTL is the TTL in the faults, and patience the time in which the next client must get the lock.
	faultTTL = 5 * time.Second
	patience = 3 * faultTTL
	// told is the time in which a holder that continues may be told of its loss.
	toldWithin = 3 * time.Second
	// childCommand runs a holder. Its arguments are the name of a system, and an env as JSON.
	childCommand = "holder"
)

// faultResult has the observations of the two faults.
type faultResult struct {
	// killed and stopped are the times until the next client has the lock, negative if it is longer than patience.
	killed, stopped time.Duration
	late            late
}

// late is the report of a holder that was stopped.
type late struct {
	// Write is the error of its write, or empty.
	Write string
	// Told is the time until it learned of its loss, in milliseconds, or negative.
	Told float64
	// Check is the answer when it asked, or empty if it still holds the lock.
	Check string
	// CanCheck is set if it can ask.
	CanCheck bool
}

// tryFaults runs both faults with children of their own.
func tryFaults(ctx context.Context, sys system, srv *servers) (r faultResult, err error) {
	e := srv.counted()
	e.TTL, e.Mutexes = faultTTL, srv.Database+"/faults/"+sys.name
	e.Queue = e.Mutexes
	next, err := sys.open(ctx, e)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, next.close(context.WithoutCancel(ctx))) }()
	if r.killed, err = tryFault(ctx, sys, e, next, "killed", func(c *harness.Process) error { c.Kill(); return nil }, nil); err != nil {
		return r, err
	}
	stop := func(c *harness.Process) error { _, err := c.Suspend(); return err }
	r.stopped, err = tryFault(ctx, sys, e, next, "stopped", stop, func(c *harness.Process) error { return resume(ctx, c, &r.late) })
	return r, err
}

// tryFault lets a child hold the lock, and next wait for it. It returns the time from the fault to next's grant, after which next has
// written too. afterwards, which may be nil, runs while next still holds the lock.
func tryFault(ctx context.Context, sys system, e env, next instance, fault string, act, afterwards func(*harness.Process) error) (took time.Duration, err error) {
	resource := "fault/" + fault
	of := e
	of.Queue = e.Queue + "/" + fault // no other worker may continue the child's workflow
	c, err := startChild(ctx, sys, of, resource)
	if err != nil {
		return 0, err
	}
	defer c.Kill()
	waiting, cancel := context.WithTimeout(ctx, patience+10*time.Second)
	defer cancel()
	grants := make(chan grant, 1)
	go func() {
		h, err := next.acquire(waiting, 1, resource)
		grants <- grant{held: h, at: time.Now(), err: err}
	}()
	if err := measure.Pause(ctx, time.Second); err != nil { // next has begun to wait
		return 0, err
	}
	start := time.Now()
	if err := act(c); err != nil {
		return 0, err
	}
	took = -1
	var got *grant
	select {
	case g := <-grants:
		if g.err != nil {
			return 0, g.err
		}
		got, took = &g, g.at.Sub(start)
		if g.held.write != nil {
			if err := g.held.write(ctx); err != nil {
				return 0, fmt.Errorf("the next holder writes: %w", err)
			}
		}
	case <-time.After(patience):
	}
	if afterwards != nil {
		err = afterwards(c)
	}
	if got == nil { // it never got the lock, or gets it now
		cancel()
		if g := <-grants; g.err == nil {
			got = &g
		}
	}
	if got != nil {
		err = errors.Join(err, got.held.release(ctx))
	}
	return took, err
}

// startChild returns when the child holds the lock.
func startChild(ctx context.Context, sys system, e env, resource string) (*harness.Process, error) {
	config, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return harness.Start(ctx, harness.Command{
		Name: fmt.Sprintf("%s: the child process for %s", sys.name, resource), Args: []string{childCommand, sys.name, resource, string(config)},
	})
}

// resume continues a stopped child and reads its report.
func resume(ctx context.Context, c *harness.Process, to *late) error {
	if err := errors.Join(c.Say("write"), c.Resume()); err != nil {
		return err
	}
	report, err := c.Line(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(report), to)
}

// runChild is the child: it holds the lock until its standard input has a line, and then reports.
func runChild(ctx context.Context, name, resource, config string) error {
	e := env{sent: new(atomic.Int64)}
	if err := json.Unmarshal([]byte(config), &e); err != nil {
		return err
	}
	sys, ok := systemNamed(name)
	if !ok {
		return fmt.Errorf("there is no system %q", name)
	}
	instance, err := sys.open(ctx, e)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := instance.acquire(limited, 0, resource)
	if err != nil {
		return err
	}
	fmt.Println(harness.Ready)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	start, report := time.Now(), late{Told: -1, CanCheck: h.check != nil}
	write := h.write
	if write == nil {
		write = h.release
	}
	if err := write(ctx); err != nil {
		report.Write = firstLine(err)
	}
	select {
	case <-h.lost: // never, if it is nil
		report.Told = float64(time.Since(start).Milliseconds())
	case <-time.After(toldWithin):
	}
	if h.check != nil {
		if err := h.check(ctx); err != nil {
			report.Check = firstLine(err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
