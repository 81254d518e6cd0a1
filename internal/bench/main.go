// Command bench measures Lockstep against the raw commands of the database on the same server.
//
//	go run ./internal/bench engine [--json] [--rounds n]
//
// It needs a server: LOCKSTEP_MONGODB_URI, as `make stack-env` prints it. Times of a shared machine are noisy, so
// everything that is compared is measured in turn, in one run, and what counts are ratios of medians.
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

var errUsage = errors.New("usage: bench engine [--json] [--rounds n]")

func run(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	if len(args) == 0 || args[0] != "engine" {
		return errUsage
	}
	flags := flag.NewFlagSet("bench engine", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "print JSON")
	rounds := flags.Int("rounds", 300, "how often each pair is measured, 10 to 10000")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *rounds < 10 || *rounds > 10_000 {
		return fmt.Errorf("%w: --rounds %d is not from 10 to 10000", errUsage, *rounds)
	}
	uri := env("LOCKSTEP_MONGODB_URI")
	if uri == "" {
		return errors.New(`LOCKSTEP_MONGODB_URI is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`)
	}
	report, err := benchEngine(ctx, uri, *rounds)
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.print(out)
}
