package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Hidden commands, of the child processes.
const (
	clientCommand = "client"
	workerCommand = "worker"
)

var (
	errViolated = errors.New("a guarantee was violated")
	errEmpty    = errors.New("it shows nothing")
)

func main() {
	wire.SetHoldTTL(ttl, ttl/3)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 3 && (os.Args[1] == clientCommand || os.Args[1] == workerCommand) {
		var c Child
		if err := json.Unmarshal([]byte(os.Args[2]), &c); err != nil {
			return err
		}
		if os.Args[1] == clientCommand {
			return runClient(c)
		}
		return runWorker(c)
	}
	var o settings
	flag.Uint64Var(&o.seed, "seed", 1, "the first seed")
	flag.Uint64Var(&o.runs, "runs", 1, "the number of seeds to play")
	flag.DurationVar(&o.long, "for", 2*time.Minute, "the load of each seed")
	flag.DurationVar(&o.soak, "soak", 0, "play one soak of this length instead of seeds, and sample what each process uses")
	flag.StringVar(&o.dir, "dir", "", "where the logs go and stay (default: a temporary folder, which stays if a seed fails)")
	flag.BoolVar(&o.markdown, "markdown", false, "print a table of the seeds")
	flag.BoolVar(&o.controls, "controls", false, "run the controls instead of seeds: each must show a violation")
	flag.IntVar(&o.pick, "pick", 0, "run only this number of controls, which the seed chooses")
	flag.StringVar(&o.only, "only", "", "run only the control of this kind of fault, or of this name")
	flag.DurationVar(&recoveryBound, "recovery", recoveryBound, "how long a client may need after a fault; a machine with other work needs more")
	flag.BoolVar(&o.verbose, "v", false, "print each fault with what was seen of it")
	flag.Parse()
	if o.runs == 0 {
		return errors.New("-runs is 0: want at least 1")
	}
	return o.run(ctx)
}

// settings are the flags.
type settings struct {
	seed, runs                  uint64
	long, soak                  time.Duration
	dir                         string
	markdown, controls, verbose bool
	pick                        int
	only                        string
}

func (o settings) run(ctx context.Context) (err error) {
	work, err := os.MkdirTemp(o.dir, "chaos-")
	if err != nil {
		return err
	}
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	exe, err := o.executable(ctx, work)
	if err != nil {
		return err
	}
	if filepath.Dir(exe) == work { // it was built for this run
		defer func() { err = errors.Join(err, os.RemoveAll(exe)) }()
	}
	srv, err := openServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close(ctx)) }()
	left := slices.DeleteFunc(slices.Clone(kinds), srv.can)
	if len(left) > 0 {
		fmt.Printf("left out, because the servers are not this program's own processes: %v\n", left)
	}
	if o.controls {
		return runControls(ctx, o, srv, exe, work)
	}
	if o.soak > 0 {
		return o.playSoak(ctx, srv, exe, work)
	}
	if o.markdown {
		fmt.Println("| seed | faults that were seen to act | operations | sagas | histories | checks held | recoveries | longest | with stuck commands |")
		fmt.Println("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	}
	var failed error
	for seed := o.seed; seed < o.seed+o.runs && ctx.Err() == nil; seed++ {
		failed = errors.Join(failed, o.playSeed(ctx, srv, exe, work, seed))
	}
	if failed == nil && o.dir == "" {
		return os.RemoveAll(work)
	}
	return errors.Join(failed, ctx.Err())
}

// executable returns the program of the child processes. It is built only if a wall clock must be set.
func (o settings) executable(ctx context.Context, work string) (exe string, err error) {
	set := o.controls || o.soak > 0
	for seed := o.seed; seed < o.seed+o.runs; seed++ {
		set = set || slices.ContainsFunc(NewPlan(seed, o.long), func(f Fault) bool { return f.Kind == WrongClock })
	}
	if !set {
		return os.Executable()
	}
	return buildClient(ctx, work)
}

// playSeed plays one seed and judges it.
func (o settings) playSeed(ctx context.Context, srv *servers, exe, work string, seed uint64) error {
	dir := filepath.Join(work, fmt.Sprintf("seed-%d", seed))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	plan := slices.DeleteFunc(NewPlan(seed, o.long), func(f Fault) bool { return !srv.can(f.Kind) })
	records, err := Play(ctx, Setup{Seed: seed, Long: o.long, Plan: plan, Policies: asLogged}, srv, exe, dir)
	if err != nil {
		return fmt.Errorf("seed %d: %w (logs in %s)", seed, err, dir)
	}
	return o.judge(read(records), seed, dir)
}

// judge checks what happened, and prints the line of a seed and the first violation of each check.
func (o settings) judge(story *story, seed uint64, dir string) error {
	violations := story.Check()
	if o.verbose {
		story.printFaults()
	}
	sum := summarize(story, violations)
	fmt.Println(sum.line(seed, o))
	seen := map[string]bool{}
	for _, v := range violations {
		if !seen[v.Check] {
			seen[v.Check] = true
			fmt.Printf("  VIOLATION of %s: %s\n", v.Check, v.Text)
		}
	}
	if len(violations) > 0 {
		fmt.Printf("  %d violations; logs in %s\n", len(violations), dir)
		return fmt.Errorf("seed %d: %w", seed, errViolated)
	}
	if o.long >= fullSeed && sum.empty() {
		return fmt.Errorf("seed %d: %w: see its line; %d sagas were completed, the order of %d pairs of requests was compared, and %d grants met a lower limit; logs in %s",
			seed, errEmpty, sum.completed, story.compared, story.limited, dir)
	}
	return nil
}

const (
	// fullSeed is the length from which a seed must show something, and leastKinds the number of kinds of faults that must have acted.
	fullSeed   = 2 * time.Minute
	leastKinds = 3
)

// summary is the content of a seed's line.
type summary struct {
	acted    map[Kind]int
	notActed int
	// sagas have ended, and some of them were completed.
	operations, sagas, completed int
	// policies is the number of changes of policies that the audit shows.
	policies int
	story    *story
	held     int
	// after is the number of times without faults that follow a fault, recoveries in how many of them a recovery was seen, before the next
	// fault. longest is the longest recovery, and stuck the longest one after faults that leave commands without an answer.
	after, recoveries int
	longest, stuck    time.Duration
}

// empty reports whether a seed shows too little to count.
func (sum summary) empty() bool {
	return len(sum.acted) < leastKinds || sum.operations == 0 || sum.completed == 0 || sum.recoveries == 0 || sum.story.compared == 0 || sum.story.limited == 0 ||
		sum.story.undecided*4 > sum.story.histories
}

// summarize counts what a checked story contains.
func summarize(story *story, violations []Violation) summary {
	sum := summary{acted: map[Kind]int{}, held: len(checks), story: story}
	broken := map[string]bool{}
	for _, v := range violations {
		broken[v.Check] = true
	}
	sum.held -= len(broken)
	for _, d := range story.disturbed {
		if d.acted {
			sum.acted[d.Kind]++
		} else {
			sum.notActed++
		}
	}
	for _, r := range story.recoveries() {
		if !r.fault {
			continue
		}
		sum.after++
		if !r.seen {
			continue
		}
		sum.recoveries++
		if r.bound > recoveryBound {
			sum.stuck = max(sum.stuck, r.took)
		} else {
			sum.longest = max(sum.longest, r.took)
		}
	}
	for i := range story.records {
		r := &story.records[i]
		if r.What == Audited {
			sum.policies++
		}
		if r.What == Closed {
			sum.sagas++
			if r.Result == completed {
				sum.completed++
			}
		}
		if r.isOperation() {
			sum.operations++
		}
	}
	return sum
}

// isOperation reports whether a record is the answer of an operation on locks.
func (r *Record) isOperation() bool {
	switch r.What {
	case Got, Not, Left, Probe:
		return true
	case Try, Renew, Release:
		return r.Result != ""
	}
	return false
}

// line returns the line of a seed.
func (sum summary) line(seed uint64, o settings) string {
	var faults []string
	for _, k := range kinds {
		if n := sum.acted[k]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", k, n))
		}
	}
	all := strings.Join(faults, ", ")
	if o.markdown {
		return fmt.Sprintf("| %d | %s | %d | %d | %d of %d | %d of %d | %d of %d | %.1f s | %.1f s |", seed, all, sum.operations, sum.sagas,
			sum.story.histories, sum.story.histories+sum.story.undecided, sum.held, len(checks), sum.recoveries, sum.after,
			sum.longest.Seconds(), sum.stuck.Seconds())
	}
	if sum.notActed > 0 {
		all += fmt.Sprintf(" (%d had nothing to act on)", sum.notActed)
	}
	return fmt.Sprintf("seed %d: %.0f s, %d clients, %d workers; faults: %s; %d operations, %d sagas, %d histories (%d not decided), %d policies;"+
		" %d of %d checks held; %d of %d recoveries seen, the longest %.1f s (bound %.0f s), with stuck commands %.1f s (bound %.0f s)",
		seed, o.long.Seconds(), clients, workers, all, sum.operations, sum.sagas, sum.story.histories, sum.story.undecided, sum.policies, sum.held, len(checks), sum.recoveries, sum.after,
		sum.longest.Seconds(), recoveryBound.Seconds(), sum.stuck.Seconds(), (recoveryBound + stuckBound).Seconds())
}

// printFaults prints each fault, with what was seen of it.
func (s *story) printFaults() {
	for i := range s.records {
		if r := &s.records[i]; r.What == Acted {
			fmt.Printf("  %8s %v: %s\n", s.at(r.At), r.Fault, r.Result)
		}
	}
}
