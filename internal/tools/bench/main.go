// Command bench measures Lockstep: the engine against the raw commands of the database on the same server, and guarded
// workflows against unguarded ones.
//
//	go run ./internal/tools/bench engine [--json] [--rounds n]
//	go run ./internal/tools/bench temporal [--json] [--rounds n] [--waiters n] [--wait d]
//	go run ./internal/tools/bench idle [--json] [--rounds n] [--documents n,n,…]
//	go run ./internal/tools/bench hot [--json] [--svg file] [--turns n] [--each d] [--at-a-time n] [--slots n] [--resources n,n,…] [--processes n,n,…] [--write-delay d]
//	go run ./internal/tools/bench wait [--json] [--for d] [--cases 1x1,100x1,…]
//	go run ./internal/tools/bench contention [--json] [--spans n] [--resources n]
//
// hot compares guards, sagas and locks with mutex workflows and with no locks at all, on few resources and on many.
//
// wait measures what workflows cost that wait for long, by the hour.
//
// idle measures what background work costs beside documents that are neither held nor waited for.
//
// The command in the directory contended measures many Lockers on one resource, and compares two builds of the lock engine.
//
// It needs servers: LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS, as `make stack-env` prints them; but contention, which reads
// traces that it makes itself, needs none. Times of a shared machine are noisy, so
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
	"strings"
	"time"
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

var errUsage = errors.New("usage: bench engine [--json] [--rounds n], bench temporal [--json] [--rounds n] [--waiters n] [--wait d], " +
	"bench idle [--json] [--rounds n] [--documents n,n,…], bench hot [--json] [--svg file] [--turns n] [--each d] [--at-a-time n] [--slots n] " +
	"[--resources n,n,…] [--processes n,n,…] [--write-delay d], bench wait [--json] [--for d] [--cases 1x1,100x1,…], or bench contention [--json] [--spans n] [--resources n]")

func run(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	if len(args) > 0 && args[0] == "contention" {
		return runContention(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == "idle" {
		return runIdle(ctx, args[1:], out, env)
	}
	if len(args) > 0 && args[0] == "hot" {
		return runHot(ctx, args[1:], out, env)
	}
	if len(args) > 0 && args[0] == "wait" {
		return runWait(ctx, args[1:], out, env)
	}
	if len(args) == 2 && args[0] == hotWorker { // started by the above
		return runHotWorker(ctx, args[1], out)
	}
	if len(args) == 2 && strings.HasPrefix(args[0], "contention-read") { // started by the above
		return readTraces(ctx, args[1], args[0] == "contention-read-all", out)
	}
	if len(args) == 0 || (args[0] != "engine" && args[0] != "temporal") {
		return errUsage
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "print JSON")
	rounds := flags.Int("rounds", 300, "how often each pair is measured, 10 to 10000")
	cfg := temporalConfig{}
	if args[0] == "temporal" {
		flags.IntVar(&cfg.waiters, "waiters", 2000, "how many workflows wait for one lock, 10 to 2000")
		flags.DurationVar(&cfg.wait, "wait", time.Minute, "how long all of them wait before they are let in, 1s to 1h")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case *rounds < 10 || *rounds > 10_000:
		return fmt.Errorf("%w: --rounds %d is not from 10 to 10000", errUsage, *rounds)
	case args[0] == "temporal" && (cfg.waiters < 10 || cfg.waiters > 2000):
		return fmt.Errorf("%w: --waiters %d is not from 10 to 2000", errUsage, cfg.waiters)
	case args[0] == "temporal" && (cfg.wait < time.Second || cfg.wait > time.Hour):
		return fmt.Errorf("%w: --wait %s is not from 1s to 1h", errUsage, cfg.wait)
	}
	needs := []string{"LOCKSTEP_MONGODB_URI"}
	if args[0] == "temporal" {
		needs = append(needs, "TEMPORAL_ADDRESS")
	}
	if err := present(env, needs...); err != nil {
		return err
	}
	cfg.uri, cfg.address, cfg.rounds = env("LOCKSTEP_MONGODB_URI"), env("TEMPORAL_ADDRESS"), *rounds
	var report Report
	var err error
	if args[0] == "engine" {
		report, err = benchEngine(ctx, cfg.uri, *rounds)
	} else {
		report, err = benchTemporal(ctx, cfg)
	}
	if err != nil {
		return err
	}
	return tell(out, report, *asJSON)
}

// present reports which variable is missing, as an error.
func present(env func(string) string, names ...string) error {
	for _, name := range names {
		if env(name) == "" {
			return fmt.Errorf(`%s is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`, name)
		}
	}
	return nil
}

func tell(out io.Writer, report Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.print(out)
}
