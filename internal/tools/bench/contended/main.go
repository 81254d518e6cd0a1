// Command contended measures how fast an exclusive lock passes between requests when many Lockers want the same resource.
//
//	go run ./internal/tools/bench/contended [--json] [--lockers 1,3,10] [--each d] [--write-delay d] [--read-delay d]
//	go run ./internal/tools/bench/contended [--json] --slow d [--each d] [--write-delay d] [--read-delay d]
//	go run ./internal/tools/bench/contended [--json] --against file [--turns n] [other flags]
//
// Each Locker has a MongoDB client of its own. Each of its goroutines repeats Acquire and Release on one resource. A command
// monitor on each client counts the commands.
//
// The flag --write-delay holds back the answers of write commands, as a replica set does that waits for a majority. The
// flag --slow adds an eleventh Locker to ten others, and holds back all answers to it.
//
// The flag --against names a binary of this command that was built from another commit. Both run alternately, as child
// processes. `make bench-contended AGAINST=commit` copies this directory into that commit and builds it there. Therefore this
// package imports only the driver and lockcore, and uses only lockcore's New, CreateIndexes, Acquire, Release, Close and Exclusive.
//
// It needs a server: LOCKSTEP_MONGODB_URI, as `make stack-env` prints it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "contended:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: contended [--json] [--lockers 1,3,10 | --slow d] [--each d] [--write-delay d] [--read-delay d] " +
	"[--against file [--turns n]]")

// config holds the flags.
type config struct {
	uri    string
	asJSON bool
	cases  []benchCase
	// each is the time for which a case is measured, after the warm-up.
	each time.Duration
	// writeDelay and readDelay hold back the answers of commands of all Lockers, and slow all answers to the slow one.
	writeDelay, readDelay, slow time.Duration
	// against is another build of this command, or empty. Each of the two builds measures each case once a turn.
	against string
	turns   int
}

// benchCase is a number of Lockers that contend for one resource.
type benchCase struct {
	Name string `json:"name"`
	// Lockers includes the slow one, if there is one.
	Lockers int `json:"lockers"`
	// Goroutines is the number of goroutines of each Locker.
	Goroutines int  `json:"goroutines"`
	Slow       bool `json:"slow,omitempty"`
}

// newCase returns the case of a number of Lockers: with 1, 3 and 10 Lockers 10, 7 and 4 goroutines each.
func newCase(lockers int) benchCase {
	c := benchCase{Lockers: lockers, Goroutines: 4}
	switch {
	case lockers == 1:
		c.Goroutines = 10
	case lockers <= 3:
		c.Goroutines = 7
	}
	c.Name = fmt.Sprintf("%d × %d", c.Lockers, c.Goroutines)
	return c
}

// slowCase returns the case of ten Lockers and a slow one.
func slowCase() benchCase {
	return benchCase{Name: "10 + 1 slow × 4", Lockers: 11, Goroutines: 4, Slow: true}
}

func run(ctx context.Context, args []string, out, progress io.Writer, env func(string) string) error {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	if cfg.uri = env("LOCKSTEP_MONGODB_URI"); cfg.uri == "" {
		return errors.New(`LOCKSTEP_MONGODB_URI is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`)
	}
	var r report
	if cfg.against != "" {
		r, err = compare(ctx, cfg, progress)
	} else {
		r, err = measureAll(ctx, cfg)
	}
	if err != nil {
		return err
	}
	if cfg.asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(out)
}

func measureAll(ctx context.Context, cfg config) (report, error) {
	r := newReport(cfg)
	for _, c := range cfg.cases {
		m, err := measure(ctx, cfg, c)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.Name, err)
		}
		r.Cases = append(r.Cases, m)
		r.Targets = append(r.Targets, targets(cfg, m)...)
	}
	return r, nil
}

func parse(args []string) (config, error) {
	cfg := config{}
	flags := flag.NewFlagSet("contended", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&cfg.asJSON, "json", false, "print JSON")
	lockers := flags.String("lockers", "1,3,10", "the numbers of Lockers, 1 to 100")
	flags.DurationVar(&cfg.each, "each", 6*time.Second, "how long each case is measured, 1s to 10m")
	flags.DurationVar(&cfg.writeDelay, "write-delay", 0, "how long answers of write commands are held back, up to 1s")
	flags.DurationVar(&cfg.readDelay, "read-delay", 0, "how long answers of read commands are held back, up to 1s")
	flags.DurationVar(&cfg.slow, "slow", 0, "measure ten Lockers and one to which all answers are held back this long, up to 1s")
	flags.StringVar(&cfg.against, "against", "", "a binary of this command, built from another commit, to compare with")
	flags.IntVar(&cfg.turns, "turns", 3, "how often each case is measured with --against, 1 to 100")
	if err := flags.Parse(args); err != nil {
		return cfg, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("%w: unexpected %q", errUsage, flags.Arg(0))
	}
	if cfg.each < time.Second || cfg.each > 10*time.Minute {
		return cfg, fmt.Errorf("%w: --each %s is not from 1s to 10m", errUsage, cfg.each)
	}
	if cfg.turns < 1 || cfg.turns > 100 {
		return cfg, fmt.Errorf("%w: --turns %d is not from 1 to 100", errUsage, cfg.turns)
	}
	for name, d := range map[string]time.Duration{"--write-delay": cfg.writeDelay, "--read-delay": cfg.readDelay, "--slow": cfg.slow} {
		if d < 0 || d > time.Second {
			return cfg, fmt.Errorf("%w: %s %s is not from 0 to 1s", errUsage, name, d)
		}
	}
	if cfg.slow > 0 {
		cfg.cases = []benchCase{slowCase()}
		return cfg, nil
	}
	for text := range strings.SplitSeq(*lockers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return cfg, fmt.Errorf("%w: --lockers %q is not a list of numbers from 1 to 100", errUsage, *lockers)
		}
		cfg.cases = append(cfg.cases, newCase(n))
	}
	return cfg, nil
}
