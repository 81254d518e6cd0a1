// Command contended measures how fast an exclusive lock passes between requests when many Lockers want the same resource.
//
//	go run ./internal/tools/bench/contended [--json] [--lockers 1,3,10] [--each d] [--write-delay d] [--read-delay d]
//	go run ./internal/tools/bench/contended [--json] --slow d [--each d] [--write-delay d] [--read-delay d]
//
// Each Locker has a MongoDB client of its own. All goroutines begin at once, and repeat Acquire and Release on one new resource. Nothing
// warms up, so the waits include the first ones. A command monitor on each client counts the commands.
//
// The flag --write-delay holds back the answers of write commands, as a replica set does that waits for a majority. The
// flag --slow adds an eleventh Locker to ten others, and holds back all answers to it.
//
// `make bench-contended AGAINST=commit` builds this program in another commit, too (package against). Therefore it imports only the
// driver, x/sync and lockcore, and uses only lockcore's New, CreateIndexes, Acquire, Release, Close and Exclusive.
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
	err := run(ctx, parse(), os.Stdout)
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

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.uri == "" {
		return errors.New(`LOCKSTEP_MONGODB_URI is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`)
	}
	var r report
	for _, c := range cfg.cases {
		m, err := measureCase(ctx, cfg, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		r.Results = append(r.Results, m)
	}
	if cfg.asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	return r.print(out, cfg)
}
