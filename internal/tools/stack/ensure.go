package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

const (
	// startAttempts bounds how often a service is started again with other ports.
	startAttempts = 3
	probeEvery    = 100 * time.Millisecond
	probeWithin   = 5 * time.Second
)

// service is how a part is started and how one sees that it serves.
type service struct {
	name string
	// ports that it listens on, by name; clients use the first.
	ports []string
	// container is the name of the container that argv runs, if it runs one.
	container string
	argv      func(ports map[string]int) []string
	// before is called when no process of this service lives, before one is started. May be nil.
	before    func() error
	interrupt bool
	// healthy asks the service something that only it can answer.
	healthy func(ctx context.Context, ports map[string]int) error
	// within bounds the time from start to the first good answer.
	within time.Duration
}

// ensure returns the running part, started now if need be.
func (s *Stack) ensure(ctx context.Context, svc service) (p Part, started bool, err error) {
	if p, ok := s.recorded(svc.name); ok {
		if alive(p) {
			if err = svc.check(ctx, p); err == nil {
				s.progress.Say("%s: already running (pid %d)", svc.name, p.PID)
				return p, false, nil
			}
			s.progress.Say("%s: does not answer (%v), it is started again", svc.name, err)
		} else {
			s.progress.Say("%s: has ended (pid %d), it is started again", svc.name, p.PID)
		}
		if err := s.end(ctx, p); err != nil {
			return Part{}, false, err
		}
	}
	for attempt := 1; ; attempt++ {
		p, err = s.startService(ctx, svc)
		if err == nil {
			return p, true, nil
		}
		if ctx.Err() != nil || attempt == startAttempts {
			return Part{}, false, err
		}
		// Most likely another process took a port after it was picked; whatever it was, other ports cost little.
		s.progress.Say("%s; attempt %d of %d", firstLine(err), attempt+1, startAttempts)
	}
}

func (s *Stack) startService(ctx context.Context, svc service) (_ Part, err error) {
	ports, err := s.pick(svc.ports, s.portsBefore(svc.name))
	if err != nil {
		return Part{}, err
	}
	if svc.before != nil {
		if err := svc.before(); err != nil {
			return Part{}, err
		}
	}
	task := s.progress.start("start " + svc.name)
	defer func() { task.end(err) }()
	log := filepath.Join(s.cfg.Dir, "logs", svc.name+".log")
	pid, start, ended, err := launch(svc.argv(ports), filepath.Join(s.cfg.Dir, "data", svc.name), log)
	if err != nil {
		return Part{}, fmt.Errorf("start %s: %w", svc.name, err)
	}
	p := Part{Name: svc.name, PID: pid, Start: start, Ports: ports, Log: log, Interrupt: svc.interrupt,
		Container: svc.container}
	// On record before it is waited for: a program killed in the middle must still find it.
	if err := s.began(p); err != nil {
		return Part{}, errors.Join(err, terminate(context.WithoutCancel(ctx), p))
	}
	if err := svc.wait(ctx, p, ended); err != nil {
		return Part{}, errors.Join(err, s.end(context.WithoutCancel(ctx), p))
	}
	return p, nil
}

// wait returns when the service answers, or tells why it never will.
func (svc service) wait(ctx context.Context, p Part, ended <-chan struct{}) error {
	late := time.NewTimer(svc.within)
	defer late.Stop()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var last error
	for {
		if last = svc.check(ctx, p); last == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended before it was ready; the end of %s:\n%s", svc.name, p.Log, tail(p.Log))
		case <-late.C:
			return fmt.Errorf("%s does not answer after %s (%w); the end of %s:\n%s", svc.name, svc.within, last, p.Log, tail(p.Log))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// check asks whether the recorded process serves on its own ports.
func (svc service) check(ctx context.Context, p Part) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	for _, name := range svc.ports {
		if svc.container != "" {
			break // the engine listens for it
		}
		ok, err := listensOn(p.PID, p.Ports[name])
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("it does not listen on %s", hostPort(p.Ports[name]))
		}
	}
	return svc.healthy(ctx, p.Ports)
}

// began puts a part on record, and on the list of what is ended again when this run fails.
func (s *Stack) began(p Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.put(p)
	s.fresh = append(s.fresh, p)
	return s.state.save(s.cfg.Dir)
}

// end stops a part and takes it off the record.
func (s *Stack) end(ctx context.Context, p Part) error {
	if alive(p) {
		task := s.progress.start(fmt.Sprintf("end %s (pid %d)", p.Name, p.PID))
		err := s.halt(ctx, p)
		task.end(err)
		if err != nil {
			return err
		}
	} else if err := s.halt(ctx, p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.remove(p.Name)
	s.fresh = slices.DeleteFunc(s.fresh, func(f Part) bool { return f.Name == p.Name })
	return s.state.save(s.cfg.Dir)
}

// halt stops a part, and what it may have left running.
func (s *Stack) halt(ctx context.Context, p Part) error {
	err := terminate(ctx, p)
	if p.Container != "" {
		err = errors.Join(err, removeContainer(ctx, p.Container))
	}
	return err
}

func (s *Stack) recorded(name string) (Part, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.part(name)
}

func (s *Stack) portsBefore(name string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Ports[name]
}
