package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The kinds of workflows that bench hot compares. Each runs one step that does nothing; or, of kindWrites,
// two commands to the locks' database: no lock there costs less, if nobody waits.
const (
	kindNone   = "no locks"
	kindWrites = "two raw writes"
	kindMutex  = "mutex workflow"
	kindLock   = "Lock"
	kindSaga   = "saga"
	kindGuard  = "guard"
)

var hotKinds = []string{kindNone, kindWrites, kindMutex, kindLock, kindSaga, kindGuard}

type hotConfig struct {
	uri, address string
	// turns is how often each cell is measured, and each for how long.
	turns int
	each  time.Duration
	// atATime is how many workflows are under way, and slots how many activities a process runs at once.
	atATime, slots       int
	resources, processes []int
	asJSON               bool
	chart                string
	writeDelay           time.Duration
}

// runHot compares ways to run one step at a time on a resource, where many ask for few resources and where few ask for many.
func runHot(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	flags := flag.NewFlagSet("bench hot", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cfg := hotConfig{}
	flags.BoolVar(&cfg.asJSON, "json", false, "print JSON")
	flags.IntVar(&cfg.turns, "turns", 3, "how often each cell is measured, 1 to 100")
	flags.DurationVar(&cfg.each, "each", 10*time.Second, "how long, 1s to 10m")
	flags.IntVar(&cfg.atATime, "at-a-time", 20, "how many workflows are under way, 1 to 1000")
	flags.IntVar(&cfg.slots, "slots", 100, "how many activities a worker process runs at once, 1 to 1000")
	flags.DurationVar(&cfg.writeDelay, "write-delay", 0, "how long answers of the database to writes are held back, up to 1s")
	flags.StringVar(&cfg.chart, "svg", "", "the file to write a chart to")
	resources := flags.String("resources", "1,10,200", "how many resources the workflows share, 1 to 10000")
	processes := flags.String("processes", "1,3", "how many worker processes there are, 1 to 10")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	var err error
	switch {
	case cfg.turns < 1 || cfg.turns > 100:
		return fmt.Errorf("%w: --turns %d is not from 1 to 100", errUsage, cfg.turns)
	case cfg.each < time.Second || cfg.each > 10*time.Minute:
		return fmt.Errorf("%w: --each %s is not from 1s to 10m", errUsage, cfg.each)
	case cfg.atATime < 1 || cfg.atATime > 1000:
		return fmt.Errorf("%w: --at-a-time %d is not from 1 to 1000", errUsage, cfg.atATime)
	case cfg.writeDelay < 0 || cfg.writeDelay > time.Second:
		return fmt.Errorf("%w: --write-delay %s is not from 0 to 1s", errUsage, cfg.writeDelay)
	case cfg.slots < 1 || cfg.slots > 1000:
		return fmt.Errorf("%w: --slots %d is not from 1 to 1000", errUsage, cfg.slots)
	}
	if cfg.resources, err = numbers("--resources", *resources, 1, 10_000); err != nil {
		return err
	}
	if cfg.processes, err = numbers("--processes", *processes, 1, 10); err != nil {
		return err
	}
	if err := present(env, "LOCKSTEP_MONGODB_URI", "TEMPORAL_ADDRESS"); err != nil {
		return err
	}
	cfg.uri, cfg.address = env("LOCKSTEP_MONGODB_URI"), env("TEMPORAL_ADDRESS")
	report, err := benchHot(ctx, cfg)
	if err != nil {
		return err
	}
	if cfg.chart != "" {
		if err := os.WriteFile(cfg.chart, report.chart(), 0o600); err != nil {
			return err
		}
	}
	if cfg.asJSON {
		return tell(out, Report{Hot: &report}, true)
	}
	return report.print(out)
}

// numbers reads a list of numbers, each of them within bounds.
func numbers(name, list string, least, most int) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%w: %s %q is not a list of numbers from %d to %d", errUsage, name, list, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

// hotBench is a run of bench hot on one set of worker processes.
type hotBench struct {
	cfg    hotConfig
	client client.Client
	queue  string
	cells  int
}

func benchHot(ctx context.Context, cfg hotConfig) (report HotReport, err error) {
	db, drop, err := database(ctx, cfg.uri)
	if err != nil {
		return report, err
	}
	defer drop()
	locker, err := party.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return report, err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return report, err
	}
	quiet := log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	c, err := client.Dial(client.Options{HostPort: cfg.address, Logger: quiet})
	if err != nil {
		return report, fmt.Errorf("connect to TEMPORAL_ADDRESS: %w", err)
	}
	defer c.Close()
	report = HotReport{AtATime: cfg.atATime, Slots: cfg.slots, Turns: cfg.turns, Seconds: cfg.each.Seconds()}
	for _, n := range cfg.processes {
		rows, err := (&hotBench{cfg: cfg, client: c}).onProcesses(ctx, db, n)
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

// onProcesses measures every cell on a number of worker processes, in turn.
func (h *hotBench) onProcesses(ctx context.Context, db *mongo.Database, n int) ([]HotRow, error) {
	h.queue = fmt.Sprintf("lockstep-bench-hot-%d", time.Now().UnixNano())
	stop, err := startWorkers(ctx, n, hotWorkerConfig{Address: h.cfg.address, URI: h.cfg.uri, Database: db.Name(), Queue: h.queue, Slots: h.cfg.slots, WriteDelay: h.cfg.writeDelay})
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := h.measure(ctx, kindNone, 1, min(h.cfg.each, 3*time.Second)); err != nil { // warms up
		return nil, err
	}
	alone, err := h.latency(ctx, 40)
	if err != nil {
		return nil, err
	}
	rows := make([]HotRow, len(h.cfg.resources))
	for i, resources := range h.cfg.resources {
		rows[i] = newHotRow(n, resources, alone)
	}
	for range h.cfg.turns {
		for i, resources := range h.cfg.resources {
			for k, kind := range hotKinds {
				m, err := h.measure(ctx, kind, resources, h.cfg.each)
				if err != nil {
					return nil, fmt.Errorf("%s, %d resources: %w", kind, resources, err)
				}
				rows[i].Cells[k].add(m)
			}
		}
	}
	for i := range rows {
		rows[i].sum()
	}
	return rows, nil
}

// measured is what one cell came to in one turn. events are the mean of some histories' lengths.
type measured struct{ perSecond, beside, events float64 }

// measure keeps workflows of a kind under way, on resources of their own, and counts those that end in a time, after a fifth of
// it that is not counted. Beside them unrelated workflows show what the load does to others.
func (h *hotBench) measure(ctx context.Context, kind string, resources int, each time.Duration) (m measured, err error) {
	h.cells++
	begins := time.Now().Add(each / 5)
	ends := begins.Add(each)
	var mu sync.Mutex
	var begun, ended int
	var latencies, lengths []float64
	g, load := errgroup.WithContext(ctx)
	for range h.cfg.atATime {
		g.Go(func() error {
			for time.Now().Before(ends) {
				mu.Lock()
				resource := h.resource(begun % resources)
				begun++
				mu.Unlock()
				run, err := h.run(load, ends.Add(drain), hotStep{Kind: kind, Resource: resource})
				if err != nil {
					return err
				}
				now := time.Now()
				if now.Before(begins) || now.After(ends) {
					continue
				}
				mu.Lock()
				ended++
				sampled := ended%sampleEvery == 1
				mu.Unlock()
				if !sampled {
					continue
				}
				d, err := h.client.DescribeWorkflowExecution(load, run.GetID(), run.GetRunID())
				if err != nil {
					return err
				}
				mu.Lock()
				lengths = append(lengths, float64(d.GetWorkflowExecutionInfo().GetHistoryLength()))
				mu.Unlock()
			}
			return nil
		})
	}
	g.Go(func() error {
		for time.Now().Before(ends) {
			took, err := timed(func() error { _, err := h.run(load, ends.Add(drain), hotStep{Kind: kindNone}); return err })
			if err != nil {
				return err
			}
			latencies = append(latencies, millis(took))
			if err := pause(load, each/20); err != nil {
				return err
			}
		}
		return nil
	})
	if err = g.Wait(); err == nil && kind == kindMutex {
		err = h.endMutexes(ctx, resources)
	}
	return measured{perSecond: float64(ended) / each.Seconds(), beside: median(latencies), events: mean(lengths)}, err
}

// resource is the n-th of the cell that is measured.
func (h *hotBench) resource(n int) string { return fmt.Sprintf("%s/%d/%d", h.queue, h.cells, n) }

// endMutexes ends the mutex workflows of the cell, which would wait for more for a while.
func (h *hotBench) endMutexes(ctx context.Context, resources int) error {
	for n := range resources {
		err := h.client.TerminateWorkflow(ctx, mutexOf(h.resource(n)), "", "the measurement is over")
		if gone := new(*serviceerror.NotFound); err != nil && !errors.As(err, gone) {
			return err
		}
	}
	return nil
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// sampleEvery is of how many workflows the history of one is looked at.
const sampleEvery = 10

// drain is how long workflows that are still under way at the end may go on.
const drain = 20 * time.Second

// run starts a workflow and waits for its end, or ends it if that does not come in time.
func (h *hotBench) run(ctx context.Context, by time.Time, s hotStep) (client.WorkflowRun, error) {
	run, err := h.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: h.queue}, hotWorkflow, s)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	err = run.Get(waiting, nil)
	if ended := new(*temporal.WorkflowExecutionError); err == nil || errors.As(err, ended) {
		return run, err
	}
	late := time.Now().After(by.Add(-time.Second)) // the server may end a call for a result shortly before its deadline
	for ctx.Err() == nil && late && err != nil && time.Now().Before(by.Add(time.Minute)) {
		err = h.client.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(), "the measurement is over")
		if gone := new(*serviceerror.NotFound); errors.As(err, gone) {
			err = nil
		}
		if err != nil {
			_ = pause(ctx, time.Second)
		}
	}
	return run, err
}

// latency is the median time of a workflow with nothing beside it, in milliseconds.
func (h *hotBench) latency(ctx context.Context, rounds int) (float64, error) {
	var all []float64
	for range rounds {
		took, err := timed(func() error { _, err := h.run(ctx, time.Now().Add(drain), hotStep{Kind: kindNone}); return err })
		if err != nil {
			return 0, err
		}
		all = append(all, millis(took))
	}
	slices.Sort(all)
	return median(all), nil
}
