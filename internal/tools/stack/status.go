package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// ErrNotUp says that there is no stack to be used.
var ErrNotUp = errors.New("the stack is not up")

// Health of one part.
type Health struct {
	Part Part
	Err  error // nil when it serves
}

// Env returns what a shell evaluates to find the stack, after asking both servers.
func (s *Stack) Env(ctx context.Context) (string, error) {
	st, _, err := s.look(ctx)
	if err != nil {
		return "", err
	}
	return st.env(), nil
}

func (s *State) env() string {
	vars := [][2]string{
		{"TEMPORAL_ADDRESS", s.Temporal.Address},
		{"LOCKSTEP_MONGODB_URI", s.Mongo.Address},
		{"LOCKSTEP_TEMPORAL_UI", s.Temporal.UI},
	}
	var b strings.Builder
	for _, v := range vars {
		if v[1] != "" {
			fmt.Fprintf(&b, "export %s=%s\n", v[0], quote(v[1]))
		}
	}
	return b.String()
}

// quote makes one shell word of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Status writes what there is, and returns ErrNotUp when it cannot be used.
func (s *Stack) Status(ctx context.Context, w io.Writer) error {
	st, health, err := s.look(ctx)
	if err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	printStatus(w, s.cfg.Dir, st, health, err)
	return err
}

// look reads the record without the lock, so that it also answers while `up` is at work, and asks every part and both
// servers.
func (s *Stack) look(ctx context.Context) (State, []Health, error) {
	st, err := loadState(s.cfg.Dir)
	if err != nil {
		return State{}, nil, err
	}
	health := make([]Health, len(st.Parts))
	var mongoErr, temporalErr error
	var asking sync.WaitGroup
	for i, p := range st.Parts {
		asking.Go(func() { health[i] = Health{Part: p, Err: s.probe(ctx, p)} })
	}
	if st.Up {
		asking.Go(func() { mongoErr = within(ctx, st.Mongo.Address, mongoHealthy) })
		asking.Go(func() { temporalErr = within(ctx, st.Temporal.Address, temporalHealthy) })
	}
	asking.Wait()
	if !st.Up {
		return st, health, fmt.Errorf("%w (there is no finished one in %s): run `make stack-up`", ErrNotUp, s.cfg.Dir)
	}
	errs := []error{}
	for _, h := range health {
		if h.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Part.Name, h.Err))
		}
	}
	if mongoErr != nil {
		errs = append(errs, fmt.Errorf("MongoDB at %s: %w", redact(st.Mongo.Address), mongoErr))
	}
	if temporalErr != nil {
		errs = append(errs, fmt.Errorf("Temporal at %s: %w", st.Temporal.Address, temporalErr))
	}
	if len(errs) > 0 {
		return st, health, fmt.Errorf("%w: run `make stack-up` to repair it:\n%w", ErrNotUp, errors.Join(errs...))
	}
	return st, health, nil
}

func within(ctx context.Context, address string, healthy func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	return healthy(ctx, address)
}

// probe asks one part, in its own way.
func (s *Stack) probe(ctx context.Context, p Part) error {
	if !alive(p) {
		return errors.New("has ended")
	}
	return s.serviceOf(p.Name).check(ctx, p)
}

// serviceOf returns a part's service for probing; what only starting it needs is left out.
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

func printStatus(w io.Writer, dir string, st State, health []Health, err error) {
	if err == nil {
		fmt.Fprintf(w, "up      %s\n", dir)
	} else {
		fmt.Fprintf(w, "not up  %s\n", dir)
	}
	if st.Up {
		fmt.Fprintf(w, "\nMongoDB   %s\n", redact(st.Mongo.Address))
		printWhy(w, st.Mongo)
		fmt.Fprintf(w, "Temporal  %s\n", st.Temporal.Address)
		printWhy(w, st.Temporal)
		if st.Temporal.UI != "" {
			fmt.Fprintf(w, "Web UI    %s\n", st.Temporal.UI)
		}
	}
	if len(health) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tHEALTH\tADDRESS\tPID\tLOG")
	for _, h := range health {
		state := "ok"
		if h.Err != nil {
			state = "failed" // the error says why, and would tear the table
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", h.Part.Name, state, addresses(h.Part), h.Part.PID, h.Part.Log)
	}
	t.Flush()
}

func printWhy(w io.Writer, e Endpoint) {
	for _, why := range e.Why {
		line, _, _ := strings.Cut(why, "\n")
		fmt.Fprintf(w, "          %s\n", line)
	}
}

func addresses(p Part) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(p.Ports)) {
		list = append(list, name+" "+hostPort(p.Ports[name]))
	}
	return strings.Join(list, ", ")
}
