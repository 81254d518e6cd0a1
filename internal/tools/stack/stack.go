package stack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ErrInterrupted says that a run was told to stop, and has ended what it had started.
var ErrInterrupted = errors.New("interrupted; what this run had started has been ended")

// Stack is a Temporal server and a MongoDB on this machine.
type Stack struct {
	cfg      Config
	progress *Progress

	// pick chooses the ports of a service.
	pick func(names []string, before map[string]int) (map[string]int, error)

	mu    sync.Mutex
	state State
	fresh []Part // started by this run
}

// New returns the stack that lives in cfg.Dir, whether it runs or not.
func New(cfg Config, progress *Progress) *Stack {
	return &Stack{cfg: cfg, progress: progress, pick: freePorts, state: State{Version: stateVersion}}
}

// Up returns when both servers answer. What runs already is used as it is, and what died is started again. On an error,
// also when ctx is cancelled, everything that this call started has been ended.
func (s *Stack) Up(ctx context.Context) (err error) {
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer func() {
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			err = ErrInterrupted // whatever failed, failed for that
		}
		err = errors.Join(err, s.undo(context.WithoutCancel(ctx)))
	}()
	g, gctx := errgroup.WithContext(ctx)
	for _, srv := range s.servers() {
		g.Go(func() error { return s.provide(gctx, srv) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Up = true
	return s.state.save(s.cfg.Dir)
}

// server is one of the two things that a stack is for.
type server struct {
	name string
	// given is the address that the user names.
	given    string
	endpoint *Endpoint // in the stack's state
	// parts of all its choices, in the order in which they are started.
	parts   []string
	choices []choice
	healthy func(ctx context.Context, address string) error
}

func (s *Stack) servers() []server {
	return []server{
		{
			name:     "MongoDB",
			given:    s.cfg.MongoURI,
			endpoint: &s.state.Mongo,
			parts:    []string{"mongo-container", "mongod", "postgres", "ferretdb"},
			choices:  s.mongoChoices(),
			healthy:  mongoHealthy,
		},
		{
			name:     "Temporal",
			given:    s.cfg.TemporalAddress,
			endpoint: &s.state.Temporal,
			parts:    []string{"temporal"},
			choices:  s.temporalChoices(),
			healthy:  temporalHealthy,
		},
	}
}

// provide leaves a server that runs alone, although the choice might be another one today: it may be in use.
// Otherwise it chooses, and repairs what is left of the same choice.
func (s *Stack) provide(ctx context.Context, srv server) error {
	before := *srv.endpoint
	if s.runs(ctx, srv) {
		s.progress.Say("%s: runs already (%s, %s)", srv.name, before.Kind, redact(before.Address))
		return nil
	}
	e, err := choose(ctx, srv.name, srv.choices, s.progress.Say, func(kind string) error {
		if kind == before.Kind {
			return nil
		}
		return s.endParts(ctx, srv.parts)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*srv.endpoint = e
	return nil
}

// runs reports whether the server that this stack started before is whole.
func (s *Stack) runs(ctx context.Context, srv server) bool {
	kind := srv.endpoint.Kind
	if kind == "" || kind == givenKind || (srv.given != "" && !isOwn(*srv.endpoint, srv.given)) {
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
	// After `down` the address may by now be another server's.
	return parts > 0 && within(ctx, srv.endpoint.Address, srv.healthy) == nil
}

// isOwn reports whether the address that the user names is the one that this stack gave out: a shell that has evaluated `env` and
// calls `up` again wants this stack, not a stranger's.
func isOwn(e Endpoint, given string) bool { return e.Kind != givenKind && e.Address == given }

// endParts ends the parts of an earlier choice, the last started first.
func (s *Stack) endParts(ctx context.Context, names []string) error {
	for _, name := range slices.Backward(names) {
		if p, ok := s.recorded(name); ok {
			s.progress.Say("%s: belongs to an earlier choice, it is ended", name)
			if err := s.end(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Down ends what this stack started, the last first. Data and logs stay.
func (s *Stack) Down(ctx context.Context) error {
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.mu.Lock()
	s.state.Up = false
	parts := slices.Clone(s.state.Parts)
	s.mu.Unlock()
	if len(parts) == 0 {
		s.progress.Say("nothing runs in %s", s.cfg.Dir)
	}
	var errs []error
	for _, p := range slices.Backward(parts) {
		if !alive(p) {
			s.progress.Say("%s (pid %d) had ended already", p.Name, p.PID)
		}
		errs = append(errs, s.end(ctx, p))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(errs, s.state.save(s.cfg.Dir))...)
}

// open takes the stack's lock and reads its record.
func (s *Stack) open(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w; another folder can be named by LOCKSTEP_STACK_DIR", err)
	}
	unlock, err = lockFile(ctx, filepath.Join(s.cfg.Dir, "lock"), func() {
		s.progress.Say("another run is working on %s; waiting for it", s.cfg.Dir)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state, err = loadState(s.cfg.Dir); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// undo ends what this run has started, the last first.
func (s *Stack) undo(ctx context.Context) error {
	s.mu.Lock()
	fresh := slices.Clone(s.fresh)
	s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(fresh) {
		errs = append(errs, s.end(ctx, p))
	}
	return errors.Join(errs...)
}

// redact takes the password out of an address that may be a URI.
func redact(address string) string {
	if !strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URI)"
	}
	return u.Redacted()
}
