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
	"syscall"
	"time"

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
	seed := flag.Uint64("seed", 1, "the first seed")
	runs := flag.Uint64("runs", 10, "how many seeds to play")
	begins := flag.Duration("for", 0, "begin no seed after this time; 0 is no limit")
	most := flag.Int("workflows", 250, "play no more workflows of each seed than these")
	dir := flag.String("dir", "", "where the logs go and stay (default: a temporary folder, which stays if a seed fails)")
	parallel := flag.Int("parallel", 1, "how many seeds to play at a time")
	previous := flag.String("previous", "", "another build of this program, which about half of the processes run (make fuzz-sagas-mixed)")
	failovers := flag.Bool("failovers", false, "the database fails over during the run, so that lost locks are no violation")
	slow := flag.Bool("slow", false, "the database is slow at times, also in seeds that do not plan that")
	codec := flag.Bool("codec", false, "workers have a codec that fails at random, also in seeds that do not plan that")
	flag.Parse()
	return playSeeds(ctx, options{
		first: *seed, runs: *runs, parallel: *parallel, begins: *begins, most: *most, dir: *dir,
		previous: *previous, failovers: *failovers, slow: *slow, codec: *codec,
	})
}

// options are the flags.
type options struct {
	first, runs uint64
	parallel    int
	begins      time.Duration
	most        int
	dir         string
	previous    string
	failovers   bool
	slow, codec bool
}

// playSeeds plays seeds, several at a time, until one fails or the time for new ones is over. Each seed prints its result at once.
func playSeeds(ctx context.Context, o options) error {
	began := time.Now()
	var mu sync.Mutex
	var failed error
	var next uint64
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == o.runs || o.begins > 0 && time.Since(began) > o.begins {
			return 0, false
		}
		next++
		return o.first + next - 1, true
	}
	var wg sync.WaitGroup
	for range max(1, o.parallel) {
		wg.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				var out bytes.Buffer
				err := playSeed(ctx, &out, seed, o)
				mu.Lock()
				_, _ = os.Stdout.Write(out.Bytes())
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("seed %d: %w", seed, err))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed == nil && next < o.runs {
		fmt.Printf("%d of %d seeds played in %v\n", next, o.runs, o.begins)
	}
	return failed
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
	plan.Workflows = plan.Workflows[:min(o.most, len(plan.Workflows))]
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
