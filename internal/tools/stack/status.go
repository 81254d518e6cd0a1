package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// ErrNotUp is returned by Env and Status if the stack cannot be used.
var ErrNotUp = errors.New("the stack is not up")

// Health is the result of a probe of one part.
type Health struct {
	Part Part
	Err  error // nil if the part answers
}

// Env returns the shell commands that set the variables of the stack. It returns ErrNotUp if a server or a part does not answer.
func (s *Stack) Env(ctx context.Context) (string, error) {
	st, _, err := s.probeAll(ctx)
	if err != nil {
		return "", err
	}
	return st.env(), nil
}

func (s *State) env() string {
	var b strings.Builder
	for _, v := range [][2]string{
		{"TEMPORAL_ADDRESS", s.Temporal.Address},
		{"LOCKSTEP_MONGODB_URI", s.Mongo.Address},
		{"LOCKSTEP_TEMPORAL_UI", s.Temporal.UI},
	} {
		if v[1] != "" {
			fmt.Fprintf(&b, "export %s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
		}
	}
	return b.String()
}

// Status writes the state of the stack. It returns ErrNotUp if a server or a part does not answer.
func (s *Stack) Status(ctx context.Context, w io.Writer) error {
	st, health, err := s.probeAll(ctx)
	if err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	printStatus(w, s.cfg.Dir, st, health, err)
	return err
}

// probeAll reads the record and probes all parts and both servers. It does not take the lock, so it works during Up.
func (s *Stack) probeAll(ctx context.Context) (State, []Health, error) {
	st, err := loadState(s.cfg.Dir)
	if err != nil {
		return State{}, nil, err
	}
	health := make([]Health, len(st.Parts))
	var mongoErr, temporalErr error
	var probing sync.WaitGroup
	for i, p := range st.Parts {
		probing.Go(func() { health[i] = Health{Part: p, Err: s.probe(ctx, p)} })
	}
	if st.Up {
		probing.Go(func() { mongoErr = within(ctx, st.Mongo.Address, mongoHealthy) })
		probing.Go(func() { temporalErr = within(ctx, st.Temporal.Address, temporalHealthy) })
	}
	probing.Wait()
	if !st.Up {
		return st, health, fmt.Errorf("%w (nothing is complete in %s): run `make stack-up`", ErrNotUp, s.cfg.Dir)
	}
	var errs []error
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

// within calls healthy with a time limit.
func within(ctx context.Context, address string, healthy func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	return healthy(ctx, address)
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
			state = "failed" // the returned error has the reason, which may span lines
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
