// Command contended measures how fast an exclusive lock passes between requests when many Lockers want the same resource.
//
//	go run ./internal/tools/bench/contended [--json] [--lockers 1,3,10] [--each d] [--write-delay d] [--read-delay d]
//	go run ./internal/tools/bench/contended [--json] --slow d [--each d] [--write-delay d] [--read-delay d]
//
// Each Locker has a MongoDB client of its own. All goroutines begin at once, and repeat Acquire and Release on one new resource. Nothing
// warms up, so the waits include the first ones. Commands are counted per acquisition. They include renewals and background work.
//
// The flag --write-delay holds back the answers of write commands, as a replica set does that waits for a majority. The
// flag --slow adds an eleventh Locker to ten others, and holds back all answers to it.
//
// `make bench-contended AGAINST=commit` builds this program in another commit, too (package against). Therefore it imports only package
// measure, the driver, x/sync and lockcore, and uses only lockcore's New, CreateIndexes, Acquire, Release, Close and Exclusive.
//
// It needs a server: LOCKSTEP_MONGODB_URI, as `make stack-env` prints it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, parse())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contended:", err)
		os.Exit(1)
	}
}

// config has the flags.
type config struct {
	uri    string
	asJSON bool
	cases  []benchCase
	// each is the time for which a case is measured, from the first request on.
	each time.Duration
	// writeDelay and readDelay hold back the answers of commands of all Lockers, and slow all answers to the slow one.
	writeDelay, readDelay, slow time.Duration
}

// benchCase is a number of Lockers that contend for one resource, with a number of goroutines each. The last one may be slow.
type benchCase struct {
	Name                string
	Lockers, Goroutines int
	Slow                bool
}

// parse reads the flags. It exits if they are wrong.
func parse() config {
	cfg := config{uri: os.Getenv("LOCKSTEP_MONGODB_URI")}
	flag.BoolVar(&cfg.asJSON, "json", false, "print JSON")
	flag.DurationVar(&cfg.each, "each", 6*time.Second, "how long each case is measured")
	flag.DurationVar(&cfg.writeDelay, "write-delay", 0, "how long answers of write commands are held back")
	flag.DurationVar(&cfg.readDelay, "read-delay", 0, "how long answers of read commands are held back")
	flag.DurationVar(&cfg.slow, "slow", 0, "measure ten Lockers and one to which all answers are held back this long")
	flag.Func("lockers", "the numbers of Lockers, such as 1,3,10", func(list string) error {
		cfg.cases = nil
		for text := range strings.SplitSeq(list, ",") {
			lockers, err := strconv.Atoi(text)
			if err != nil || lockers < 1 {
				return errors.New("want a list of numbers")
			}
			goroutines := 4
			if lockers <= 3 {
				goroutines = map[int]int{1: 10, 2: 7, 3: 7}[lockers]
			}
			cfg.cases = append(cfg.cases, benchCase{Name: fmt.Sprintf("%d × %d", lockers, goroutines), Lockers: lockers, Goroutines: goroutines})
		}
		return nil
	})
	_ = flag.Set("lockers", "1,3,10") // the default
	flag.Parse()
	if cfg.slow > 0 {
		cfg.cases = []benchCase{{Name: "10 + 1 slow × 4", Lockers: 11, Goroutines: 4, Slow: true}}
	}
	return cfg
}

// result is the result of one case.
type result struct {
	benchCase
	measure.Load
	// SlowShare is the number of the slow Locker's acquisitions, divided by the mean of all Lockers.
	SlowShare float64
}

func run(ctx context.Context, cfg config) error {
	if cfg.uri == "" {
		return errors.New(`LOCKSTEP_MONGODB_URI is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`)
	}
	var report struct{ Results []result }
	for _, c := range cfg.cases {
		r, err := measureCase(ctx, cfg, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		report.Results = append(report.Results, r)
	}
	if cfg.asJSON {
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	return print(report.Results, cfg)
}

// drain bounds the time after the measurement in which each goroutine gets and releases the lock that it waits for. To cancel an Acquire
// would cost the other requests time.
const drain = time.Minute

// measureCase measures one case in a new database, and drops it afterwards.
func measureCase(ctx context.Context, cfg config, c benchCase) (r result, err error) {
	db, drop, err := measure.Database(ctx, cfg.uri)
	if err != nil {
		return r, err
	}
	defer drop()
	delays := slices.Repeat([]measure.Delays{{Writes: cfg.writeDelay, Reads: cfg.readDelay}}, c.Lockers)
	if c.Slow {
		delays[c.Lockers-1].All = cfg.slow
	}
	fleet, err := measure.NewFleet(ctx, cfg.uri, db.Name(), "locks", delays...)
	if err != nil {
		return r, err
	}
	defer fleet.Close(ctx)
	limited, cancel := context.WithTimeoutCause(ctx, cfg.each+drain, fmt.Errorf("the goroutines did not end within %s", drain))
	defer cancel()
	var holders atomic.Int32
	exclusive := func() error {
		defer holders.Add(-1)
		if n := holders.Add(1); n != 1 {
			return fmt.Errorf("%d goroutines hold an exclusive lock", n)
		}
		return nil
	}
	g, groupCtx := errgroup.WithContext(limited)
	for i := range c.Lockers {
		for n := range c.Goroutines {
			g.Go(func() error {
				return fleet.Repeat(groupCtx, i, fmt.Sprintf("contended/%d/%d", i, n), func() string { return "contended/resource" }, exclusive)
			})
		}
	}
	fleet.Measure(groupCtx, cfg.each)
	fleet.End()
	if err := g.Wait(); err != nil {
		return r, errors.Join(err, context.Cause(limited))
	}
	r = result{benchCase: c, Load: fleet.Load(cfg.each)}
	if r.PerSecond == 0 {
		return r, fmt.Errorf("nothing was acquired in %s", cfg.each)
	}
	if c.Slow {
		r.SlowShare = fleet.Share(c.Lockers - 1)
	}
	return r, context.Cause(ctx)
}

func print(results []result, cfg config) error {
	fmt.Printf("Lockers × goroutines each, on one exclusive resource; %s a case\n", cfg.each)
	fmt.Printf("delays: writes %s, reads %s, all answers to the slow Locker %s\n\n", cfg.writeDelay, cfg.readDelay, cfg.slow)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\ta second\twait p50 ms\tp99 ms\twrites\treads\tslow's share\t\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n", r.Name, r.PerSecond, r.WaitP50MS, r.WaitP99MS, r.Writes, r.Reads, r.SlowShare, r.missed(cfg))
	}
	return w.Flush()
}

// majority is the delay of writes for which there are targets. A majority write took this long on a replica set of three.
const majority = 12 * time.Millisecond

// missed returns which target the result misses, if there is one for the flags.
func (r result) missed(cfg config) string {
	least := map[int]float64{1: 55, 3: 35, 10: 22}[r.Lockers]
	switch {
	case r.Slow && r.SlowShare < 0.4:
		return "MISSED: a share of 0.4"
	case !r.Slow && r.Lockers >= 10 && cfg.readDelay == 0 && cfg.writeDelay == 0 && r.WaitP99MS > 2*r.WaitP50MS:
		return "MISSED: a p99 of two medians"
	case !r.Slow && cfg.readDelay == 0 && cfg.writeDelay == majority && r.PerSecond < least:
		return fmt.Sprintf("MISSED: %g a second", least)
	}
	return ""
}
