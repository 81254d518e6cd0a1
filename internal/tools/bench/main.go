// Command bench measures Lockstep on real servers.
//
//	go run ./internal/tools/bench engine [--json] [--rounds n]
//	go run ./internal/tools/bench hot [--json] [--turns n] [--each d] [--at-a-time n] [--slots n] [--resources n,n,…] [--processes n,n,…] [--write-delay d]
//
// engine compares operations of the lock engine with raw commands on the same database.
//
// hot compares guards, sagas and locks with mutex workflows and with workflows that use no lock, on few resources and on many.
//
// The command in the directory contended measures many Lockers on one resource, and compares two builds of the lock engine.
//
// The servers are those of LOCKSTEP_MONGODB_URI and, for hot, TEMPORAL_ADDRESS; `make stack-env` prints both. Times on a shared
// machine are noisy. Therefore all cases that are compared run alternately, and only ratios of medians of one run count.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: bench engine [--json] [--rounds n], or bench hot [--json] [--turns n] [--each d] [--at-a-time n] [--slots n] " +
	"[--resources n,n,…] [--processes n,n,…] [--write-delay d]")

func run(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	switch {
	case len(args) > 0 && args[0] == "engine":
		return runEngine(ctx, args[1:], out, env)
	case len(args) > 0 && args[0] == "hot":
		return runHot(ctx, args[1:], out, env)
	case len(args) == 2 && args[0] == hotWorker: // started by bench hot
		return runHotWorker(ctx, args[1], out)
	}
	return errUsage
}

// Report is the result of a benchmark. Its JSON is a contract: fields are only added.
type Report struct {
	Sections []SectionReport `json:"sections"`
	Facts    []FactReport    `json:"facts"`
	// Hot is the result of bench hot.
	Hot *HotReport `json:"hot,omitempty"`
}

// write prints a report as JSON, or calls print for a table.
func (r Report) write(out io.Writer, asJSON bool, print func(io.Writer) error) error {
	if !asJSON {
		return print(out)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// parseFlags parses the flags of a benchmark, which has no arguments.
func parseFlags(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: unexpected %q", errUsage, flags.Arg(0))
	}
	return nil
}

// checkRange returns an error if the value of a flag is out of bounds.
func checkRange[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%w: %s %v is not from %v to %v", errUsage, flag, value, least, most)
	}
	return nil
}

// requireVariables returns an error if an environment variable is not set.
func requireVariables(env func(string) string, names ...string) error {
	for _, name := range names {
		if env(name) == "" {
			return fmt.Errorf(`%s is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`, name)
		}
	}
	return nil
}

// database returns a new database, and a function that drops it and disconnects.
func database(ctx context.Context, uri string) (*mongo.Database, func(), error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	db := client.Database(fmt.Sprintf("lockstep_bench_%d", time.Now().UnixNano()))
	return db, func() {
		// An interrupted run must drop the database too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	}, nil
}

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// median returns the middle value, or the mean of the two in the middle, or 0 of none.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
