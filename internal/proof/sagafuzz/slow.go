package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

// SlowTime is a time during which the database is slow for worker processes, and in which all open workflows receive a signal.
type SlowTime struct {
	At, For time.Duration
	// Delay is added to each command. Process is the slot of the worker; -1 for all of them.
	Delay   time.Duration
	Process int
	// Requests delays the requests. Otherwise the answers are delayed.
	Requests bool
}

// slowTimes draws the times at which the database is slow.
func (p *planner) slowTimes() (all []SlowTime) {
	for at := p.span(500, 2000); len(all) < 3; at += p.span(4000, 8000) {
		t := SlowTime{At: at, For: p.span(500, 3000), Delay: p.span(2000, 10000), Process: -1, Requests: p.one(2)}
		if p.one(2) {
			t.Process = p.IntN(processes)
		}
		all = append(all, t)
	}
	return all
}

// beganFile contains the time at which the run began, from which its slow times count. It appears when all processes have started.
const beganFile = "began"

// beginSlowness makes the processes begin to apply the slow times.
func (p *play) beginSlowness(began time.Time) error {
	name := filepath.Join(p.dir, beganFile)
	if err := os.WriteFile(name+".new", []byte(strconv.FormatInt(began.UnixNano(), 10)), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// slow logs the slow times, and sends signals to all open workflows during each of them.
func (p *play) slow(ctx context.Context, began time.Time) {
	for i, t := range p.Slow {
		if !harness.Pause(ctx, time.Until(began.Add(t.At))) {
			return
		}
		process := ""
		if t.Process >= 0 {
			process = fmt.Sprintf("p%d", t.Process)
		}
		p.log.Write(&Record{What: Slowed, Type: process, Other: t.For.String(), Error: t.Delay.String()})
		p.mu.Lock()
		open := slices.Sorted(maps.Keys(p.open))
		p.mu.Unlock()
		for _, id := range open {
			sendSignal(ctx, p.tc, p.log, id, fmt.Sprintf("slow time %d", i))
			if !harness.Pause(ctx, t.For/time.Duration(len(open))) {
				return
			}
		}
	}
}

// slowness delays the commands of one worker process.
type slowness struct {
	times []SlowTime
	file  string
	began atomic.Int64 // Unix time in ns; 0 if the process does not know it
}

func newSlowness(plan Plan, dir, process string) *slowness {
	s := &slowness{file: filepath.Join(dir, beganFile)}
	for _, t := range plan.Slow {
		if t.Process < 0 || strings.HasPrefix(process, fmt.Sprintf("p%d-", t.Process)) {
			s.times = append(s.times, t)
		}
	}
	return s
}

// monitor returns a command monitor that delays requests before they are sent, and answers before they are returned. It is nil if the
// database is never slow for the process.
func (s *slowness) monitor() *event.CommandMonitor {
	if len(s.times) == 0 {
		return nil
	}
	hold := func(ctx context.Context, command string, request bool) {
		measure.Delays{All: s.delay(time.Now(), request)}.Hold(ctx, command)
	}
	return &event.CommandMonitor{
		Started:   func(ctx context.Context, e *event.CommandStartedEvent) { hold(ctx, e.CommandName, true) },
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) { hold(ctx, e.CommandName, false) },
		Failed:    func(ctx context.Context, e *event.CommandFailedEvent) { hold(ctx, e.CommandName, false) },
	}
}

// delay returns the delay of a request, or of an answer, at a time.
func (s *slowness) delay(now time.Time, request bool) time.Duration {
	if s.began.Load() == 0 {
		text, err := os.ReadFile(s.file)
		if err != nil {
			return 0 // the run has not begun
		}
		began, _ := strconv.ParseInt(string(text), 10, 64) // beginSlowness has written it
		s.began.Store(began)
	}
	since := time.Duration(now.UnixNano() - s.began.Load())
	for _, t := range s.times {
		if t.Requests == request && t.At <= since && since < t.At+t.For {
			return t.Delay
		}
	}
	return 0
}
