package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
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

// tellLines bounds the number of lines in a report.
const tellLines = 60

// builds describes how many processes two builds had, and how many workflow runs both of them have worked for. It is empty if only one
// build played.
func builds(plan Plan, records []Record) string {
	if plan.Previous == nil {
		return ""
	}
	// Each map has the processes, or the runs whose workflow code wrote a record, by whether the build was the previous one.
	processes, runs := map[bool]set{true: {}, false: {}}, map[bool]set{true: {}, false: {}}
	for i := range records {
		r := &records[i]
		if !strings.HasPrefix(r.Process, "p") {
			continue
		}
		previous := strings.HasSuffix(r.Process, previousMark)
		processes[previous][r.Process] = true
		if r.Task != 0 {
			runs[previous][r.Run] = true
		}
	}
	all := maps.Clone(runs[false])
	maps.Copy(all, runs[true])
	return fmt.Sprintf(" (%d of %d processes of the previous build; both builds ran the code of %d of %d workflow runs)",
		len(processes[true]), len(processes[true])+len(processes[false]), len(runs[true])+len(runs[false])-len(all), len(all))
}

type set map[string]bool

// Report prints a violation and the records of the workflows that it involves, in time order.
func Report(out io.Writer, v *Violation, records []Record) {
	fmt.Fprintf(out, "VIOLATION %s: %s\n", v.Check, v.Text)
	var began int64
	if len(records) > 0 {
		began = records[0].At
	}
	execs := map[string]*Record{}
	var lines []string
	for i := range records {
		r := &records[i]
		about := r
		if r.What == Enter {
			execs[r.Exec] = r
		} else if r.Exec != "" && execs[r.Exec] != nil {
			about = execs[r.Exec]
		}
		ofLimit := r.What == Limited && v.Check == "limit"
		ofProcess := r.What == Killed || r.What == Stopped || r.What == Resumed
		ofOtherCheck := r.What == Recorded || r.What == Holds && v.Check != "unknown" || r.What == Seen && v.Check != "places"
		if ofOtherCheck || !ofProcess && !ofLimit && !slices.Contains(v.Involved, about.Workflow) {
			continue
		}
		mark := " "
		if v.At != 0 && r.At >= v.At && (i == 0 || records[i-1].At < v.At) {
			mark = ">"
		}
		lines = append(lines, fmt.Sprintf("%s%8.3f s  %s", mark, float64(r.At-began)/1e9, line(r, about)))
	}
	if len(lines) > tellLines {
		at := max(0, slices.IndexFunc(lines, func(l string) bool { return l[0] == '>' })-tellLines*3/4)
		at = min(at, len(lines)-tellLines)
		lines = lines[at : at+tellLines]
	}
	for _, l := range lines {
		fmt.Fprintln(out, short(l))
	}
}

// line formats a record. about is the Enter record of its attempt.
func line(r, about *Record) string {
	var b strings.Builder
	if about.Workflow != "" {
		fmt.Fprintf(&b, "%s %.4s ", about.Workflow[strings.LastIndex(about.Workflow, "_")+1:], about.Run)
	}
	if c := about.Call; c != nil {
		kind := "step"
		if about.Undo {
			kind = "undo"
		}
		fmt.Fprintf(&b, "%s %d#%d [%s] %s on %s", kind, c.Node.ID, about.Attempt, c.Instance, r.What, r.Process)
		if r.What == Enter {
			fmt.Fprintf(&b, " needs %v %s rule %v", c.Node.Needs, c.Kept, c.Node.Rule)
		}
	} else {
		fmt.Fprintf(&b, "%s %s %s", r.What, r.Scope, r.Other)
	}
	if r.What == Limited {
		fmt.Fprintf(&b, "%v", r.Needs)
	}
	if r.Task != 0 {
		fmt.Fprintf(&b, " in task %d", r.Task)
	}
	for _, h := range r.Held {
		fmt.Fprintf(&b, " %s@%d", h.Resource, h.Fence)
	}
	if r.Type != "" || r.Error != "" {
		fmt.Fprintf(&b, " %s: %s", r.Type, r.Error)
	}
	return b.String()
}

func short(s string) string {
	const most = 260
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
