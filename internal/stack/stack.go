package stack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Stack is a Temporal server and a MongoDB on this machine.
type Stack struct {
	cfg      Config
	progress *Progress

	mu    sync.Mutex
	state State
	fresh []Part // started by this run
}

// New returns the stack that lives in cfg.Dir, whether it runs or not.
func New(cfg Config, progress *Progress) *Stack {
	return &Stack{cfg: cfg, progress: progress}
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
		if err != nil {
			err = errors.Join(err, s.undo(context.WithoutCancel(ctx)))
		}
	}()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		e, err := choose(gctx, "MongoDB", s.mongoChoices(), s.progress.Say, s.replacer(gctx, s.state.Mongo.Kind, mongoParts))
		s.setEndpoint(&s.state.Mongo, e, err)
		return err
	})
	g.Go(func() error {
		e, err := choose(gctx, "Temporal server", s.temporalChoices(), s.progress.Say, s.replacer(gctx, s.state.Temporal.Kind, temporalParts))
		s.setEndpoint(&s.state.Temporal, e, err)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Up = true
	return s.state.save(s.cfg.Dir)
}

// The parts of each server, whichever of its choices they belong to.
var (
	mongoParts    = []string{"mongo-container", "mongod", "ferretdb", "postgres"}
	temporalParts = []string{"temporal"}
)

// replacer ends the parts of the choice before, when now another one is taken.
func (s *Stack) replacer(ctx context.Context, before string, parts []string) func(kind string) error {
	return func(kind string) error {
		if kind == before {
			return nil
		}
		for _, name := range parts {
			if p, ok := s.recorded(name); ok {
				s.progress.Say("%s: belongs to %s, it is ended", name, before)
				if err := s.end(ctx, p); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func (s *Stack) setEndpoint(to *Endpoint, e Endpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		*to = e
	}
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
		was := "ended"
		if p.Container == "" && !alive(p) {
			was = "had ended already"
		}
		err := s.end(ctx, p)
		if err == nil {
			s.progress.Say("%s: %s (pid %d)", p.Name, was, p.PID)
		}
		errs = append(errs, err)
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
		s.progress.Say("%s: ended again (pid %d)", p.Name, p.PID)
		errs = append(errs, s.end(ctx, p))
	}
	return errors.Join(errs...)
}

// ownMongo says whether the URI is the one that this stack gave out: whoever has evaluated `env` and calls `up` again
// wants this stack, not a stranger's.
func (s *Stack) ownMongo(uri string) bool {
	return s.state.Mongo.Kind != "given" && s.state.Mongo.Address == uri
}

func (s *Stack) ownTemporal(address string) bool {
	return s.state.Temporal.Kind != "given" && s.state.Temporal.Address == address
}

// redact takes the password out of a URI.
func redact(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "(not a URI)"
	}
	return u.Redacted()
}
