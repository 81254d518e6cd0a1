package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Hidden commands: of worker processes, of the neighbours' process, and of the process that prepares the collection. Another build of
// this program must understand them (.ci/previous).
const (
	workerCommand    = "worker"
	neighbourCommand = "neighbour"
	prepareCommand   = "prepare"
)

var errViolated = errors.New("a guarantee was violated")

func main() {
	wire.SetHoldTTL(leastHoldTTL, verifyAfter)
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
	if len(os.Args) == 5 && os.Args[1] == neighbourCommand {
		return runNeighbours(context.WithoutCancel(ctx), os.Args[2], os.Args[3], os.Args[4])
	}
	if len(os.Args) == 3 && os.Args[1] == prepareCommand {
		return prepare(ctx, os.Args[2])
	}
	var o options
	flag.Uint64Var(&o.first, "seed", 1, "the first seed")
	flag.Uint64Var(&o.runs, "runs", 10, "how many seeds to play")
	flag.DurationVar(&o.begins, "for", 0, "begin no seed after this time; 0 is no limit")
	flag.StringVar(&o.dir, "dir", "", "where the logs go and stay (default: a temporary folder, which stays if a seed fails)")
	flag.IntVar(&o.parallel, "parallel", 1, "how many seeds to play at a time")
	flag.StringVar(&o.previous, "previous", "", "another build of this program, which about half of the processes run (make fuzz-sagas-mixed)")
	flag.BoolVar(&o.failovers, "failovers", false, "the database fails over during the run, so that lost locks are no violation")
	flag.BoolVar(&o.slow, "slow", false, "the database is slow at times, also in seeds that do not plan that")
	flag.BoolVar(&o.codec, "codec", false, "workers have a codec that fails at random, also in seeds that do not plan that")
	flag.Parse()
	return playSeeds(ctx, o)
}

// options are the flags.
type options struct {
	first, runs uint64
	parallel    int
	begins      time.Duration
	dir         string
	previous    string
	failovers   bool
	slow, codec bool
}

// playSeeds plays seeds, several at a time, until one fails or the time for new ones is over. Each seed prints its result at once.
func playSeeds(ctx context.Context, o options) error {
	began := time.Now()
	group, failed := errgroup.WithContext(context.Background()) // the seeds that are under way continue after a failure
	group.SetLimit(max(1, o.parallel))
	var printing sync.Mutex
	var played atomic.Uint64
	for n := range o.runs {
		group.Go(func() error {
			if failed.Err() != nil || o.begins > 0 && time.Since(began) > o.begins {
				return nil
			}
			played.Add(1)
			var out bytes.Buffer
			err := playSeed(ctx, &out, o.first+n, o)
			printing.Lock()
			defer printing.Unlock()
			_, _ = os.Stdout.Write(out.Bytes())
			if err != nil {
				return fmt.Errorf("seed %d: %w", o.first+n, err)
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil && played.Load() < o.runs {
		fmt.Printf("%d of %d seeds played in %v\n", played.Load(), o.runs, o.begins)
	}
	return err
}

// playSeed plays one seed and prints its violations.
func playSeed(ctx context.Context, out io.Writer, seed uint64, o options) error {
	dir, err := os.MkdirTemp(o.dir, fmt.Sprintf("sagafuzz-%d-", seed))
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	began := time.Now()
	plan := NewPlan(seed)
	if o.previous != "" {
		plan.mix()
	}
	plan.Failovers = o.failovers
	plan.force(o.slow, o.codec)
	outcome, err := Play(ctx, plan, dir, o.previous)
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	violations := append(outcome.Seen, Check(outcome.Plan, outcome.Records)...)
	fmt.Fprintf(out, "seed %d: %d workflows, %d faults of processes, %d records in %.1f s%s%s: %d violations\n", seed,
		len(outcome.Plan.Workflows), len(outcome.Plan.Faults), len(outcome.Records), time.Since(began).Seconds(),
		builds(outcome.Plan, outcome.Records), outcome.Conversions, len(violations))
	switch {
	case len(violations) == 0 && o.dir != "":
		return nil
	case len(violations) == 0:
		return os.RemoveAll(dir)
	}
	counts := map[string]int{}
	for i := range violations {
		v := &violations[i]
		if counts[v.Check]++; counts[v.Check] == 1 {
			Report(out, v, outcome.Records)
		}
	}
	fmt.Fprintf(out, "%v; logs in %s\n", counts, dir)
	return errViolated
}
