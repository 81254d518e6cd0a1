package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// workerCommand is the hidden command of worker processes.
const workerCommand = "worker"

var errViolated = errors.New("a promise was not kept")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sagafuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 5 && os.Args[1] == workerCommand {
		return runWorker(context.WithoutCancel(ctx), os.Args[2], os.Args[3], os.Args[4])
	}
	seed := flag.Uint64("seed", 1, "the first seed")
	runs := flag.Uint64("runs", 10, "how many seeds to play")
	begins := flag.Duration("for", 0, "begin no seed after this time; 0 is no limit")
	most := flag.Int("workflows", 200, "play no more workflows of each seed than these")
	dir := flag.String("dir", "", "where the logs go and stay (default: a temporary folder, which stays if a seed fails)")
	flag.Parse()
	began := time.Now()
	for i := range *runs {
		if *begins > 0 && time.Since(began) > *begins {
			fmt.Printf("%d of %d seeds played in %v\n", i, *runs, *begins)
			return nil
		}
		if err := playSeed(ctx, *seed+i, *most, *dir); err != nil {
			return fmt.Errorf("seed %d: %w", *seed+i, err)
		}
	}
	return nil
}

// playSeed plays one seed, and tells what it violates.
func playSeed(ctx context.Context, seed uint64, most int, parent string) error {
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("sagafuzz-%d-", seed))
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	began := time.Now()
	plan := NewPlan(seed)
	plan.Workflows = plan.Workflows[:min(most, len(plan.Workflows))]
	outcome, err := Play(ctx, plan, dir)
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	violations := append(outcome.Seen, Check(outcome.Plan, outcome.Records)...)
	fmt.Printf("seed %d: %d workflows, %d faults of processes, %d records in %.1f s: %d violations\n", seed,
		len(outcome.Plan.Workflows), len(outcome.Plan.Faults), len(outcome.Records), time.Since(began).Seconds(), len(violations))
	switch {
	case len(violations) == 0 && parent != "":
		return nil
	case len(violations) == 0:
		return os.RemoveAll(dir)
	}
	counts := map[string]int{}
	for i := range violations {
		v := &violations[i]
		if counts[v.Check]++; counts[v.Check] == 1 {
			Tell(os.Stdout, v, outcome.Records)
		}
	}
	fmt.Printf("%v; logs in %s\n", counts, dir)
	return errViolated
}
