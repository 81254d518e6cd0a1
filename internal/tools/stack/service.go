package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

const (
	loopback = "127.0.0.1"
	// startAttempts bounds the attempts to start a service, each with other ports.
	startAttempts = 3
	probeEvery    = 100 * time.Millisecond
	probeWithin   = 5 * time.Second
)

// service describes how to start and probe a part.
type service struct {
	name string
	// ports are the names of the ports on which the service listens.
	ports []string
	// container is the name of the container that argv runs, or empty.
	container string
	argv      func(ports map[string]int) []string
	// healthy sends a request that only this kind of service answers.
	healthy func(ctx context.Context, ports map[string]int) error
	// within bounds the time from the start to the first answer.
	within time.Duration
}

// ensure returns the recorded part if it answers. Otherwise it starts the part.
func (s *Stack) ensure(ctx context.Context, svc service) (p Part, started bool, err error) {
	if p, ok := s.recorded(svc.name); ok {
		if !alive(p) {
			s.log.Printf("%s: has ended (pid %d) and is started again", svc.name, p.PID)
		} else if err := svc.check(ctx, p); err != nil {
			s.log.Printf("%s: does not answer (%v) and is started again", svc.name, err)
		} else {
			s.log.Printf("%s: runs already (pid %d)", svc.name, p.PID)
			return p, false, nil
		}
		if err := s.end(ctx, p); err != nil {
			return Part{}, false, err
		}
	}
	for attempt := 1; ; attempt++ {
		err := s.task("start "+svc.name, func() (err error) {
			p, err = s.start(ctx, svc)
			return err
		})
		if err == nil {
			return p, true, nil
		}
		if ctx.Err() != nil || attempt == startAttempts {
			return Part{}, false, err
		}
		// The most likely reason is that another process took a port after it was picked.
		s.log.Printf("%s; attempt %d of %d", firstLine(err), attempt+1, startAttempts)
	}
}

func (s *Stack) start(ctx context.Context, svc service) (Part, error) {
	s.mu.Lock()
	before := s.state.Ports[svc.name]
	s.mu.Unlock()
	ports, err := s.pickPorts(svc.ports, before)
	if err != nil {
		return Part{}, err
	}
	p := Part{Name: svc.name, Ports: ports, Log: s.logFile(svc.name), Container: svc.container, started: true}
	var ended <-chan struct{}
	p.PID, p.Start, ended, err = launch(svc.argv(ports), filepath.Join(s.cfg.Dir, "data", svc.name), p.Log)
	if err != nil {
		return Part{}, fmt.Errorf("start %s: %w", svc.name, err)
	}
	// The part is recorded before the wait, so that Down finds it if this program is killed.
	if err := s.update(func(st *State) { st.put(p) }); err != nil {
		return Part{}, errors.Join(err, terminate(context.WithoutCancel(ctx), p))
	}
	if err := svc.wait(ctx, p, ended); err != nil {
		return Part{}, errors.Join(err, s.end(context.WithoutCancel(ctx), p))
	}
	return p, nil
}

// wait returns when the service answers, has ended, or is late.
func (svc service) wait(ctx context.Context, p Part, ended <-chan struct{}) error {
	late := time.NewTimer(svc.within)
	defer late.Stop()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := svc.check(ctx, p)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended before it was ready; the end of %s:\n%s", svc.name, p.Log, tail(p.Log))
		case <-late.C:
			return fmt.Errorf("%s does not answer after %s (%w); the end of %s:\n%s", svc.name, svc.within, err, p.Log, tail(p.Log))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// check returns nil if the recorded process listens on its ports and answers.
func (svc service) check(ctx context.Context, p Part) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if svc.container == "" { // the Docker engine listens for a container
		for _, name := range svc.ports {
			ok, err := listensOn(p.PID, p.Ports[name])
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("it does not listen on %s", hostPort(p.Ports[name]))
			}
		}
	}
	return svc.healthy(ctx, p.Ports)
}

// probe checks a recorded part.
func (s *Stack) probe(ctx context.Context, p Part) error {
	if !alive(p) {
		return errors.New("has ended")
	}
	return s.serviceOf(p.Name).check(ctx, p)
}

// serviceOf returns the service of a part for check. It lacks the data that only argv needs.
func (s *Stack) serviceOf(name string) service {
	switch name {
	case "postgres":
		return s.postgresService(filepath.Join(s.cfg.CacheDir, postgresPackage))
	case "ferretdb":
		return s.ferretService("", Part{})
	case "mongod":
		return s.mongodService("")
	case "mongo-container":
		return s.dockerService()
	default:
		return s.temporalService("")
	}
}

// end ends a part and removes it from the record. The container of a part that has ended may still run.
func (s *Stack) end(ctx context.Context, p Part) error {
	err := s.task(fmt.Sprintf("end %s (pid %d)", p.Name, p.PID), func() error {
		err := terminate(ctx, p)
		if p.Container != "" {
			err = errors.Join(err, removeContainer(ctx, p.Container))
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.update(func(st *State) { st.remove(p.Name) })
}

// update changes the record and saves it.
func (s *Stack) update(change func(st *State)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
	return s.state.save(s.cfg.Dir)
}

func (s *Stack) recorded(name string) (Part, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.part(name)
}

func (s *Stack) logFile(name string) string { return filepath.Join(s.cfg.Dir, "logs", name+".log") }

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts picks a port for each name: the earlier one if it is free, or else any free port. Another process may take a port
// before it is used.
func freePorts(names []string, before map[string]int) (map[string]int, error) {
	ports := make(map[string]int, len(names))
	for _, name := range names {
		l, err := net.Listen("tcp", hostPort(before[name]))
		if err != nil {
			l, err = net.Listen("tcp", hostPort(0))
		}
		if err != nil {
			return nil, fmt.Errorf("no free port on %s: %w", loopback, err)
		}
		// The listeners remain open until all ports are picked, so that the ports differ.
		defer l.Close()
		ports[name] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
