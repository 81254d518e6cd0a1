// Command bench measures Lockstep on real servers.
//
//	go run ./internal/tools/bench engine [--json] [--rounds n]
//	go run ./internal/tools/bench hot [--json] [--turns n] [--each d] [--resources n,n,…] [--processes n,n,…] [--write-delay d]
//	go run ./internal/tools/bench limits [--json] [--workflows n]
//	go run ./internal/tools/bench scale [--json] [--short] [--each d] [--write-delay d]
//	go run ./internal/tools/bench sizes [--json] [--resources n,n,…] [--payload n] [--write-delay d]
//
// engine compares operations of the lock engine with raw commands on the same database.
//
// hot compares guards, sagas and locks with mutex workflows and with workflows that use no lock, on few resources and on many.
//
// limits changes the limit of a semaphore for which 200 workflows wait, and fails if a change acts too late, or a workflow is lost or passed.
//
// scale shows how costs grow with the number of resources, clients, waiters and idle documents.
//
// sizes runs sagas of up to 20,000 resources, with histories of 10 MB, and fails if one does not end as it should.
//
// The command in the directory contended measures many Lockers on one resource. The command in the directory against compares this
// build with that of another commit, by engine, hot or contended.
//
// The servers are those of LOCKSTEP_MONGODB_URI and, for hot, limits and sizes, TEMPORAL_ADDRESS; `make stack-env` prints both. Times on a shared
// machine are noisy. Therefore all cases that are compared run alternately, and only ratios of medians of one run count.
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
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "engine":
		return runEngine(ctx, args[1:])
	case len(args) > 0 && args[0] == "hot":
		return runHot(ctx, args[1:])
	case len(args) > 0 && args[0] == "limits":
		return runLimits(ctx, args[1:])
	case len(args) > 0 && args[0] == "scale":
		return runScale(ctx, args[1:])
	case len(args) > 0 && args[0] == "sizes":
		return runSizes(ctx, args[1:])
	case len(args) == 2 && args[0] == hotWorker: // started by bench hot
		return runHotWorker(args[1])
	}
	return errors.New("usage: bench engine|hot|limits|scale|sizes [--help]")
}

// parseFlags parses the flags of a benchmark, and exits if they are wrong. It returns whether the result is printed as JSON.
func parseFlags(flags *flag.FlagSet, args []string) (asJSON bool) {
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	_ = flags.Parse(args) // it exits
	return asJSON
}

// variable returns the value of an environment variable.
func variable(name string) (string, error) {
	value := os.Getenv(name)
	if value == "" {
		return "", fmt.Errorf(`%s is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`, name)
	}
	return value, nil
}

// report is the result of a benchmark.
type report interface{ print(w io.Writer) }

// write prints a report as JSON or as tables.
func write(r report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.print(w)
	return w.Flush()
}

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}
