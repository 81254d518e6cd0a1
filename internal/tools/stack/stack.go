package stack

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ErrInterrupted is returned by Up if its context ends. The parts that it had started have ended.
var ErrInterrupted = errors.New("interrupted; the servers that this run had started have been ended")

// Stack is a MongoDB and a Temporal server on this machine.
type Stack struct {
	cfg Config
	log *log.Logger

	// pickPorts chooses the ports of a service. Tests replace it.
	pickPorts func(names []string, before map[string]int) (map[string]int, error)

	explain sync.Once // prints meanwhile
	mu      sync.Mutex
	state   State
}

// New returns the stack in cfg.Dir, which reports its progress to a logger. It starts nothing.
func New(cfg Config, progress *log.Logger) *Stack {
	return &Stack{cfg: cfg, log: progress, pickPorts: freePorts}
}

// Up starts both servers and returns when they answer. It keeps parts that answer and restarts the others. On an error, also if
// ctx ends, it ends the parts that it has started.
func (s *Stack) Up(ctx context.Context) error {
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	g, groupCtx := errgroup.WithContext(ctx)
	for _, srv := range s.servers() {
		g.Go(func() error { return s.provide(groupCtx, srv) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ErrInterrupted
		}
		return errors.Join(err, s.endStarted(context.WithoutCancel(ctx)))
	}
	return s.update(func(st *State) { st.Up = true })
}

// Down ends the parts of the stack. Data and logs remain.
func (s *Stack) Down(ctx context.Context) error {
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = s.update(func(st *State) { st.Up = false })
	if len(s.state.Parts) == 0 {
		s.log.Printf("nothing runs in %s", s.cfg.Dir)
	}
	return errors.Join(err, s.endParts(ctx, func(Part) bool { return true }))
}

// endStarted ends the parts that this run has started.
func (s *Stack) endStarted(ctx context.Context) error {
	return s.endParts(ctx, func(p Part) bool { return p.started })
}

// endParts ends the parts of which is returns true, in the reverse order of their start.
func (s *Stack) endParts(ctx context.Context, is func(Part) bool) error {
	s.mu.Lock()
	parts := slices.Clone(s.state.Parts)
	s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(parts) {
		if is(p) {
			errs = append(errs, s.end(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// open takes the lock of the stack and reads its record.
func (s *Stack) open(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w; LOCKSTEP_STACK_DIR can name another folder", err)
	}
	unlock, err = lockFile(ctx, filepath.Join(s.cfg.Dir, "lock"), func() {
		s.log.Printf("waiting for another run that works on %s", s.cfg.Dir)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	if s.state, err = loadState(s.cfg.Dir); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// server is the MongoDB or the Temporal server of a stack.
type server struct {
	name string
	// variable names the environment variable by which a user provides the server, and given is its value.
	variable, given string
	// ui is the web UI of the given server.
	ui string
	// endpoint is the server's record in the stack's state.
	endpoint *Endpoint
	// parts are the names of the parts of all choices, in the order in which they are started.
	parts []string
	// choices are the ways to get the server, other than given. The first that is possible is taken.
	choices []choice
	// healthy returns nil if the server at an address answers.
	healthy func(ctx context.Context, address string) error
}

// choice is a way to get a server.
type choice struct {
	kind string
	// possible returns a short reason why the choice is possible, or an error that names what is missing.
	possible func(ctx context.Context) (reason string, err error)
	// start starts the server, and returns its address when it answers.
	start func(ctx context.Context) (Endpoint, error)
	// remedy describes how a user makes the choice possible.
	remedy string
}

func (s *Stack) servers() []server {
	return []server{
		{
			name: "MongoDB", variable: "LOCKSTEP_MONGODB_URI", given: s.cfg.MongoURI, endpoint: &s.state.Mongo,
			parts: []string{"mongo-container", "mongod", "postgres", "ferretdb"}, choices: s.mongoChoices(), healthy: mongoHealthy,
		},
		{
			name: "Temporal", variable: "TEMPORAL_ADDRESS", given: s.cfg.TemporalAddress, ui: s.cfg.TemporalUI, endpoint: &s.state.Temporal,
			parts: []string{"temporal"}, choices: s.temporalChoices(), healthy: temporalHealthy,
		},
	}
}

// provide keeps a server that runs, even if another choice has become possible: it may be in use. Otherwise it starts one.
func (s *Stack) provide(ctx context.Context, srv server) error {
	if s.runs(ctx, srv) {
		s.log.Printf("%s: runs already (%s, %s)", srv.name, srv.endpoint.Kind, redact(srv.endpoint.Address))
		return nil
	}
	e, err := s.choose(ctx, srv)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*srv.endpoint = e
	return nil
}

// runs reports whether the stack has started the server, and the server and all its parts answer.
func (s *Stack) runs(ctx context.Context, srv server) bool {
	kind := srv.endpoint.Kind
	if kind == "" || kind == givenKind || (srv.given != "" && !srv.namesStack()) {
		return false
	}
	parts := 0
	for _, name := range srv.parts {
		if p, ok := s.recorded(name); ok {
			if s.probe(ctx, p) != nil {
				return false
			}
			parts++
		}
	}
	// Without parts, after Down, another server may use the address.
	return parts > 0 && within(ctx, srv.endpoint.Address, srv.healthy) == nil
}

// givenKind is the kind of a server that the user provides.
const givenKind = "given"

// choose takes the given server, or starts the first choice that is possible.
func (s *Stack) choose(ctx context.Context, srv server) (Endpoint, error) {
	ofServer := func(p Part) bool { return slices.Contains(srv.parts, p.Name) }
	why := srv.variable + " is not set"
	switch {
	case srv.given != "" && !srv.namesStack():
		// The parts of an earlier choice end only if the given server answers.
		if err := within(ctx, srv.given, srv.healthy); err != nil {
			return Endpoint{}, fmt.Errorf("%s: %s=%s does not answer: %w; correct it, or unset it to start a server",
				srv.name, srv.variable, redact(srv.given), err)
		}
		why = srv.variable + " names it"
		s.log.Printf("%s: %s (%s)", srv.name, givenKind, why)
		return Endpoint{Kind: givenKind, Address: srv.given, UI: srv.ui, Why: []string{givenKind + ": " + why}}, s.endParts(ctx, ofServer)
	case srv.given != "":
		why = srv.variable + " names this stack"
	}
	s.log.Printf("%s: not %s: %s", srv.name, givenKind, why)
	rejected := []string{"not " + givenKind + ": " + why}
	remedies := []string{fmt.Sprintf("set %s to a %s server that answers", srv.variable, srv.name)}
	for _, c := range srv.choices {
		reason, err := c.possible(ctx)
		if err == nil {
			s.log.Printf("%s: %s (%s)", srv.name, c.kind, reason)
			if c.kind != srv.endpoint.Kind {
				if err := s.endParts(ctx, ofServer); err != nil {
					return Endpoint{}, err
				}
			}
			var e Endpoint
			if e, err = c.start(ctx); err == nil {
				e.Kind, e.Why = c.kind, append(rejected, c.kind+": "+reason)
				return e, nil
			}
		}
		if ctx.Err() != nil {
			return Endpoint{}, context.Cause(ctx)
		}
		s.log.Printf("%s: not %s: %s", srv.name, c.kind, firstLine(err))
		rejected = append(rejected, fmt.Sprintf("not %s: %v", c.kind, err))
		remedies = append(remedies, c.remedy)
	}
	return Endpoint{}, errors.New("no " + srv.name + " can be started here:\n  " + strings.Join(rejected, "\n  ") +
		"\nAny one of these would help:\n  - " + strings.Join(remedies, "\n  - "))
}

// namesStack reports whether the given address is the one of this stack. It is in a shell that has evaluated the stack's env.
func (srv server) namesStack() bool {
	return srv.endpoint.Kind != givenKind && srv.endpoint.Address == srv.given
}

// onPath returns a check that a program is on the PATH.
func onPath(program string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("no %s on the PATH", program)
		}
		return "found " + path, nil
	}
}

// firstLine returns an error's text without the log lines that follow.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// redact removes the password, and the options, from an address that may be a URI.
func redact(address string) string {
	if !strings.Contains(address, "://") {
		return address
	}
	address, _, _ = strings.Cut(address, "?")
	scheme, rest, _ := strings.Cut(address, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		rest = user + ":xxxxx" + rest[at:]
	}
	return scheme + "://" + rest
}
