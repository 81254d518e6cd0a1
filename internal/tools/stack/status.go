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
	st, failed, err := s.probeAll(ctx)
	if err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	printStatus(w, s.cfg.Dir, st, failed, err)
	return err
}

// probeAll reads the record and probes all parts and both servers. failed has the error of each part. It does not take the lock,
// so it works during Up.
func (s *Stack) probeAll(ctx context.Context) (st State, failed []error, err error) {
	if st, err = loadState(s.cfg.Dir); err != nil {
		return st, nil, err
	}
	errs := make([]error, len(st.Parts)+2)
	var probing sync.WaitGroup
	for i, p := range st.Parts {
		probing.Go(func() { errs[i] = s.probe(ctx, p) })
	}
	if st.Up {
		probing.Go(func() { errs[len(st.Parts)] = within(ctx, st.Mongo.Address, mongoHealthy) })
		probing.Go(func() { errs[len(st.Parts)+1] = within(ctx, st.Temporal.Address, temporalHealthy) })
	}
	probing.Wait()
	failed = slices.Clone(errs[:len(st.Parts)])
	if !st.Up {
		return st, failed, fmt.Errorf("%w (nothing is complete in %s): run `make stack-up`", ErrNotUp, s.cfg.Dir)
	}
	for i := range errs {
		name := "Temporal at " + st.Temporal.Address
		switch {
		case i < len(st.Parts):
			name = st.Parts[i].Name
		case i == len(st.Parts):
			name = "MongoDB at " + redact(st.Mongo.Address)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", name, errs[i])
		}
	}
	if all := errors.Join(errs...); all != nil {
		return st, failed, fmt.Errorf("%w: run `make stack-up` to repair it:\n%w", ErrNotUp, all)
	}
	return st, failed, nil
}

// within calls healthy with a time limit.
func within(ctx context.Context, address string, healthy func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	return healthy(ctx, address)
}

func printStatus(w io.Writer, dir string, st State, failed []error, err error) {
	up := "up    "
	if err != nil {
		up = "not up"
	}
	fmt.Fprintf(w, "%s  %s\n", up, dir)
	if st.Up {
		fmt.Fprintln(w)
		for _, e := range []struct {
			name string
			Endpoint
		}{{"MongoDB ", st.Mongo}, {"Temporal", st.Temporal}} {
			fmt.Fprintf(w, "%s  %s\n", e.name, redact(e.Address))
			for _, why := range e.Why {
				line, _, _ := strings.Cut(why, "\n")
				fmt.Fprintf(w, "          %s\n", line)
			}
		}
		if st.Temporal.UI != "" {
			fmt.Fprintf(w, "Web UI    %s\n", st.Temporal.UI)
		}
	}
	if len(st.Parts) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tHEALTH\tADDRESS\tPID\tLOG")
	for i, p := range st.Parts {
		health := "ok"
		if failed[i] != nil { //nolint:gosec // it has an element for each part
			health = "failed" // the returned error has the reason, which may span lines
		}
		var addresses []string
		for _, name := range slices.Sorted(maps.Keys(p.Ports)) {
			addresses = append(addresses, name+" "+hostPort(p.Ports[name]))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", p.Name, health, strings.Join(addresses, ", "), p.PID, p.Log)
	}
	t.Flush()
}
